"""Several machines: their processes train together on this one, and the data is shared out."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import signal
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.doors.engine import EventWriter, Run, checkpoint_files, presets
from tests.doors.trainer import Pipeline, Returned, RunReport, Share, opened
from tests.doors.trainer import pipeline as pipelines
from tests.support.cluster import connected, epochs, program, workers_of
from tests.support.forking import Forks, trainer_of
from tests.support.front_door import happened, until
from tests.support.training import options, source_of

pytestmark = pytest.mark.usefixtures("cpus")


SHORT = ("train.epochs=3", "optimizer=sgd", "learning_rate=0.05", "train.seed=3")


@pytest.mark.nightly
def test_three_workers_train_what_one_machine_trains(forks: Forks, tmp_path: Path) -> None:
    """The same global batch: 170 samples in batches of 48, and a rest of 26 that is no multiple of 3.

    And the same learning rate: a third of it, scaled by the number of replicas.
    """
    settings = (*program(tmp_path), *SHORT, "run.save_model=true", "run.checkpoint=epoch")
    runs, programs = workers_of(3, *settings, "batch_size=16", "steps_per_execution=3",
                               "learning_rate=0.016666666666666666", "learning_rate_scaling=linear")  # fmt: skip
    alone, single = trainer_of(presets.defaults([*settings, "batch_size=48"]))
    forks.run(single, *programs)
    for run in runs:
        assert epochs(run) == epochs(runs[0]), "all report the figures of all"
        for epoch, figures in epochs(alone).items():
            # The same sums in another order; replicas of an uneven rest count alike, 8, 9 and 9 samples.
            assert epochs(run)[epoch] == pytest.approx(figures, rel=0.01), epoch
    started = [happened(run, "started")[0] for run in runs]
    assert [one["worker"] for one in started] == [0, 1, 2]
    assert [[worker["run"] for worker in one["workers"]] for one in started] == [[run.id for run in runs]] * 3
    assert {(one["replicas"], one["global_batch_size"], one["steps"]) for one in started} == {(3, 48, 12)}
    assert all("by element" in one["actual"]["sharding"] for one in started)
    assert [one["actual"]["learning_rate"] for one in started] == [pytest.approx(0.05)] * 3
    for name in ("model.keras", "checkpoints"):
        assert [run.file(name).exists() for run in runs] == [True, False, False]


def test_a_killed_worker_is_named_and_all_resume_to_the_same_losses(forks: Forks, tmp_path: Path) -> None:
    rules = ("early_stop=val_loss", "early_stop_patience=2", "early_stop_restore=true", "keep_best=val_accuracy",
             "keep_best_count=2", "schedule=reduce_on_plateau", "plateau_patience=1", "save_model=true")  # fmt: skip
    settings = (*SHORT, *rules, "run.checkpoint=4", "batch_size=16")
    (tmp_path / "whole").mkdir()
    whole, unbroken = workers_of(2, *program(tmp_path / "whole", "build_own_state"), *settings)
    (tmp_path / "fate").write_text(json.dumps([1, 9, signal.SIGKILL]))
    runs, programs = workers_of(2, *program(tmp_path, "build_own_state"), *settings)
    assert forks.codes(*programs, *unbroken) == [1, -signal.SIGKILL, 0, 0]
    error = the_error(runs[0])
    assert error["kind"] == "peer_lost"
    assert "worker 1 (127.0.0.1:" in error["message"]
    assert "--resume-if-any" in error["hint"]
    (tmp_path / "fate").unlink()
    forks.run(*connected(programs))
    assert [happened(run, "started")[-1]["resumed_at_step"] for run in runs] == [8, 8]
    for run in runs:
        assert epochs(run)[3] == epochs(whole[0])[3], "exactly, with what each worker has of its own"
    for name in ("fate-end-0", "fate-end-1"):  # what their callbacks have counted, and the best weights
        assert (tmp_path / name).read_text() == (tmp_path / "whole" / name).read_text()
    for resumed, unbroken_run in zip(runs, whole, strict=True):
        result, expected = resumed.result or {}, unbroken_run.result or {}
        assert (result["ended_by"], result["best"]) == (expected["ended_by"], expected["best"])
        assert len(result["best"]) == 2
    kept = [item["file"] for item in (runs[0].result or {})["best"][0]["files"]]
    assert len(kept) == 2
    for file in (*kept, "model.keras"):
        pair = (keras.models.load_model(run.file(file)).get_weights() for run in (runs[0], whole[0]))
        assert all(np.array_equal(*weights) for weights in zip(*pair, strict=True)), file
    assert not runs[1].file("best").exists(), "the chief alone writes"


@pytest.mark.nightly
def test_a_frozen_chief_and_a_worker_that_never_comes_are_named(forks: Forks, tmp_path: Path) -> None:
    """Two clusters at the same time, for in both most of the time is waited; the frozen chief ends when it goes on."""
    (tmp_path / "fate").write_text(json.dumps([0, 5, signal.SIGSTOP]))
    settings = (*program(tmp_path, "build_small"), *SHORT)
    runs, programs = workers_of(2, *settings, "steps_per_execution=3", "train.epochs=30", "batch_size=16")
    (left, _), (only, _) = workers_of(2, *settings)
    only.environment["GPUTUI_PEER_SECONDS"] = "0.5"
    codes: list[int] = []
    training = threading.Thread(target=lambda: codes.extend(forks.codes(*programs, only)))
    training.start()
    try:
        until(lambda: runs[1].result is not None or not training.is_alive(), 300)
        os.kill(happened(runs[0], "started")[0]["pid"], signal.SIGCONT)
        training.join(120)
    finally:
        if training.is_alive():
            os.kill(happened(runs[0], "started")[0]["pid"], signal.SIGKILL)
    training.join()
    assert codes == [1, 1, 1]
    assert math.isfinite(epochs(runs[1])[1]["loss"])
    assert "worker 0 (127.0.0.1:" in the_error(runs[1])["message"]
    error = the_error(runs[0])
    assert error["kind"] == "suspended"
    assert error["message"].startswith("worker 0 (127.0.0.1:")
    assert ", this one, was suspended for" in error["message"]
    error = the_error(left)
    assert error["kind"] == "peer_missing"
    assert "worker 1 (127.0.0.1:" in error["message"]
    assert any("waiting for worker 1" in event["detail"] for event in happened(left, "phase"))


@pytest.mark.nightly
def test_a_worker_whose_engine_is_killed_is_named_by_the_others(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "fate").write_text(json.dumps([1, 3, 0]))
    settings = ("policy=mixed_bfloat16", "global_clip_norm=0.5", "steps_per_execution=2", "train.epochs=2000",
                "run.checkpoint=epoch")  # fmt: skip
    runs, programs = workers_of(2, *program(tmp_path, "build_small"), *SHORT, *settings)
    forks.run(*programs)
    chief, other = (run.result or {} for run in runs)
    assert (chief["outcome"], other["outcome"]) == ("error", "crashed")
    assert chief["error"]["message"].startswith("the engine of worker 1 (127.0.0.1:")
    assert other["error"]["message"].startswith("the engine of this run was killed")
    assert chief["steps"] == other["steps"], "all stop together, with a checkpoint"
    assert checkpoint_files.whole_step(runs[0].file("checkpoints")) == chief["steps"]
    (tmp_path / "fate").write_text(json.dumps([1, 3, signal.SIGTERM]))
    forks.run(*connected(programs))
    for run in runs:
        assert happened(run, "started")[-1]["resumed_at_step"] == chief["steps"]
        assert (run.result or {})["outcome"] == "stopped"


@pytest.mark.nightly
def test_a_checkpoint_that_the_chiefs_disk_refuses_is_tried_again_by_all(forks: Forks, tmp_path: Path) -> None:
    """Asked to stop at the end of an epoch, whose checkpoint could not be written: all are at the same step still."""
    settings = (*program(tmp_path, "build_small"), *SHORT, "train.epochs=2000", "run.checkpoint=epoch")
    code = tmp_path / "train.py"
    code.write_text(code.read_text().replace("on_train_batch_end(self, batch", "on_epoch_end(self, epoch"))
    (tmp_path / "fate").write_text(json.dumps([1, 2, signal.SIGTERM]))
    runs, programs = workers_of(2, *settings)
    runs[0].file("checkpoints").touch()  # in place of the folder
    forks.run(*programs)
    assert [(run.result or {})["outcome"] for run in runs] == ["stopped", "stopped"]
    refused = [event["message"] for event in happened(runs[0], "warning") if event["kind"] == "checkpoint"]
    assert len(refused) == 1, refused
    assert "no checkpoint of step" in refused[0]


@pytest.mark.nightly
def test_workers_stop_together_in_an_evaluation_when_one_is_asked_to(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "fate").write_text(json.dumps([1, 3, signal.SIGTERM]))
    settings = ("train.epochs=2000", "run.checkpoint=epoch", "batch_size=24")
    runs, programs = workers_of(2, *program(tmp_path), *SHORT, *settings)
    code = tmp_path / "train.py"
    changed = code.read_text().replace("on_train_batch_end(self, batch", "on_test_batch_begin(self, batch")
    kill = "os.kill(os.getpid(), number)"
    assert kill in changed
    heard = f"({kill}, time.sleep(1))"  # by a thread of the trainer, before the batch that follows
    code.write_text(changed.replace(kill, heard).replace("import json,", "import time, json,"))
    forks.run(*programs)
    results = [run.result or {} for run in runs]
    assert [result["outcome"] for result in results] == ["stopped"] * 2
    assert {result["steps"] for result in results} == {checkpoint_files.whole_step(runs[0].file("checkpoints"))} == {12}
    asked = [
        [event["message"] for event in happened(run, "warning") if event["kind"] == "peer_stopped"] for run in runs
    ]
    assert [len(messages) for messages in asked] == [1, 0]
    assert asked[0][0].startswith("worker 1 (127.0.0.1:")
    for run in runs:
        assert set(epochs(run)) == {1, 2}, "a resumed run repeats the evaluation of the third"


def the_error(run: Run) -> dict[str, str]:
    result = run.result
    assert result is not None
    assert result["outcome"] == "error", result
    return dict(result["error"])


EACH = 4  # samples in a batch of one replica
# Each label is the number of its sample. The last batch of a pass has 7 samples, or 3.
NUMBERED = ("data=synthetic", "shape=[1]", "classes=55", f"batch_size={EACH}")
# Workers, the replicas of each, samples, and settings.
SHARED: tuple[tuple[int, int, int, tuple[str, ...]], ...] = (
    (2, 1, 55, ("shuffle=10",)),
    (3, 1, 54, ("shuffle=off", "cache=memory")),
    (2, 2, 49, ("shuffle=1000", "drop_remainder=true")),
)


def in_order(batches: tf.data.Dataset, count: int) -> list[list[int]]:
    """The labels of the first batches."""
    return [batch[1].numpy().tolist() for batch in batches.take(count)]


def joined(parts: Sequence[Pipeline], batches: int, validation: bool = False) -> list[list[int]]:
    """The global batches that the workers make together, from what each of their replicas gets."""
    found = []
    for part in parts:
        stream = part.validation() if validation else part.stream()
        here = part.replicas_here
        flat = in_order(stream, batches * here)
        found.append([list(itertools.chain(*flat[first : first + here])) for first in range(0, len(flat), here)])
    return [list(itertools.chain(*rows)) for rows in zip(*found, strict=True)]


def sorted_in(batches: list[list[int]]) -> list[list[int]]:
    """Each batch with its samples in one order: which worker trains which of them makes no difference."""
    return [sorted(batch) for batch in batches]


@pytest.mark.parametrize(("workers", "replicas", "samples", "settings"), SHARED)
def test_workers_train_together_what_one_machine_trains(
    workers: int, replicas: int, samples: int, settings: tuple[str, ...]
) -> None:
    total = workers * replicas
    wanted = options(*NUMBERED, *settings, f"samples={samples}", "validation_split=0.2")
    one = pipelines.build(wanted, total)
    parts = [pipelines.build(wanted, total, Share(workers, index)) for index in range(workers)]
    batches = one.batches_per_pass
    beyond = 2 * batches + 1
    together = joined(parts, beyond)
    assert sorted_in(together) == sorted_in(in_order(one.train.global_batches(0), beyond))
    seen = sorted(itertools.chain(*together[:batches]))
    assert len(set(seen)) == len(seen), "none twice"
    if not wanted.input.drop_remainder:
        assert seen == list(range(one.train_samples or 0))
    held_out = sorted(itertools.chain(*joined(parts, one.validation_batches, validation=True)))
    assert held_out == list(range(one.train_samples or 0, samples))


def test_a_resumed_worker_goes_on_with_its_next_rows() -> None:
    parts = [pipelines.build(options(*NUMBERED, "samples=55", "validation_split=0"), 2, Share(2, i)) for i in (0, 1)]
    for part in parts:
        assert in_order(part.stream(9), 5) == in_order(part.stream(), 14)[9:]


def test_a_worker_loads_only_its_own_samples() -> None:
    wanted = options(*NUMBERED, "samples=48", "validation_split=0", "prefetch=off", "parallel_calls=off")
    part = pipelines.build(wanted, 2, Share(2, 1))
    loads: list[int] = []
    load = source_of(part).load
    assert load is not None

    def noted(index: np.int64) -> np.int64:
        loads.append(int(index))
        return index

    def counting(index: Any) -> Any:
        number = tf.numpy_function(noted, [index], tf.int64)
        number.set_shape([])
        return load(number)

    object.__setattr__(source_of(part), "load", counting)
    trained = list(itertools.chain(*in_order(part.stream(), part.batches_per_pass)))
    assert len(trained) == 24
    assert loads[:24] == trained


class Numbered(keras.utils.PyDataset):  # type: ignore[misc]
    """Batches of 8 numbers."""

    def __len__(self) -> int:
        return 3

    def __getitem__(self, at: int) -> Any:
        numbers = np.arange(8 * at, min(8 * at + 8, 21))
        return numbers[:, None].astype("float32"), numbers


@pytest.mark.parametrize("kind", ["arrays", "single samples", "batches", "PyDataset"])
def test_data_of_a_users_code_is_shared_out_as_well(kind: str, tmp_path: Path) -> None:
    numbers = np.arange(21)
    x = numbers[:, None].astype("float32")
    single = tf.data.Dataset.from_tensor_slices((x, numbers))
    kinds = {"arrays": (x, numbers), "single samples": single, "batches": single.batch(8), "PyDataset": Numbered(1)}
    data: Any = kinds[kind]
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    returned = Returned(model, data, validation=data, mapped=kind == "single samples")
    wanted = options("batch_size=4", "validation_split=0", "shuffle=10", "augment=off")
    (tmp_path / "train.py").touch()
    with contextlib.closing(EventWriter(tmp_path / "events.jsonl", "run")) as writer:
        report = RunReport(Run(tmp_path), writer)
        parts = [opened(wanted, 2, returned, tmp_path / "train.py", report, Share(2, index)) for index in (0, 1)]
        for validation in (False, True):
            batches = joined(parts, 3, validation)
            assert [len(batch) for batch in batches] in ([8, 8, 5], [8, 5, 8], [5, 8, 8])
            assert sorted(itertools.chain(*batches)) == list(range(21))
        assert all("by element" in part.sharing for part in parts)
