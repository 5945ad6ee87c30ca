"""Engines that wait, with a trainer, for a run that may never come."""

from __future__ import annotations

import errno
import signal

import psutil
import pytest
from gputui.engine import presets, runs
from gputui.engine.process import launch
from gputui.engine.runs import Run

from tests.support.front_door import until
from tests.support.standing_in import engines_of, kept, stand_in

__all__ = ["stand_in"]

pytestmark = pytest.mark.usefixtures("nothing_left_running")


def stopped(run: Run) -> None:
    """Ask it to stop, and wait until it has."""
    runs.request_stop(run)
    until(lambda: not run.alive("engine"))


def test_a_warm_trainer_that_was_killed_is_replaced(stand_in: None) -> None:
    warm = launch.Warm()
    (waiting,) = until(lambda: psutil.Process(warm.process.pid).children())
    until(lambda: "--warm" in waiting.cmdline())
    waiting.kill()
    until(lambda: waiting.status() == psutil.STATUS_ZOMBIE)  # until then it could still be given the run
    run, engine = warm.start(presets.resolve("quickstart"))
    kept(engine)
    until(lambda: run.status.get("phase") == "training")
    assert engine.pid == run.status["engine_pid"]
    assert any("a new one is started" in line for line in run.log_tail())
    stopped(run)
    engine.wait(60)


def test_a_warm_engine_takes_one_run_and_one_that_nobody_wants_goes(stand_in: None) -> None:
    unwanted, warm = launch.Warm(), launch.Warm()
    waiting = warm.process.pid
    unwanted.close()
    (run, engine), (again, cold) = (warm.start(presets.resolve("quickstart")) for _ in range(2))
    for one, of_it in ((run, engine), (again, cold)):  # the warm engine is taken: a cold one starts
        kept(of_it)
        until(lambda: one.status.get("phase") == "training")  # noqa: B023
        assert of_it.pid == one.status["engine_pid"]
        stopped(one)
        of_it.wait(60)
    assert engine.pid == waiting != cold.pid
    unwanted.process.wait(60)


def test_a_warm_engine_that_does_not_answer_is_replaced(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "ANSWER_SECONDS", 0.5)
    warm = launch.Warm()
    warm.process.send_signal(signal.SIGSTOP)
    run, engine = warm.start(presets.resolve("quickstart"))
    kept(engine)
    until(lambda: run.status.get("phase") == "training")
    assert engines_of(run) == [engine.pid]
    stopped(run)
    engine.wait(60)


def test_a_run_whose_engine_cannot_be_started_leaves_no_folder(stand_in: None, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_process(*_given: object) -> None:
        raise BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable")

    warm = launch.Warm()
    warm.close()
    monkeypatch.setattr(launch, "spawn", no_process)
    with pytest.raises(BlockingIOError):
        warm.start(presets.resolve("quickstart"))
    assert not runs.all_runs()
    warm.process.wait(60)
