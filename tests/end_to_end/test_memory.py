"""Memory that runs out, and the largest batch that fits."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.doors.engine import ROOM, STEP, Memory, Run, largest_error, presets, runs
from tests.doors.engine import titles_title as title
from tests.support.fakegpu import FakeGpu
from tests.support.forking import Forks, trainer_of
from tests.support.front_door import Finished, events, gputui, happened
from tests.support.own import PROGRAMS
from tests.support.recorded_proof import typed

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("nothing_left_running")]


# ---- a training that goes on ---------------------------------------------------------------------


OWN = (f"entry={PROGRAMS / 'runs_out.py'}:build", f"workload.folder={PROGRAMS}", "batch_size=19", "epochs=3",
       "validation_split=0", "seed=3")  # fmt: skip


def losses(found: Sequence[dict[str, Any]]) -> list[float]:
    """The figures of each epoch, as they were told last."""
    by_epoch = {event["epoch"]: event["metrics"] for event in found}
    return [value for _, metrics in sorted(by_epoch.items()) for _, value in sorted(metrics.items())]


def trained(*settings: str, **more: Any) -> tuple[Finished, Run]:
    words = [word for setting in settings for word in ("--set", setting)]
    done = gputui("--preset", "quickstart", "--json", *words, timeout=300, **more)
    return Finished(done.returncode, events(done.stdout), done.stderr), runs.find("latest")


def undisturbed(forks: Forks, *settings: str) -> list[float]:
    run, trainer = trainer_of(presets.resolve("quickstart", settings))
    forks.run(trainer)
    return losses(happened(run, "epoch"))


def times_left(folder: Path, times: int) -> str:
    """The setting with which memory runs out so many times."""
    (folder / "left").write_text(str(times))
    return f"args={{times_left: {folder / 'left'}}}"


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.nightly
def test_a_training_goes_on_from_its_last_step_with_the_same_batch_in_parts(tmp_path: Path, forks: Forks) -> None:
    sends = f"notify.command=echo $GPUTUI_NOTICE_OUTCOME >> {tmp_path}/sent"
    done, run = trained(*OWN, times_left(tmp_path, 2), "on_oom=accumulate", "run.checkpoint=4", sends)
    assert (tmp_path / "sent").read_text() == "ok\n", "one notice, at the real end"
    assert done.code == 0, done.errors
    result = done.only("finished")["summary"]
    assert result["outcome"] == "ok"
    assert result == run.result
    answers = result["memory_answers"]
    assert [(one["answer"], one["option"], one["before"], one["after"]) for one in answers] == [
        ("accumulate", "train.micro_batches", 1, 2), ("accumulate", "train.micro_batches", 2, 4),
    ]  # fmt: skip
    assert [one["resumes_at_step"] for one in answers] == [12, 24]
    assert [event["message"] for event in done.of("memory_answer")] == [one["message"] for one in answers]
    told = [event["message"] for event in done.of("warning") if event["kind"] == "out_of_memory"]
    assert told[1].endswith("the training goes on from step 24 with each batch of 19 in 4 parts")
    assert yaml.safe_load(run.file("preset.yaml").read_text())["train"]["micro_batches"] == 4
    assert str(title(run)).startswith("quickstart: micro_batches=4 batch_size=19")
    assert {started["global_batch_size"] for started in done.of("started")} == {19}
    assert result["steps"] == 30
    # The same losses but for rounding: each step has added up its gradients in another order.
    assert losses(done.of("epoch")) == pytest.approx(undisturbed(forks, *OWN), rel=1e-5)
    assert run.whole_result["seconds"] > result["seconds"]
    assert [runs.Run(run.path).file(f"result-{number}.json").exists() for number in (1, 2, 3)] == [True, True, False]


@pytest.mark.usefixtures("forked_trainers")
def test_a_training_begins_again_with_half_the_batch_and_keeps_what_it_had(tmp_path: Path, forks: Forks) -> None:
    done, run = trained(*OWN, times_left(tmp_path, 1), "on_oom=halve", "run.checkpoint=4")
    assert done.code == 0, done.errors
    (answer,) = done.only("finished")["summary"]["memory_answers"]
    assert (answer["option"], answer["before"], answer["after"]) == ("input.batch_size", 19, 9)
    assert answer["resumes_at_step"] is None
    (told,) = [event for event in done.of("warning") if event["kind"] == "out_of_memory"]
    assert "begins again with batch size 9 instead of 19" in told["message"]
    assert told["hint"].startswith("the learning rate stays as it is (your code has chosen the optimizer); ")
    assert [path.name for path in sorted(run.file("checkpoints-1").iterdir())] == ["step-0000000008", "step-0000000012"]
    alone = undisturbed(forks, *(setting.replace("batch_size=19", "batch_size=9") for setting in OWN))
    assert losses(done.of("epoch")) == pytest.approx(alone, rel=1e-6)


# ---- the largest batch ---------------------------------------------------------------------------


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


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("forked_gpu_trainers")
@pytest.mark.nightly  # by day tests/contract/test_measured.py has the search, on planted trainings
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


@pytest.mark.timeout(600)
@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.nightly
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
    assert f" that the host has free; batch {memory['largest_batch']:,}" in sentence
    assert sentence.endswith(" with a tenth left free")
    settings = ("run.measure_seconds=0.1", "train.steps_per_epoch=10", "batch_size=128")
    words = [word for setting in settings for word in ("--set", setting)]
    done = gputui("--preset", "wide.yaml", *words, "--json", cwd=folder)
    summary = json.loads(done.stdout.splitlines()[-1])["summary"]
    assert memory["predicted_bytes"] == pytest.approx(summary["peak_process_bytes"], rel=0.1)
    assert memory["largest_batch"] > 128
