"""Parts of the training loop that decide when something is done: checkpoints, what is compiled, ends of epochs."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf
from gputui.engine.runs import Run
from gputui.engine.runs.parsing import EventWriter
from gputui.engine.trainer.checkpoint.checkpoints import CheckpointSaver, NotWritten
from gputui.engine.trainer.common.epoch_callbacks import as_keras, flat, floats
from gputui.engine.trainer.fit import evaluation, train_function
from gputui.engine.trainer.fit.called_callbacks import CalledCallbacks, EndDue
from gputui.engine.trainer.fit.epoch_end import EpochEnd
from gputui.engine.trainer.fit.evaluation import Evaluation
from gputui.engine.trainer.fit.restoring import Restoring
from gputui.engine.trainer.measure import first_times
from gputui.engine.trainer.measure.first_times import FirstTimes
from gputui.engine.trainer.measure.run_report import RunReport
from gputui.engine.trainer.monitor.watched_fit import Position
from gputui.engine.trainer.own.fit_arguments import FitArguments


@pytest.fixture
def report(tmp_path: Path) -> RunReport:
    run = Run(tmp_path)
    return RunReport(run, EventWriter(run.file("events.jsonl"), run.id))


def told(report: RunReport, kind: str) -> list[dict[str, Any]]:
    lines = map(json.loads, report.run.file("events.jsonl").read_text().splitlines())
    return [event for event in lines if event["type"] == kind]


# ---- when a checkpoint is due ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("every", "together", "due"),
    [(3, 1, [3, 6, 9]), (4, 3, [6, 9, 12]), (5, 10, [10, 20]), ("epoch", 1, []), ("off", 1, [])],
)
def test_a_checkpoint_is_due_after_each_so_many_steps(
    every: int | str, together: int, due: list[int], report: RunReport
) -> None:
    nothing: Any = None
    saver = CheckpointSaver(nothing, report, every)
    found = []
    for step in range(together, 2 * max(together, 5) + 1, together) if together != 3 else (3, 6, 9, 12):
        saver.execution_ran(step, together)
        if saver.take_due():
            found.append(step)
        assert not saver.take_due(), "once"
    assert found == due
    assert saver.take_due(epoch_ends=True) is (every == "epoch")


class Disk:
    """Checkpoints that a disk refuses for some steps."""

    def __init__(self, refused: set[int]) -> None:
        self.refused = refused

    def save(self, step: int) -> None:
        if step in self.refused:
            raise NotWritten(f"no room for step {step}")


def test_a_disk_that_refuses_is_warned_of_once_and_again_when_it_takes_them(report: RunReport) -> None:
    disk: Any = Disk({2, 3})
    saver = CheckpointSaver(disk, report, 1)
    assert [saver.save(step) for step in range(1, 6)] == [True, False, False, True, True]
    assert report.first_seconds.checkpoint is not None
    assert [(event["kind"], event["message"], event["hint"]) for event in told(report, "warning")] == [
        ("checkpoint", "no room for step 2", "the training goes on, and the next one is tried again"),
        ("checkpoint", "there is a checkpoint again, of step 4; 2 were left out", ""),
    ]
    assert [(event["phase"], event["detail"]) for event in told(report, "phase")] == [
        ("saving", "checkpoint"), ("training", ""),
    ] * 5  # fmt: skip


# ---- what is compiled --------------------------------------------------------------------------


def pipeline(**more: Any) -> Any:
    known = {"batches_per_pass": 5, "smaller_last_batch": True, "validation_samples": 30, "global_batch_size": 8}
    return SimpleNamespace(**(known | {"replicas": 1} | more))


@pytest.mark.parametrize(
    ("xla", "more", "smaller"),
    [
        (True, {}, [(3, 2)]),
        (True, {"smaller_last_batch": False}, []),
        (False, {}, []),
    ],
)
def test_the_first_smaller_batch_is_compiled_again(
    xla: bool, more: dict[str, Any], smaller: list[tuple[int, int]], report: RunReport
) -> None:
    first = FirstTimes(report, pipeline(**more), xla)
    executions = [(0, 3), (3, 1), (3, 2), (9, 1), (4, 1)]
    assert [each for each in executions if first.meets_smaller_batch(*each)] == smaller


@pytest.mark.parametrize(
    ("xla", "more", "compiles"),
    [
        (True, {}, [True, False, True, False, False, False]),
        (True, {"validation_samples": 32}, [True, False, False, False, False, False]),
        (True, {"validation_samples": None}, [True, False, True, False, False, False]),
        (True, {"replicas": 2}, [True, False, False, False, False, False]),
        (False, {}, [True, False, False, False, False, False]),
    ],
)
def test_the_first_evaluation_and_its_smaller_last_batch_are_compiled(
    xla: bool, more: dict[str, Any], compiles: list[bool], report: RunReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(100.0)
    monkeypatch.setattr(first_times, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    first, found = FirstTimes(report, pipeline(**more), xla), []
    for _ in range(2):
        first.evaluation.begins()
        for left in (2, 1, 0):
            found.append(first.test_begins(left))
            if found[-1]:
                first.evaluation.compiled()
    assert found == compiles
    assert report.first_seconds.evaluation == sum(compiles), "a second for each"
    phases = [(event["phase"], event["detail"]) for event in told(report, "phase")]
    again = [("compiling", "evaluation"), ("evaluating", "")]
    assert phases == again * sum(compiles) + [("evaluating", "")]


def test_an_evaluation_that_ended_before_it_ran_is_no_first_one(
    report: RunReport, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count(100.0)
    monkeypatch.setattr(first_times, "time", SimpleNamespace(perf_counter=lambda: next(now)))
    first = FirstTimes(report, pipeline(), xla=False)
    first.evaluation.begins()
    for _ in range(7):
        next(now)
    first.evaluation.begins()
    first.evaluation.compiled()
    assert report.first_seconds.evaluation == 1.0


# ---- evaluations -------------------------------------------------------------------------------


class Evaluated:
    """A model whose test step returns the batch, and what is notified of it."""

    def __init__(self) -> None:
        self.calls: list[Any] = []
        self.test_function: Any = None
        self.evaluation = self
        self.compiles = False

    def begins(self) -> None:
        self.calls.append("begins")

    def compiled(self) -> None:
        self.calls.append("compiled")

    def test_begins(self, left: int) -> bool:
        self.calls.append(("left", left))
        return self.compiles

    def first_test_ran(self, trace: Any) -> None:
        self.calls.append("ran")

    def beat(self) -> None:
        self.calls.append("beat")

    def check(self, of_run: bool) -> None:
        self.calls.append(of_run)


def test_an_evaluation_of_the_run_takes_its_batches_together_and_one_of_a_callback_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    counts: list[int] = []
    now = [0.0]

    class Function:
        def __call__(self, iterator: Any, count: Any) -> tuple[dict[str, Any], int]:
            counts.append(int(count))
            return {}, 0

        def get_concrete_function(self, *_: Any) -> None:
            raise AssertionError

    monkeypatch.setattr(train_function, "testing", lambda *_: Function())
    monkeypatch.setattr(train_function, "testing_one", lambda *_: lambda batch: {"batch": batch})
    monkeypatch.setattr(evaluation, "time", SimpleNamespace(monotonic=lambda: now[0]))
    model: Any = Evaluated()
    tests = Evaluation(model, 3, model.check, model, model, model, None, 1)
    tests.begin(13, {"loss": 1.0})
    assert tests.epoch_metrics == {"loss": 1.0}
    for now[0], model.compiles in ((0.0, True), (4.9, False), (5.0, False), (9.9, False), (10.0, False)):
        model.test_function(iter(()))
    assert counts == [3, 3, 3, 3, 1]
    assert model.calls == [
        "begins", True, ("left", 10), "compiled", "ran", True, ("left", 7), "ran", True, ("left", 4), "beat", "ran",
        True, ("left", 1), "ran", True, ("left", 0), "beat", "ran",
    ]  # fmt: skip
    model.calls.clear()
    batches = iter(range(10))
    assert [model.test_function(batches) for _ in range(2)] == [{"batch": 2}, {"batch": 5}]
    assert model.calls == [False, False]
    tests.begin(7, None)
    tests.end()
    assert model.test_function(batches) == {"batch": 8}
    assert model.test_function(batches) == {"batch": 9}
    assert tests.epoch_metrics is None
    with pytest.raises(StopIteration):
        model.test_function(batches)


# ---- the end of an epoch -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("freq", "batches", "evaluated"),
    [(1, 4, [0, 1, 2, 3, 4, 5]), (3, 4, [2, 5]), ([1, 4], 4, [0, 3]), (1, 0, [])],
)
def test_an_interrupted_end_of_an_epoch_is_made_up_for(freq: Any, batches: int, evaluated: list[int]) -> None:
    given: list[Any] = []

    def evaluate(data: Any, **more: Any) -> dict[str, float]:
        assert (data, more.pop("callbacks")) == ("on devices", callbacks)
        assert more == {"steps": 4, "return_dict": True, "verbose": 0}
        return {"loss": 2.0}

    callbacks: Any = SimpleNamespace(on_epoch_end=lambda epoch, logs: given.append((epoch, logs)))
    own = SimpleNamespace(pipeline=SimpleNamespace(fit=FitArguments(validation_freq=freq)))
    pipe = SimpleNamespace(validation_batches=batches, validation=lambda: "batches")
    built: Any = SimpleNamespace(
        pipeline=pipe, own=own if freq != 1 else None, model=SimpleNamespace(evaluate=evaluate)
    )
    data: Any = SimpleNamespace(validation=lambda batches: f"on devices{batches.removeprefix('batches')}")
    end = EpochEnd(built, data)
    for epoch in range(6):
        end.make_up(callbacks, epoch, {"loss": 1.0})
        assert end.unfinished == {"loss": 1.0}
    expected = [{"loss": 1.0} | ({"val_loss": 2.0} if epoch in evaluated else {}) for epoch in range(6)]
    assert given == list(enumerate(expected))


def test_the_logs_of_an_epoch_are_the_metrics_unless_the_step_returns_others() -> None:
    model = SimpleNamespace(get_metrics_result=lambda: {"loss": tf.constant(1.5)})
    built: Any = SimpleNamespace(model=model)
    nothing: Any = None
    end = EpochEnd(built, nothing)
    end.step_logs = {"loss": tf.constant(9.0)}
    assert end.logs() == {"loss": 1.5}
    assert end.due(ended=True, within_epoch=True) == {"loss": 1.5}
    end.step_logs = {"mine": tf.constant(3.0)}
    assert end.logs() == {"mine": 3.0}
    for ended, within in ((True, False), (False, True)):
        assert end.due(ended, within) is None
    end.unfinished = {"loss": 7.0}
    assert end.due(ended=True, within_epoch=True) == end.due(ended=False, within_epoch=False) == {"loss": 7.0}


def test_logs_are_flattened_and_only_short_vectors_are_numbers() -> None:
    class Odd:
        def __str__(self) -> str:
            raise ValueError

    logs: Any = {"a": {"b": np.float32(0.5), 3: 2}, Odd(): 1, "none": None, "text": "x", "pair": [1, 2],
            "ten": np.arange(10), "eleven": np.arange(11), "table": np.ones((1, 1)), "no": object()}  # fmt: skip
    assert list(flat(logs)) == ["b", "3", "Odd", "none", "text", "pair", "ten", "eleven", "table", "no"]
    assert floats(logs) == {"b": 0.5, "3": 2.0, "Odd": 1.0, "pair_0": 1.0, "pair_1": 2.0} | {
        f"ten_{n}": float(n) for n in range(10)
    }
    kept = as_keras({"x": np.float32(0.5), "v": [1, 2], "s": "text", "c": 1j})
    assert (kept["x"], type(kept["x"]), kept["v"].tolist(), kept["s"], kept["c"]) == (
        0.5,
        float,
        [1.0, 2.0],
        "text",
        1j,
    )
    assert (floats(None), flat(None)) == ({}, {})


# ---- callbacks ---------------------------------------------------------------------------------


class Noting(keras.callbacks.Callback):  # type: ignore[misc]
    """Notes the calls in the list of its loop."""

    def __init__(self, calls: list[Any]) -> None:
        super().__init__()
        self.calls = calls

    def on_train_begin(self, logs: Any = None) -> None:
        self.calls.append("train begin")

    def on_train_end(self, logs: Any = None) -> None:
        self.calls.append(("train end", logs))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(("epoch begin", epoch))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self.calls.append(("epoch end", epoch))
        logs["added"] = 1.0

    def on_test_begin(self, logs: Any = None) -> None:
        self.calls.append("test begin")

    def on_test_end(self, logs: Any = None) -> None:
        self.calls.append(("test end", logs))


class PerBatch(Noting):
    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("batch begin", batch))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("batch end", batch, logs))

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("test batch begin", batch))

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        self.calls.append(("test batch end", batch, logs))


class Loop:
    """The part of the training loop that is notified, in a list."""

    writes_checkpoints = False

    def __init__(self) -> None:
        self.step, self.steps, self.steps_per_epoch, self.restores_later = 0, 6, 3, False
        self.calls: list[Any] = []
        self.heartbeat = tf.name_scope("beats")

    def end_due(self) -> Any:
        return False, None

    def epoch_ends(self, epoch: int, logs: Any) -> None:
        self.calls.append(("loop: epoch_ends", epoch, logs))

    def __getattr__(self, name: str) -> Any:
        return lambda *words: self.calls.append(f"loop: {name}" + "".join(f" {word}" for word in words))


def called(kind: Any = Noting) -> tuple[CalledCallbacks, Any, Any]:
    loop: Any = Loop()
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.stop_training = False
    theirs = kind(loop.calls)
    return CalledCallbacks(loop, model, 2, [theirs]), loop, theirs


def test_callbacks_are_called_in_the_order_of_keras_around_what_the_loop_does() -> None:
    callbacks, loop, theirs = called(PerBatch)
    assert theirs.params == {"verbose": 0, "epochs": 2, "steps": 3}
    callbacks.on_train_begin()
    callbacks.on_epoch_begin(0)
    callbacks.on_train_batch_begin(0)
    callbacks.on_train_batch_end(0, {"loss": tf.constant(2.0)})
    callbacks.on_test_begin()
    callbacks.on_test_batch_begin(0)
    callbacks.on_test_batch_end(0, {"loss": tf.constant(3.0)})
    callbacks.on_test_end({"loss": tf.constant(4.0)})
    callbacks.on_epoch_end(0, {"loss": tf.constant(5.0)})
    assert loop.calls == [
        "train begin", "loop: training_begins",
        "loop: epoch_begins", "loop: leave_if_it_is_time", ("epoch begin", 0),
        "loop: leave_if_it_is_time", ("batch begin", 0), ("batch end", 0, {"loss": 2.0}), "loop: execution_ends",
        "loop: evaluation_begins", "test begin", ("test batch begin", 0), ("test batch end", 0, {"loss": 3.0}),
        ("test end", {"loss": 4.0}), "loop: evaluation_ends",
        "loop: pause", ("epoch end", 0), "loop: pause", ("loop: epoch_ends", 0, {"loss": 5.0, "added": 1.0}),
    ]  # fmt: skip
    loop.calls.clear()
    callbacks.on_train_end()
    assert loop.calls == [], "the rest of an epoch is a fit of its own"
    callbacks.on_train_begin()
    assert loop.calls == ["loop: training_begins"], "once in a run"
    loop.step = 6
    callbacks.on_train_end()
    assert loop.calls[1:] == [("train end", {"loss": 5.0})], "without what callbacks have added"


def test_a_callback_without_methods_for_batches_is_not_called_for_them() -> None:
    callbacks, loop, _ = called()
    callbacks.on_train_batch_begin(0)
    callbacks.on_train_batch_end(0, {"loss": 1.0})
    callbacks.on_test_batch_begin(0)
    callbacks.on_test_batch_end(0, {"loss": 1.0})
    assert loop.calls == ["loop: execution_ends"]


def test_calls_wait_until_a_checkpoint_is_restored_and_changes_of_a_resumed_epoch_are_undone() -> None:
    callbacks, loop, _ = called(PerBatch)
    loop.restores_later, loop.step = True, 4
    callbacks.on_epoch_begin(1)
    callbacks.on_train_batch_begin(0)
    assert loop.calls == ["loop: epoch_begins"]
    callbacks.call_held()
    assert loop.calls[1:] == [("epoch begin", 1), "loop: restore_again True", ("batch begin", 0)]
    callbacks.call_held()
    assert len(loop.calls) == 4


def test_a_callback_that_ends_the_training_ends_it_within_an_epoch() -> None:
    callbacks, loop, _ = called()
    loop.step = 4
    callbacks.model.stop_training = True
    callbacks.on_train_end({"loss": 1.0})
    assert loop.calls == [("train end", {"loss": 1.0})]


@pytest.mark.parametrize(
    ("saves", "count"), [("epoch", 0), (5, 2)]
)  # ModelCheckpoint overrides the method, and looks at it only with a number of steps
def test_a_model_checkpoint_is_called_for_batches_only_if_it_saves_by_steps(saves: Any, count: int) -> None:
    loop: Any = Loop()
    saving = keras.callbacks.ModelCheckpoint("x.keras", save_freq=saves)
    calls: list[int] = []
    saving.on_train_batch_end = lambda batch, logs: calls.append(batch)
    callbacks = CalledCallbacks(loop, keras.Sequential(), 2, [saving])
    for batch in range(2):
        callbacks.on_train_batch_end(batch, {})
    assert len(calls) == count


@pytest.mark.parametrize(("step", "reset"), [(6, ["reset"]), (7, [])])
def test_a_checkpoint_is_restored_once_the_model_fits_it_and_callbacks_without_a_state_are_named(
    step: int, reset: list[str]
) -> None:
    callbacks, _, _ = called()
    done, fits = list[Any](), [False]

    def restore(at: int) -> list[str]:
        done.append(at)
        return []

    checkpoints = SimpleNamespace(
        callbacks_at=lambda step: None, fits=lambda step: fits[0], restore=restore,
        read_traced=lambda step: None,
        state=SimpleNamespace(begins_anew="random numbers begin anew"),
    )  # fmt: skip
    health: Any = SimpleNamespace(begin=lambda step: done.append(("health", step)), note_start=lambda: None)
    model, told = SimpleNamespace(reset_metrics=lambda: done.append("reset")), list[Any]()
    report = SimpleNamespace(warn=lambda *words: told.append(words))
    built: Any = SimpleNamespace(checkpoints=checkpoints, joined=None, own=None, model=model, report=report)
    restoring = Restoring(built, health, [], 3)
    assert restoring.begin(step, callbacks) == EndDue(False, None)
    restoring.epoch_begins()
    assert (done, restoring.is_due) == ([], True)
    fits[0] = True
    restoring.epoch_begins()
    restoring.epoch_begins()
    assert (done, restoring.is_due) == ([step, ("health", step), *reset], False)
    assert told == [
        ("begins_anew", "random numbers begin anew"),
        ("callbacks_not_restored", "Noting starts again: the checkpoint is of an older gputui"),
    ]


# ---- the place of a watched fit ----------------------------------------------------------------


def test_the_steps_of_a_watched_fit_are_known_after_its_first_epoch() -> None:
    known, unknown = Position({"epochs": 3, "steps": 10}), Position({"epochs": 3, "steps": None})
    assert (known.steps, unknown.steps, Position({}).epochs) == (30, 0, 1)
    for position in (known, unknown):
        position.execution_begins(9)
        position.ended = 9
        assert position.step == 9
        position.epoch_ends(0)
        assert (position.step, position.steps) == (10, 30)
        position.epoch = 1
        position.execution_begins(4)
        assert position.step == 14
        position.ended = 3
        position.epoch_ends(1)
        assert (position.step, position.steps) == (14, 30)
