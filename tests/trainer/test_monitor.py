"""Monitor: a fit of a script is watched, told, and never disturbed."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.doors.engine import Finding, Gpu, Machine, Run, RunClock, steady, stop_signals, this_machine
from tests.doors.engine import verdict_of_run as of_run
from tests.doors.trainer import LOOK, Life, WatchedFit, monitor_callback
from tests.doors.trainer import engine_Monitor as Monitor
from tests.doors.tui import next_step
from tests.support.forking import Forks, Program
from tests.support.front_door import until

X = np.random.default_rng(0).normal(size=(640, 4)).astype("float32")


def model(**more: Any) -> keras.Model:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse", **more)
    return made


def events(run: Run | None, kind: str) -> list[dict[str, Any]]:
    assert run is not None
    lines = run.file("events.jsonl").read_text().splitlines()
    return [event for event in map(json.loads, lines) if event["type"] == kind]


CARD = Gpu(0, "GPU-a", "A GPU", (9, 0), 80 * 1024**3)
STOPPED = Machine((), "not loaded", 1, 1, fault=Finding("error", "driver", "the driver is not loaded", "load it"))


@pytest.mark.parametrize(
    ("there", "told"),
    [
        (STOPPED, [("the driver is not loaded: the CPU trains", "load it")]),
        (replace(STOPPED, visible_devices=""), []),
        (Machine((), "no GPU", 1, 1), []),
        (Machine((CARD,), "", 1, 1), [("the driver shows 1 GPU(s), and TensorFlow none: the CPU trains", LOOK)]),
        (Machine((replace(CARD, compute_capability=(5, 2)),), "", 1, 1),
         [("the chips of GPU 0 (A GPU) are too old: TensorFlow has no code for them: the CPU trains",
           "gputui doctor says which chips it supports")]),
        (Machine((), "the driver hangs", 1, 1, missing="the driver hangs"),
         [("this machine has GPUs that the driver does not show (the driver hangs), nor can TensorFlow use any: the "
           "CPU trains", LOOK)]),
    ],
)  # fmt: skip
def test_gpus_that_do_not_train_are_warned_of_with_the_cause(
    cpus: Any, there: Machine, told: list[tuple[str, str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_machine, "read", lambda: there)
    present, obstacle = monitor_callback.devices_of(model())
    report = Told()
    monitor_callback.warn_of_gpus(report, present, obstacle)  # type: ignore[arg-type]
    assert (present.kind, report.warnings) == ("CPU", told)


class Told:
    """Keeps the warnings of a report."""

    def __init__(self) -> None:
        self.warnings: list[tuple[str, str]] = []

    def warn(self, _kind: str, message: str, hint: str) -> None:
        self.warnings.append((message, hint))


def test_a_loop_of_ones_own_with_a_model_that_is_not_compiled_is_watched(cpus: Any) -> None:
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    monitor = Monitor("own loop", batch_size=8)
    callbacks = keras.callbacks.CallbackList([monitor], model=made, epochs=2, steps=3)
    callbacks.on_train_begin()
    for epoch in range(2):
        callbacks.on_epoch_begin(epoch)
        for step in range(3):
            callbacks.on_train_batch_begin(step)
            callbacks.on_train_batch_end(step, {"loss": 1.0})
        callbacks.on_epoch_end(epoch, {"loss": 1.0})
    callbacks.on_train_end()
    assert [event["metrics"] for event in events(monitor.run, "epoch")] == [{"loss": 1.0}] * 2
    assert events(monitor.run, "started")[0]["actual"]["optimizer"] is None
    assert monitor.run is not None
    assert monitor.run.state == "ok"


@pytest.mark.parametrize("name", ["__init__", "on_train_batch_end", "on_test_begin"])
def test_what_fails_within_monitor_ends_the_watching_and_never_the_script(
    name: str, cpus: Any, home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: Any, **more: Any) -> None:
        raise KeyError("nothing\nhere")

    monkeypatch.setattr(WatchedFit, name, fail)
    monitor = Monitor()
    history = model().fit(
        X, X[:, 0], batch_size=320, epochs=2, verbose=0, validation_data=(X, X[:, 0]), callbacks=[monitor]
    )
    assert len(history.history["loss"]) == 2
    (said,) = [line for line in capsys.readouterr().err.splitlines() if "gputui" in line]
    assert said.startswith("gputui: this fit is not watched: KeyError: ")
    if name == "__init__":
        assert monitor.run is None
        assert not list((home / "runs").iterdir())
    else:
        assert monitor.run is not None
        assert monitor.run.state == "error"
        error = (monitor.run.result or {})["error"]
        assert error["message"].startswith("the fit goes on unwatched: KeyError")


class OwnStep(keras.Model):  # type: ignore[misc]
    """Its step counts no samples."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)

    def call(self, inputs: Any) -> Any:
        return self.dense(inputs)

    def train_step(self, data: Any) -> dict[str, Any]:
        return {"loss": tf.reduce_mean(tf.square(self(data[0]) - data[1]))}


