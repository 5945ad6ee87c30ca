"""Whether a watched fit still runs, the signals it takes from its script and gives back, and its readings."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.runs import Run
from gputui.engine.system import locks, stop_signals
from gputui.engine.system.run_clock import RunClock
from gputui.engine.trainer.monitor import fit_life
from gputui.engine.trainer.monitor.fit_life import Fit, Life

# ---- whether it still runs ---------------------------------------------------------------------


def test_a_fit_is_known_by_its_frame_until_it_returns() -> None:
    def fit(size: Any) -> tuple[Fit, Any, bool]:
        epoch_iterator = SimpleNamespace(data_adapter=SimpleNamespace(batch_size=size))
        assert epoch_iterator
        made = Fit()
        return made, made.batch_size(), made.runs()

    for size, known in ((32, 32), (0, None), (None, None), ("32", None)):
        made, found, runs = fit(size)
        assert (found, runs, made.runs()) == (known, True, False)
    made.forget()
    assert (made.batch_size(), made.runs()) == (None, False)
    loop = Fit()
    assert (loop.batch_size(), loop.runs()) == (None, True), "a loop of one's own"


# ---- signals -----------------------------------------------------------------------------------


class Signals:
    """The handlers of this process, which the tests leave alone."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.handlers: dict[int, Any] = {signal.SIGTERM: signal.SIG_DFL, stop_signals.BY_PERSON: signal.SIG_DFL}
        monkeypatch.setattr(signal, "signal", self.handlers.__setitem__)
        monkeypatch.setattr(signal, "getsignal", self.handlers.__getitem__)

    @property
    def both(self) -> tuple[Any, Any]:
        return self.handlers[signal.SIGTERM], self.handlers[stop_signals.BY_PERSON]


@pytest.fixture
def signals(monkeypatch: pytest.MonkeyPatch) -> Signals:
    return Signals(monkeypatch)


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Callable[..., Life]]:
    lives: list[Life] = []

    def begin(runs: Callable[[], bool] = lambda: True, gone: Callable[[], None] = lambda: None) -> Life:
        run = Run(tmp_path / str(len(lives)))
        run.path.mkdir()
        fit: Any = SimpleNamespace(runs=runs, forget=lambda: run.path.joinpath("forgotten").touch())
        lives.append(Life(run, 3600.0, fit, lambda: None, gone, RunClock.launched()))
        lives[-1].begin()
        return lives[-1]

    yield begin
    for life in lives:
        if not life._done.is_set():
            life.end()


DEFAULT: Any = signal.SIG_DFL


theirs: Any = signal.default_int_handler  # stands for a handler of the script's own


def test_the_stop_signals_are_taken_while_a_fit_runs_and_given_back(signals: Signals, live: Any) -> None:
    first = live()
    assert signals.both == (first._on_signal, first._on_person)
    second = live()
    assert signals.both == (first._on_signal, first._on_person), "those of a fit that runs stay"
    second.end()
    assert signals.both == (first._on_signal, first._on_person)
    first.end()
    assert signals.both == (DEFAULT, DEFAULT)


def test_handlers_of_the_script_stay(signals: Signals, live: Any) -> None:
    signals.handlers[signal.SIGTERM] = theirs
    live().end()
    assert signals.both == (theirs, DEFAULT)
    signals.handlers.update({signal.SIGTERM: DEFAULT, stop_signals.BY_PERSON: theirs})
    life = live()
    assert signals.both == (life._on_signal, theirs)
    life.end()
    assert signals.both == (DEFAULT, theirs)
    life = live()
    signals.handlers.update({signal.SIGTERM: theirs, stop_signals.BY_PERSON: theirs})  # meanwhile
    life.end()
    assert signals.both == (theirs, theirs)


def test_another_fit_takes_the_signals_that_an_ended_one_has_left(signals: Signals, live: Any) -> None:
    here = [True]
    left = live(runs=lambda: here[0])
    here[0] = False  # it was interrupted
    life = live()
    assert signals.both == (life._on_signal, life._on_person)
    left.end()
    assert signals.both == (life._on_signal, life._on_person)


def test_in_another_thread_no_signal_is_taken(signals: Signals, live: Any) -> None:
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(live()))
    thread.start()
    thread.join()
    found[0].end()
    assert signals.both == (DEFAULT, DEFAULT)


def test_readings_are_taken_as_often_as_asked_for_until_the_fit_ends(
    signals: Signals, live: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: list[Any] = []

    class Samples:
        def __init__(self, writer: Any, pid: int, seconds: float) -> None:
            told.append((writer.closed, pid, seconds))

        def start(self) -> None:
            told.append("start")

        def stop(self) -> None:
            told.append("stop")

    class Writer:
        closed = False

        def __init__(self, *_: Any) -> None:
            pass

        def close(self) -> None:
            told.append("close")

    monkeypatch.setattr(fit_life, "Sampler", Samples)
    monkeypatch.setattr(fit_life, "EventWriter", Writer)
    life = live()
    assert told == [(False, os.getpid(), 3600.0), "start"]
    life.end()
    assert told[2:] == ["stop", "close"]


def test_a_fit_that_is_gone_is_noticed_and_its_status_is_written(
    signals: Signals, live: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_life, "HEARTBEAT_SECONDS", 0.01)
    here, gone = [True], threading.Event()
    life = live(runs=lambda: here[0], gone=gone.set)
    file = tmp_path / "0" / "status.json"
    status = json.loads(file.read_text())
    assert (status["phase"], status["engine_pid"], status["trainer_pid"]) == ("training", os.getpid(), os.getpid())
    first = status["heartbeat"]
    while json.loads(file.read_text())["heartbeat"] == first:
        time.sleep(0.005)
    assert not gone.is_set()
    here[0] = False
    assert gone.wait(60)
    assert locks.held(tmp_path / "0" / locks.ENGINE_LOCK)
    life.end()
    assert not locks.held(tmp_path / "0" / locks.ENGINE_LOCK)
    assert (tmp_path / "0" / "forgotten").exists(), "its frame holds the data of the fit"
    ended = json.loads(file.read_text())
    assert ended == {"phase": "ended", "heartbeat": ended["heartbeat"], "stop_requests": 0}
