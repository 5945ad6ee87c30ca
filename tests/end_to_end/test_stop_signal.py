"""A scheduler ends a run by a signal: with a checkpoint, and an exit code that says that it can be resumed."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.runs import Run, checkpoint_files

from tests.support.front_door import happened, opened, step, until
from tests.support.idle import idle
from tests.support.standing_in import stand_in

__all__ = ["stand_in"]

NAMED = ("--preset", "quickstart", "--set", "stop_signal=SIGUSR2")
SAVES = ("--set", "checkpoint=epoch")


def at_work() -> Run:
    def found() -> Run | None:
        return next((run for run in runs.all_runs() if run.status.get("phase") == "training"), None)

    run: Run = until(found)
    return run


@pytest.mark.parametrize("to", ["engine", "all"])
def test_the_signal_that_stop_signal_names_ends_the_run(to: str, stand_in: None) -> None:
    with opened(*NAMED, *SAVES) as command:
        run = at_work()
        engine = run.process("engine")
        assert engine is not None
        for pid in {"engine": [engine.pid], "all": [command.pid, engine.pid] * 2}[to]:
            os.kill(pid, signal.SIGUSR2)
        out, err = command.communicate(timeout=60)
    assert command.returncode == 75, (out, err)
    assert run.state == "stopped"
    assert run.result == {"outcome": "stopped"}, "the trainer has written it: it was not ended by force"
    (warning,) = happened(run, "warning")
    assert warning["message"] == "SIGUSR2 has arrived, which run.stop_signal names: the run ends"


def test_where_nothing_can_be_resumed_or_a_person_stops_it_the_exit_code_is_that_of_a_stop(stand_in: None) -> None:
    for number, checkpoints in ((signal.SIGUSR2, False), (signal.SIGTERM, True)):
        with opened(*NAMED, *SAVES) as command:
            run = at_work()
            if not checkpoints:
                run.file("checkpoints").rename(run.file("gone"))
            command.send_signal(number)
            out, err = command.communicate(timeout=60)
        assert command.returncode == 130, (number, out, err)
        run.file("status.json").unlink()


def test_a_signal_that_nobody_names_is_ignored_by_engine_and_trainer(stand_in: None) -> None:
    with opened("--preset", "quickstart") as command:
        run = at_work()
        for role in ("engine", "trainer"):
            process = run.process(role)
            assert process is not None
            os.kill(process.pid, signal.SIGUSR2)
        beat = run.status["heartbeat"]
        until(lambda: run.status["heartbeat"] > beat)
        assert run.state == "running"
        command.send_signal(signal.SIGTERM)
        command.communicate(timeout=60)
    assert command.returncode == 130


@pytest.mark.usefixtures("forked_trainers")
def test_a_training_that_gets_it_in_all_its_processes_writes_a_checkpoint_of_its_step(tmp_path: Path) -> None:
    with opened("--preset", idle(tmp_path), *SAVES, "--set", "stop_signal=SIGUSR1") as command:
        run = at_work()
        until(lambda: step(run) > 0)
        for process in (run.process("engine"), run.process("trainer")):
            assert process is not None
            os.kill(process.pid, signal.SIGUSR1)
        command.send_signal(signal.SIGUSR1)
        out, err = command.communicate(timeout=120)
    assert command.returncode == 75, (out, err)
    assert run.state == "stopped"
    assert checkpoint_files.steps_in(run.file("checkpoints"))[0] >= step(run)
    assert f"gputui resume {run.id}" in out