class EvaluatesItself(keras.callbacks.Callback):  # type: ignore[misc]
    """Uses the sums of the training for an evaluation before each epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.model.evaluate(X, X[:, :1], verbose=0)


@pytest.mark.parametrize(
    ("rows", "together", "own_step", "as_data_set"),
    [(100, 4, False, False), (100, 1, False, True), (5000, 1, True, False), (100, 1, True, True)],
)
def test_the_speed_of_a_fit_is_that_of_its_samples(
    rows: int, together: int, own_step: bool, as_data_set: bool, cpus: Any
) -> None:
    """The last batch of 640 rows is smaller. The samples of a data set with a step of the user's are not known."""
    made, monitor = OwnStep() if own_step else model(), Monitor()
    made.compile("sgd", "mse", steps_per_execution=together)
    data = tf.data.Dataset.from_tensor_slices((X, X[:, :1])).batch(rows)
    of_fit = (data,) if as_data_set else (X, X[:, :1])
    more = {} if as_data_set else {"batch_size": rows}
    callbacks = [monitor, *([] if own_step else [EvaluatesItself()])]
    made.fit(*of_fit, epochs=10, verbose=0, shuffle=False, callbacks=callbacks, validation_data=data, **more)
    summary, last = events(monitor.run, "finished")[0]["summary"], events(monitor.run, "progress")[-1]
    assert summary["steps"] == 10 * -(-640 // rows)
    assert last["learning_rate"] == pytest.approx(0.01)
    if own_step and as_data_set:
        assert summary["samples_per_second"] is last["samples"] is None
        return
    assert last["samples"] == 6400
    steps = [min(rows, 640 - first) for first in range(0, 640, rows)] * 10
    measured = sum(steps[-summary["measured_steps"] :])
    assert summary["samples_per_second"] == pytest.approx(measured / summary["measured_seconds"], rel=0.01)
    assert events(monitor.run, "started")[0]["global_batch_size"] == (None if as_data_set else min(rows, 640))


@pytest.mark.parametrize("slow", [True, False])
def test_a_fit_is_judged_by_its_wait_for_input_and_without_a_verdict_says_why(slow: bool, cpus: Any) -> None:
    def read(number: Any) -> Any:
        time.sleep(0.1 if slow else 0.0)  # far longer than a step, also on a busy machine
        return number

    numbers = tf.data.Dataset.range(15).map(
        lambda number: tf.ensure_shape(tf.py_function(read, [number], tf.int64), ())
    )
    data = numbers.map(lambda number: tf.cast(number, tf.float32) * tf.ones((8, 4)))
    if not slow:
        data = data.cache()
    monitor = Monitor()
    late = keras.callbacks.LambdaCallback(on_train_batch_begin=lambda batch, logs: time.sleep(0.0 if slow else 0.1))
    model().fit(data.map(lambda x: (x, x[:, 0])), epochs=3, verbose=0, shuffle=False, callbacks=[monitor, late])
    assert monitor.run is not None
    found = of_run(monitor.run)
    summary = events(monitor.run, "finished")[0]["summary"]
    assert (summary["input_wait"] > 0.6) if slow else (summary["input_wait"] < 0.2)
    assert found.verdict == ("input_bound" if slow else "undecided")
    assert slow or "Monitor measures no other part of a step" in found.sentence
    told = " ".join(str(remedy["reason"]) for remedy in found.remedies)
    assert ("prefetch(tf.data.AUTOTUNE)" if slow else "gputui init writes one") in told
    assert not any(remedy["changes"] for remedy in found.remedies)
    assert next_step(found) == "", "tune cannot try anything with a script"


def test_each_fit_is_a_run_of_its_own_and_early_stopping_ends_it_as_done(cpus: Any) -> None:
    made, monitor = model(), Monitor("twice")
    stop = keras.callbacks.EarlyStopping("loss", patience=0, min_delta=1e9)
    made.fit(X, X[:, 0], epochs=9, verbose=0, callbacks=[monitor, stop])
    first = monitor.run
    made.fit(X, X[:, 0], epochs=1, verbose=0, callbacks=[monitor])
    assert first is not None
    assert monitor.run is not None
    assert first.id != monitor.run.id
    assert (first.state, monitor.run.state) == ("ok", "ok")
    assert len(events(first, "epoch")) == 2


# ---- fits that are no plain ones ----------------------------------------------------------------------


class Interrupts(keras.callbacks.Callback):  # type: ignore[misc]
    """Ctrl-C in the second epoch."""

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        if epoch == 1:
            raise KeyboardInterrupt


def interrupted(monitor: Monitor) -> Run:
    with pytest.raises(KeyboardInterrupt):
        model().fit(X, X[:, 0], epochs=2, verbose=0, callbacks=[monitor, Interrupts()])
    run: Run | None = monitor.run
    assert run is not None
    return run


def test_an_interrupted_fit_is_noticed_without_another(cpus: Any) -> None:
    run = interrupted(Monitor("gone"))
    until(lambda: run.state != "running")
    assert run.state == "error"
    for thread in [thread for thread in threading.enumerate() if thread.name == "heartbeat"]:
        thread.join(60)
        assert not thread.is_alive()
    # Another Monitor listens again where the gone one did.

    def stop(epoch: int, logs: Any) -> None:
        for _ in range(3):  # as a scheduler may send it
            os.kill(os.getpid(), signal.SIGTERM)

    stops = keras.callbacks.LambdaCallback(on_epoch_begin=stop)
    monitor = Monitor("stopped")
    model().fit(X, X[:, 0], epochs=50, verbose=0, callbacks=[monitor, stops], batch_size=64)
    assert events(monitor.run, "finished")[0]["outcome"] == "stopped"
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL


KILLED = """
import os, signal, time
import keras, numpy as np
from gputui.engine import Monitor

class Fails(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None): raise ValueError
model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
model.compile("sgd", "mse")
try:
    model.fit(np.zeros((64, 4)), np.zeros(64), verbose=0, callbacks=[Monitor(), Fails()])
except ValueError:
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(30)
"""


def test_kill_ends_a_script_whose_fit_has_failed(forks: Forks, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(KILLED)
    home = {"GPUTUI_HOME": os.environ["GPUTUI_HOME"]}
    script = Program(str(tmp_path), str(tmp_path / "train.out"), ["train.py"], environment=home, of_gputui=True)
    assert forks.codes(script) == [-signal.SIGTERM], (tmp_path / "train.out").read_text()


@pytest.mark.parametrize(("seconds", "ends"), [((0.0, 29.9), False), ((0.0, 30.0), True)])
def test_a_script_whose_fit_does_not_stop_within_half_a_minute_is_ended(
    seconds: tuple[float, float], ends: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[Any] = []
    now = [100.0]
    fit: Any = SimpleNamespace(runs=lambda: True, forget=lambda: None)
    monkeypatch.setattr(signal, "getsignal", lambda number: signal.SIG_DFL)
    handlers: dict[int, Any] = {}
    monkeypatch.setattr(signal, "signal", handlers.__setitem__)
    clock = RunClock(100.0, steady())
    life = Life(Run(tmp_path), 3600.0, fit, lambda: done.append("stop"), lambda: None, clock)
    life.begin()
    monkeypatch.setattr(monitor_callback, "time", SimpleNamespace(monotonic=lambda: now[0], time=time.time))
    monkeypatch.setattr(os, "kill", lambda pid, number: done.append((pid == os.getpid(), number)))
    term, person = handlers[signal.SIGTERM], handlers[stop_signals.BY_PERSON]
    for second in seconds:
        now[0] = 100.0 + second
        term(signal.SIGTERM, None)
    killed = (True, signal.SIGTERM)
    assert done == ["stop", killed if ends else "stop"]
    assert handlers[signal.SIGTERM] == (signal.SIG_DFL if ends else term)
    done.clear()
    person(stop_signals.BY_PERSON, None)
    assert done == [], "SIGTERM comes with it"
    person(stop_signals.BY_PERSON, None)
    assert done == [killed]
    status = json.loads((tmp_path / "status.json").read_text())
    assert (status["phase"], status["stop_requests"], status["engine_pid"]) == ("training", 0, os.getpid())
    life.end()
    assert json.loads((tmp_path / "status.json").read_text())["phase"] == "ended"
    assert not life.needed
