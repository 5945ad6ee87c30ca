"""The example with KerasHub: LoRA, also on int8 kernels, stopped and resumed, and exported."""

from __future__ import annotations

import shutil
import signal
from pathlib import Path

import pytest

from tests.doors.engine import Run, presets
from tests.support.exporting import losses_of_run, trained_by_both
from tests.support.forking import Forks, Program, trainer_of
from tests.support.front_door import happened

pytestmark = pytest.mark.timeout(900)  # each process imports KerasHub

EXAMPLES = Path(__file__).parents[2] / "examples"
FEW = ("shuffle=off", "epochs=4")
# The accuracy of a saved model on the data of the example, as another program would load it.
RELOAD = """
import sys, types, keras, lora
loaded = keras.models.load_model(sys.argv[1])
args = {"preset": None, "quantize": None, "rank": 4, "learning_rate": 0.005, "samples": 200}
_, (x, y) = lora.build(types.SimpleNamespace(args=args))
print((loaded.predict(x, verbose=0).argmax(-1) == y).mean())
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    copy = shutil.copytree(EXAMPLES, tmp_path / "examples")
    monkeypatch.chdir(copy)
    return copy


def size(run: Run) -> int:
    return run.file("model.keras").stat().st_size


def test_lora_trains_resumes_and_exports(folder: Path, forks: Forks) -> None:
    """The losses of a run, of one that was killed in its third epoch, and of an exported script are equal."""
    preset = presets.resolve("lora.yaml", FEW)
    run, ours, theirs = trained_by_both(forks, preset, folder)
    assert happened(run, "warning") == []
    assert ours[-1] < 0.6 * ours[0]
    assert theirs == pytest.approx(ours, rel=1e-3)

    killed, trainer = trainer_of(presets.resolve("lora.yaml", [*FEW, "run.checkpoint=25", "args.kill=80"]))
    source = (folder / "lora.py").read_text()
    (folder / "lora.py").write_text(source + KILLING)
    assert forks.codes(trainer) == [-signal.SIGKILL]
    forks.run(trainer)
    assert happened(killed, "started")[-1]["resumed_at_step"] == 75
    assert losses_of_run(killed) == ours

    (folder / "lora.py").write_text(source)
    (folder / "reload.py").write_text(RELOAD)
    forks.run(
        Program(str(folder), str(folder / "reloaded"), ["reload.py", str(run.file("model.keras"))], [str(folder)])
    )
    assert float((folder / "reloaded").read_text().splitlines()[-1]) > 0.9


# Ends the first process of a run at a step, as the kernel's killer would.
KILLING = """
class Kill(keras.callbacks.Callback):
    def __init__(self, step):
        super().__init__()
        self.step = step

    def on_train_batch_end(self, batch, logs=None):
        if self.model.optimizer.iterations == self.step and not os.path.exists("killed"):
            open("killed", "w").close()
            os.kill(os.getpid(), signal.SIGKILL)


import os, signal
_build = build


def build(context):
    model, data = _build(context)
    return {"model": model, "train": data, "callbacks": [Kill(context.args["kill"])]}
"""


def test_kernels_of_int8_take_half_the_file(folder: Path, forks: Forks) -> None:
    plain = trainer_of(presets.resolve("lora.yaml", FEW))
    int8 = trainer_of(presets.resolve("lora.yaml", [*FEW, "args.quantize=int8"]))
    forks.run(plain[1], int8[1])
    assert size(int8[0]) < 0.6 * size(plain[0])
    assert losses_of_run(int8[0]) == pytest.approx(losses_of_run(plain[0]), abs=0.02)
