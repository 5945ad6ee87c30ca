"""The batch finder and the prediction of memory through the front door, on a stand-in GPU and on the CPU."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.trials.search_record import Memory
from gputui.engine.tune.memory_model import ROOM
from gputui.engine.tune.report.memory_sentences import largest_error
from gputui.engine.tune.stages.batch_size import STEP

from tests.support.fakegpu import FakeGpu
from tests.support.front_door import gputui
from tests.support.typed import typed

pytest_plugins = ("tests.support.fakegpu.fixture",)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.usefixtures("nothing_left_running")]

MB = 2**20
LIMIT = 64 * MB
# A sample takes about 1 MB in many small tensors, as in a deep network, and its time whatever the batch: as no
# size is faster, no pairs are measured.
PRESET = """\
description: wide
workload: {entry: "train.py:build"}
input: {batch_size: 16, shuffle: off, prefetch: off}
train: {seed: 3}
compile: {xla: false}
"""
CODE = """\
import time
import keras, numpy as np, tensorflow as tf
class Slow(keras.layers.Layer):
    def call(self, x):
        def wait(batch):
            time.sleep({seconds} * batch)
            return batch
        waited = tf.numpy_function(wait, [tf.shape(x)[0]], tf.int32)
        with tf.control_dependencies([waited]):
            return tf.identity(x)
def build(context):
    x = np.zeros((512, 16), "float32")
    deep = [keras.layers.Activation("tanh") for _ in range(30)]
    model = keras.Sequential([keras.Input((16,)), Slow(), keras.layers.Dense(8192), *deep, keras.layers.Dense(1)])
    return {{"model": model, "loss": "mse", "optimizer": "sgd", "train": (x, x[:, :1])}}
"""


def wide(folder: Path, seconds: float) -> Path:
    """The folder, with the preset and its code, whose samples take so long."""
    (folder / "wide.yaml").write_text(PRESET)
    (folder / "train.py").write_text(CODE.format(seconds=seconds))
    return folder


def found(*arguments: str, cwd: Path, **more: Any) -> dict[str, Any]:
    """What a command with --json has told."""
    done = gputui(*arguments, "--preset", "wide.yaml", "--anyway", "--json", cwd=cwd, timeout=400, **more)
    assert done.returncode == 0, done.stderr + done.stdout[-2000:]
    return dict(json.loads(done.stdout))


@pytest.mark.usefixtures("forked_gpu_trainers")
def test_the_largest_batch_on_a_gpu_with_little_memory_is_found_within_one_step(
    fakegpu: FakeGpu, tmp_path: Path
) -> None:
    """The preset itself runs out of memory, which the search survives."""
    folder = wide(tmp_path, seconds=0.003)
    boxes = os.environ | fakegpu.environment(tmp_path / "gpus", gpus=1)
    little = ("--set", f"memory_limit_mb={LIMIT // MB}")
    data = found("fit-batch", *little, "--set", "batch_size=72", "--seconds", "1", cwd=folder, env=boxes)
    search, memory = data["search"], data["search"]["memory"]
    assert (memory["of"], memory["limit_bytes"]) == ("allocator", LIMIT)
    outcomes = [trial["outcome"] for one in search["candidates"] for trial in one["trials"]]
    assert outcomes[0] == "oom"
    assert set(outcomes) <= {"oom", "ok", "slower"}, "nothing but memory fails, and no failure ends the search"
    error = largest_error(typed(Memory, memory))
    assert error is not None
    assert error < 0.1
    fits = memory["fits"]
    taken = {point["batch_size"]: point["peak_bytes"] for point in memory["points"]}
    assert taken[fits] <= ROOM * LIMIT
    assert data["changes_kept"]["input.batch_size"] <= fits
    beyond = round(fits * STEP / 8 + 1) * 8
    # What no longer fits has run out of memory, or has taken the room that is left free.
    peaks = [peak for batch_size, peak in taken.items() if fits < batch_size <= beyond]
    assert peaks, (fits, beyond, memory)
    assert all(peak is None or peak > ROOM * LIMIT for peak in peaks), (fits, beyond, memory)


@pytest.mark.usefixtures("forked_trainers")
def test_memory_of_own_code_is_predicted_on_the_cpu_by_two_probes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUTUI_WARM", "0")  # the probes are forked as well, and not by a process of their own
    folder = wide(tmp_path, seconds=0.0)
    data = found("tune", "--dry-run", "--set", "batch_size=128", cwd=folder)
    memory = data["search"]["memory"]
    assert (memory["of"], memory["batch_size"], len(memory["points"])) == ("process", 128, 2)
    assert 128 not in [point["batch_size"] for point in memory["points"]]
    sentence = data["ended_because"]
    assert sentence.startswith("batch 128 will take ")
    assert " that the host has free; " in sentence
    end = f"all up to {memory['most_batch']:,}, the largest that can be tried, fit with a tenth left free"
    about = f"the largest that fits, with a tenth left free, is about {memory['largest_batch']:,}"
    assert sentence.endswith(end) if memory["largest_batch"] == memory["most_batch"] else about in sentence
    settings = ("run.measure_seconds=0.1", "train.steps_per_epoch=10", "batch_size=128")
    words = [word for setting in settings for word in ("--set", setting)]
    done = gputui("--preset", "wide.yaml", *words, "--json", cwd=folder)
    summary = json.loads(done.stdout.splitlines()[-1])["summary"]
    assert memory["predicted_bytes"] == pytest.approx(summary["peak_process_bytes"], rel=0.1)
    assert memory["largest_batch"] > 128
