"""A fit that `Monitor` watches, with a stand-in for Keras: its phases, pulses, epochs, and its end."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import pytest
import tensorflow as tf
import yaml
from gputui.engine import runs
from gputui.engine.job import environment_variables
from gputui.engine.runs import Run
from gputui.engine.telemetry import resource_limits
from gputui.engine.trainer.common import versions
from gputui.engine.trainer.measure import first_times, progress_reports
from gputui.engine.trainer.monitor import callback, description, watched_fit
from gputui.engine.trainer.monitor.callback import Monitor
from gputui.engine.trainer.monitor.fit_life import Fit
from gputui.engine.trainer.monitor.watched_fit import Position, WatchedFit
from gputui.engine.trainer.setup.devices import Devices

# ---- where a fit is ----------------------------------------------------------------------------


def test_the_position_follows_from_the_epoch_and_its_steps_which_may_be_known_only_after_the_first() -> None:
    known = Position({"epochs": 3, "steps": 10})
    known.epoch = 2
    known.execution_begins(4)
    assert (known.epochs, known.steps, known.step) == (3, 30, 24)
    known.ended = 4
    known.epoch_ends(2)
    assert (known.step, known.steps_per_epoch, known.steps) == (25, 10, 30), "it was stopped within the epoch"
    unknown = Position({})
    assert (unknown.epochs, unknown.steps) == (1, 0)
    unknown = Position({"epochs": 2})
    unknown.execution_begins(4)
    assert (unknown.step, unknown.steps) == (4, 0)
    unknown.ended = 6
    unknown.epoch_ends(0)
    assert (unknown.step, unknown.steps_per_epoch, unknown.steps) == (7, 7, 14)


# ---- its events --------------------------------------------------------------------------------


class Model:
    """As Keras has it, without training: its loss is the number of steps."""

    jit_compile, steps_per_execution, optimizer = False, 2, None
    stop_training, train_step = False, keras.Model.train_step
    distribute_strategy = SimpleNamespace(num_replicas_in_sync=1)

    def __init__(self) -> None:
        self.mean = keras.metrics.Mean(name="loss")
        self.metrics, self.variables, self.reads = [self.mean], list[Any](), 0

    def get_metrics_result(self) -> dict[str, float]:
        self.reads += 1
        return {"loss": float(self.mean.result())}


class Fits(Fit):
    """A fit whose frame is not found, with TensorFlow's iterator over its data."""

    def epoch_begins(self) -> None:
        self.iterator = iter(tf.data.Dataset.range(64).batch(8))


class Lives:
    """Stands for the threads and the signals of a fit."""

    def __init__(self, run: Run, seconds: float, fit: Any, stop: Any, gone: Any, clock: Any) -> None:
        self.given, self.stop, self.gone, self.ended = (run, seconds, fit), stop, gone, 0

    def begin(self) -> None:
        pass

    def end(self) -> None:
        self.ended += 1


