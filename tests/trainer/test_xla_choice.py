"""`compile.xla: auto` on the stand-in GPU: what is compiled, and the reason that a run tells."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from tests.support.fakegpu import FakeGpu

pytest_plugins = ("tests.support.fakegpu.fixture",)
ROOT = Path(__file__).parents[2]
PROGRAM = """
import json, sys
from pathlib import Path
import keras
import tensorflow as tf
from gputui.engine.interpreter import compatibility
from gputui.engine.trainer.setup import devices, xla
from tests.support.training import built, options

TINY = ("model=mlp", "width=0.05", "batch_size=32", "epochs=1", "steps_per_epoch=2", "validation_split=0")
found = devices.configure(options(*TINY, "strategy.kind=mirrored"))

def started(*settings):
    training = built(Path(sys.argv[1]) / "-".join(settings), found, options(*TINY, *settings)).announce()
    actual = training.events("started")[0]["actual"]
    return actual["jit_compile"], actual["xla_reason"]

class Fixed(keras.layers.Layer):
    def __init__(self):
        super().__init__()
        self.supports_jit = False
    def call(self, x):
        return x

model = lambda *layers: keras.Sequential([keras.Input((4,)), *layers, keras.layers.Dense(1)])
alone = lambda *settings: vars(xla.choose(options(*settings), model())).values()
theirs = model()
theirs.compile()
against, under = model(), model()
against.compile(jit_compile=False)
under.compile(jit_compile=False)
told = {
    "single": started("train.seed=1"),
    "false": started("compile.xla=false"),
    "mirrored": started("strategy.kind=mirrored"),
    "deterministic": [*alone("deterministic=true")],
    "layer": [*vars(xla.choose(options(), model(Fixed()))).values()],
    "theirs": [*vars(xla.of_compiled(options(), theirs)).values()],
    "theirs against Keras": [*vars(xla.of_compiled(options(), against)).values()],
    "Keras under a strategy": [*vars(xla.of_compiled(options("strategy.kind=mirrored"), under)).values()],
}
compatibility.BLACKWELL_CAPABILITY = (1, 0)
told["chip"] = [*alone()]
told["their chip"] = [*vars(xla.of_compiled(options(), theirs)).values()]
told["true on the chip"] = [*alone("xla=true")]
told["not compiled on the chip"] = [*vars(xla.of_compiled(options(), against)).values()]
print(json.dumps(told))
"""


def test_auto_compiles_where_keras_does_but_not_where_xla_would_abort(fakegpu: FakeGpu, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "runs")],
        env=os.environ | fakegpu.environment(tmp_path / "gpus", 2),
        cwd=ROOT,
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    told = json.loads(done.stdout.splitlines()[-1])
    assert told == {
        "single": [True, "one GPU, without a strategy"],
        "false": [False, "compile.xla is false"],
        "mirrored": [False, "strategy.kind is mirrored: under a strategy Keras compiles nothing"],
        "deterministic": [False, "train.deterministic is true: Keras then compiles nothing"],
        "layer": [False, "XLA cannot compile Fixed"],
        "theirs": [True, "jit_compile=True of your compiled model is Keras' choice: one GPU, without a strategy"],
        "theirs against Keras": [False, "your code has compiled the model with jit_compile=False"],
        "Keras under a strategy": [
            False,
            "jit_compile=False of your compiled model is Keras' choice: strategy.kind is mirrored: under a "
            "strategy Keras compiles nothing",
        ],
        "chip": [False, "XLA of this TensorFlow crashes on compute capability 9.0"],
        "their chip": [False, "XLA of this TensorFlow crashes on compute capability 9.0"],
        "true on the chip": [True, "compile.xla is true"],
        "not compiled on the chip": [False, "your code has compiled the model with jit_compile=False"],
    }