class Played:
    """A fit of epochs with executions of two steps that take a second each."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, **params: Any) -> None:
        self.now, self.model = 1000.0, Model()
        clock = SimpleNamespace(perf_counter=lambda: self.now)
        for module in (watched_fit, progress_reports, first_times):
            monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(watched_fit, "Life", Lives)
        monkeypatch.setattr(description, "devices", lambda model: (Devices("CPU", ("/device:CPU:0",)), None))
        monkeypatch.setattr(versions, "of_packages", lambda: {"python": "3"})
        monkeypatch.setattr(resource_limits, "usable_cpus", lambda: 4)
        monkeypatch.setattr(progress_reports, "peak_bytes", lambda names: {})
        monkeypatch.setattr(os, "environ", {"HOME": "/root"})
        run = Run(folder)
        run.file("preset.yaml").write_text("train: {epochs: 2}\n")
        self.run = run
        self.of_keras = Fits()
        watched: Any = (run, self.model, {"epochs": 2, **params}, 8, 0.5, self.of_keras)
        self.fit: Any = WatchedFit(*watched)

    @property
    def life(self) -> Any:
        return self.fit._life

    def execution(self, batch: int, seconds: float = 2.0) -> None:
        self.fit.execution_begins(batch)
        self.now += seconds
        self.model.mean.update_state(float(batch), 16.0)  # two batches of eight
        self.fit.execution_ended(batch + 1, {"loss": float(self.model.mean.result())})

    def epoch(self, number: int, *batches: int, evaluates: bool = False) -> None:
        self.fit.epoch_begins(number)
        for batch in batches:
            self.execution(batch)
        metrics = {"loss": 0.5}
        if evaluates:
            self.fit.evaluation_begins()
            self.model.mean.update_state(100.0)  # it uses the same mean
            self.now += 60.0
            self.fit.evaluation_runs()
            self.now += 5.0
            self.fit.evaluation_ends()
            metrics["val_loss"] = 0.75
        self.fit.epoch_ends(number, metrics)
        self.model.mean.reset_state()

    def events(self, *kinds: str) -> list[dict[str, Any]]:
        lines = self.run.file("events.jsonl").read_text().splitlines()
        return [event for event in map(json.loads, lines) if event["type"] in kinds]


@pytest.mark.parametrize("steps", [6, None])
def test_each_phase_epoch_and_pulse_of_a_fit_is_written(
    steps: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(tmp_path, monkeypatch, steps=steps)
    played.epoch(0, 0, 2, 4, evaluates=True)
    played.now += 30.0  # other callbacks
    played.epoch(1, 0, 2, 4, evaluates=True)
    played.fit.finish()
    told = [(event["phase"], event["detail"]) for event in played.events("phase")]
    training, evaluating = ("training", ""), ("evaluating", "")
    assert told == [
        ("compiling", "tracing"), training, ("compiling", "evaluation"), evaluating, training, training,
        evaluating, training, ("ended", ""),
    ]  # fmt: skip
    progress = [
        (each["epoch"], each["step"], each["steps"], each["loss"], each["window_loss"], each["metrics"])
        for each in played.events("progress")
    ]
    known = 12 if steps else 0
    assert progress == [
        (1, 2, known, 0.0, 0.0, {}), (1, 4, known, 1.0, 2.0, {}), (1, 6, 12, 0.5, 4.0, {}),
        (2, 8, 12, 0.0, 0.0, {}), (2, 10, 12, 1.0, 2.0, {}),
        (2, 12, 12, 0.5, 4.0, {}),
    ]  # fmt: skip
    epochs = [(each["epoch"], each["step"], each["metrics"]) for each in played.events("epoch")]
    assert epochs == [(1, 6, {"loss": 0.5, "val_loss": 0.75}), (2, 12, {"loss": 0.5, "val_loss": 0.75})]
    result = dict(played.run.result or {})
    assert (result["outcome"], result["trainer_returncode"], result["error"]) == ("ok", 0, None)
    assert (result["epochs"], result["steps"], result["global_batch_size"]) == (2, 12, 8)
    assert result["first_step_seconds"] == 2.0
    assert result["first_evaluation_seconds"] == 60.0
    figures = result["samples_per_second"], result["measured_steps"], result["measured_seconds"]
    # Evaluations, and what other callbacks do, are no time of steps. Of unknown length, twenty steps warm up.
    assert figures == ((8.0, 10, 10.0) if steps else (None, 0, None))
    assert played.life.ended == 1
    assert played.life.given == (played.run, 0.5, played.of_keras)
    first_step, begin_of_measuring, pulses = 1, 1 if steps else 0, 4
    assert played.model.reads == first_step + begin_of_measuring + pulses, "the host waits for the device only then"
    before = played.run.file("events.jsonl").read_text()
    played.fit.report.phase("training")
    assert played.run.file("events.jsonl").read_text() == before, "it is closed"


STARTED = (
    "pid", "versions", "devices", "gpus", "gpu_devices", "options", "replicas", "global_batch_size", "steps_per_epoch",
    "epochs", "steps", "train_samples", "validation_samples", "cpus", "actual",
)  # fmt: skip


def test_the_started_event_has_what_keras_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tf.config.experimental, "tensor_float_32_execution_enabled", lambda: True)
    monkeypatch.setattr(environment_variables, "tf32_overridden", lambda: True)
    played = Played(tmp_path, monkeypatch, steps=6)
    (started,) = played.events("started")
    assert {key: started[key] for key in STARTED} == {
        "pid": os.getpid(), "versions": {"python": "3"}, "devices": ["/device:CPU:0"], "gpus": [], "gpu_devices": [],
        "options": {"train": {"epochs": 2}}, "replicas": 1, "global_batch_size": 8, "steps_per_epoch": 6, "epochs": 2,
        "steps": 12, "train_samples": None, "validation_samples": None, "cpus": 4,
        "actual": {"jit_compile": False, "optimizer": None, "tf32": False, "environment": {}},
    }  # fmt: skip
    played.fit.finish()


def test_an_epoch_of_one_execution_has_a_first_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(tmp_path, monkeypatch, steps=2)
    played.model.jit_compile = True
    played.epoch(0, 0)
    told = [(event["phase"], event["detail"]) for event in played.events("phase")]
    assert told == [("compiling", "XLA"), ("training", "")]
    played.now += 30.0  # the script's own work
    played.epoch(1, 0)
    played.fit.finish()
    assert [event["phase"] for event in played.events("phase")] == ["compiling", "training", "training", "ended"]
    assert (played.run.result or {})["first_step_seconds"] == 2.0
    assert [event["step"] for event in played.events("progress")] == [2, 4]


def test_the_time_between_two_epochs_is_no_time_of_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    played = Played(tmp_path, monkeypatch, steps=4)
    for epoch in range(2):
        played.epoch(epoch, 0, 2)
        played.now += 30.0  # other callbacks
    played.fit.finish()
    result = dict(played.run.result or {})
    assert (result["measured_steps"], result["measured_seconds"]) == (6, 6.0)


def test_a_stop_ends_the_fit_after_its_step_and_the_run_is_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(tmp_path, monkeypatch, steps=6)
    played.fit.epoch_begins(0)
    played.execution(0)
    assert not played.model.stop_training
    played.life.stop()
    assert not played.model.stop_training, "the thread of the training sets it"
    played.execution(2)
    assert played.model.stop_training
    played.fit.finish()
    played.fit.gone()
    result = dict(played.run.result or {})
    assert (result["outcome"], result["trainer_returncode"], result["error"]) == ("stopped", 0, None)
    assert played.life.ended == 1


@pytest.mark.parametrize(
    ("stops", "end", "outcome", "code", "error"),
    [
        (False, "gone", "error", 1, watched_fit.INTERRUPTED),
        (True, "gone", "stopped", 0, None),
        (False, "failed", "error", 1, {
            "kind": "monitor", "message": "the fit goes on unwatched: KeyError: x", "hint": "see the script's output",
        }),
    ],
)  # fmt: skip
def test_a_fit_that_ends_without_a_report_ends_its_run(
    stops: bool, end: str, outcome: str, code: int, error: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    played = Played(tmp_path, monkeypatch, steps=6)
    if stops:
        played.life.stop()
    if end == "gone":
        played.life.gone()
    else:
        played.fit.failed("KeyError: x")
    result = dict(played.run.result or {})
    assert (result["outcome"], result["trainer_returncode"], result["error"]) == (outcome, code, error)
    assert played.life.ended == 1


# ---- what fails --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (KeyError("a\n b"), "KeyError: 'a\\n b'"), (ValueError("a\n  b"), "ValueError: a b"),
        (ValueError("x" * 400), "ValueError: " + "x" * 288),
        (OSError(28, "No space left on device", "/runs/x"), "No space left on device: /runs/x"),
    ],
)  # fmt: skip
def test_a_fault_is_printed_in_a_line_and_ends_the_watching(
    fault: Exception, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    monitor, told = Monitor(), list[str]()

    def fail(*_: Any) -> None:
        raise fault

    monitor._watched = SimpleNamespace(epoch_begins=fail, failed=told.append)  # type: ignore[assignment]
    monitor.on_epoch_begin(3)
    assert capsys.readouterr().err == f"gputui: this fit is not watched: {why}\n"
    assert told == [why]
    monitor.on_epoch_begin(4)
    monitor.on_train_end()
    assert capsys.readouterr().err == ""


def test_each_call_of_keras_is_handed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Any] = []

    class Watched:
        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *given: told.append((name, *given))

    monitor = Monitor()
    for call in ("on_epoch_begin", "on_train_batch_begin", "on_train_batch_end", "on_test_begin", "on_train_end"):
        getattr(monitor, call)(*([0] if "epoch" in call or "batch" in call else []))
    assert told == [], "without a fit there is nothing to watch"
    monitor._watched = Watched()  # type: ignore[assignment]
    monitor.on_epoch_begin(2)
    monitor.on_train_batch_begin(5)
    monitor.on_train_batch_end(6, {"loss": 1})
    monitor.on_test_begin()
    for batch in (0, 1, 2):
        monitor.on_test_batch_begin(batch)
    monitor.on_test_end()
    monitor.on_epoch_end(2, {"loss": tf.constant(0.5), "word": "x"})
    monitor.on_train_end()
    assert told == [
        ("epoch_begins", 2), ("execution_begins", 5), ("execution_ended", 6, {"loss": 1}), ("evaluation_begins",),
        ("evaluation_runs",), ("evaluation_runs",), ("evaluation_ends",), ("epoch_ends", 2, {"loss": 0.5}), ("finish",),
    ]  # fmt: skip
    monitor.on_train_end()
    assert len(told) == 9, "the fit has ended"


def test_a_preset_says_what_keras_knows_of_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def preset(params: dict[str, Any], batch_size: int | None, replicas: int = 1) -> dict[str, Any]:
        model: Any = Model()
        model.distribute_strategy = SimpleNamespace(num_replicas_in_sync=replicas)
        written: dict[str, Any] = yaml.safe_load(description.preset("mine", model, params, batch_size))
        return written

    monkeypatch.setattr(sys, "argv", ["/home/me/train.py"])
    assert preset({"epochs": 3}, None) == {
        "schema_version": 1, "description": "mine: model.fit in train.py, looked at by Monitor",
        "precision": {"policy": "float32"}, "compile": {"xla": False, "steps_per_execution": 2}, "train": {"epochs": 3},
    }  # fmt: skip
    assert preset({}, 32)["input"] == {"batch_size": 32}
    assert preset({}, 32, replicas=4)["input"] == {"batch_size": 8}, "of a replica"
    assert preset({}, 3, replicas=4)["input"] == {"batch_size": 1}
    monkeypatch.setattr(sys, "argv", [""])
    assert preset({"epochs": None}, None)["train"] == {"epochs": 1}
    assert preset({}, None)["description"] == "mine: model.fit in python, looked at by Monitor"


def test_a_run_is_made_with_the_batch_size_that_is_given_or_that_keras_knows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []

    def create(name: str, preset: str) -> Run:
        made.append((name, preset))
        return Run(tmp_path)

    monkeypatch.setattr(runs, "create", create)
    monkeypatch.setattr(description, "preset", lambda *given: given)
    monkeypatch.setattr(callback, "WatchedFit", lambda *given: given)
    monkeypatch.setattr(callback, "Fit", lambda: SimpleNamespace(batch_size=lambda: 16))
    for size, expected in ((None, 16), (64, 64)):
        monitor = Monitor("mine", batch_size=size, sample_seconds=0.25)
        monitor.set_params({"epochs": 3})
        monitor.on_train_begin()
        watched: Any = monitor._watched
        assert made.pop() == ("mine", ("mine", None, {"epochs": 3}, expected))
        assert watched[1:5] == (None, {"epochs": 3}, expected, 0.25)
        assert monitor.run == watched[0]


def test_a_later_fit_whose_run_cannot_be_made_leaves_the_earlier_run_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    faults: list[Exception] = []
    gone: list[str] = []

    def create(name: str, preset: str) -> Run:
        if faults:
            raise faults[0]
        return Run(tmp_path)

    def watched(*_: Any) -> Any:
        if not monitor.batch_size:
            raise ValueError("a model that cannot be described")
        return SimpleNamespace(gone=lambda: gone.append("gone"))

    monkeypatch.setattr(runs, "create", create)
    monkeypatch.setattr(description, "preset", lambda *given: given)
    monkeypatch.setattr(callback, "WatchedFit", watched)
    monkeypatch.setattr(callback, "Fit", lambda: SimpleNamespace(batch_size=lambda: None))
    monitor = Monitor(batch_size=8)
    (tmp_path / "result.json").write_text("{}")
    monitor.on_train_begin()
    assert (monitor.run, gone) == (Run(tmp_path), [])
    faults.append(OSError(28, "No space left on device", "/runs"))
    monitor.on_train_begin()
    assert (monitor.run, gone) == (None, ["gone"])
    assert (tmp_path / "result.json").exists()
    faults.clear()
    monitor.batch_size = None
    monitor.on_train_begin()
    assert monitor.run is None
    assert not tmp_path.exists(), "a run that has not begun"
    told = capsys.readouterr().err.splitlines()
    why = ("No space left on device: /runs", "ValueError: a model that cannot be described")
    assert told == [f"gputui: this fit is not watched: {each}" for each in why]
