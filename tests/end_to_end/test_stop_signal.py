"""A scheduler ends a run by a signal: with a checkpoint, and an exit code that says that it can be resumed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import termios
import time
from pathlib import Path

import psutil
import pytest
from gputui.engine import runs
from gputui.engine.runs import Run, checkpoint_files
from gputui.tui.commands.train import AGAIN_SECONDS

from tests.support.front_door import happened, opened, step, until
from tests.support.idle import idle
from tests.support.standing_in import stand_in, training

__all__ = ["stand_in"]

NAMED = ("--preset", "quickstart", "--set", "stop_signal=SIGUSR2")
SAVES = ("--set", "checkpoint=epoch")
# Its batches come through a process of its own, which any signal of a scheduler ends.
LOADS = """
import subprocess, time, keras, numpy as np

class Loads(keras.utils.PyDataset):
    def __init__(self):
        super().__init__()
        self.child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0)
    def __len__(self):
        return 1000
    def __getitem__(self, index):
        time.sleep(0.03)
        self.child.stdin.write(b"x")
        return np.full((4, 4), len(self.child.stdout.read(1)), "float32"), np.ones((4, 1), "float32")

def build(context):
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    return {"model": model, "loss": "mse", "train": Loads()}
"""


def at_work() -> Run:
    def found() -> Run | None:
        return next((run for run in runs.all_runs() if run.status.get("phase") == "training"), None)

    run: Run = until(found)
    return run


def is_active(run: Run) -> None:
    """Wait for the engine's next heartbeat."""
    beat = run.status["heartbeat"]
    until(lambda: run.status["heartbeat"] > beat)


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
        is_active(run)
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
    assert f"gputui resume {run.name}" in out


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_scheduler_may_ask_as_often_as_it_likes(number: int, stand_in: None) -> None:
    with opened("--preset", "quickstart", *SAVES) as command:
        run = at_work()
        engine, trainer = run.process("engine"), run.process("trainer")
        assert engine is not None
        assert trainer is not None
        os.kill(trainer.pid, signal.SIGSTOP)  # it cannot answer before all have been sent
        for sent in range(1, 4):
            for pid in (command.pid, engine.pid):
                os.kill(pid, number)
            until(lambda: run.status.get("stop_requests"))
            is_active(run)
            assert run.alive("trainer"), f"killed by the signal number {sent}"
        assert run.status["asked_by_person"] == 0
        os.kill(trainer.pid, signal.SIGCONT)
        out, err = command.communicate(timeout=60)
    assert command.returncode == 130, (out, err)
    assert out.count("stopping after this step") == 1
    assert "press Ctrl-C" not in out, "nobody is there to press it"
    assert run.result == {"outcome": "stopped"}, "the trainer has written it: it was not ended by force"


def test_a_person_who_presses_ctrl_c_twice_ends_it_at_once(stand_in: None) -> None:
    keyboard, terminal = pty.openpty()

    def at_a_terminal() -> None:
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    arguments = ("--preset", "quickstart", *SAVES)
    with opened(*arguments, start_new_session=True, preexec_fn=at_a_terminal) as command:
        run = at_work()
        trainer = run.process("trainer")
        assert trainer is not None
        os.kill(trainer.pid, signal.SIGSTOP)
        for _ in range(2):  # a launcher may double it
            os.write(keyboard, b"\x03")
        until(lambda: run.status.get("asked_by_person"))
        time.sleep(AGAIN_SECONDS)  # what a person takes to press it again
        assert run.status["asked_by_person"] == 1
        os.write(keyboard, b"\x03")
        out, err = command.communicate(timeout=20)
    os.close(keyboard)
    os.close(terminal)
    assert command.returncode == 130, (out, err)
    assert "press Ctrl-C again to end it at once" in out
    assert (run.result or {})["error"]["message"] == "ended by force, as it did not respond to the request to stop"


@pytest.mark.usefixtures("forked_trainers")
def test_all_processes_of_a_training_that_get_sigterm_several_times_leave_its_last_step(tmp_path: Path) -> None:
    (tmp_path / "loads.py").write_text(LOADS)
    (tmp_path / "own.yaml").write_text(
        "workload: {entry: 'loads.py:build'}\ntrain: {validation_split: 0, epochs: 50}\n"
    )
    with opened("--preset", str(tmp_path / "own.yaml"), "--set", "checkpoint=1000") as command:
        run = at_work()
        until(lambda: step(run) > 3)
        roles = [process for role in ("engine", "trainer") if (process := run.process(role)) is not None]
        trainer = psutil.Process(roles[-1].pid)
        pids = [command.pid, *(process.pid for process in roles), *(child.pid for child in trainer.children(True))]
        assert len(pids) >= 4
        for _ in range(3):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGTERM)
            time.sleep(0.1)  # of the test: three times within a second
        out, err = command.communicate(timeout=120)
    assert command.returncode == 130, (out, err)
    result = run.result or {}
    assert (result["outcome"], result["error"]) == ("stopped", None)
    assert checkpoint_files.steps_in(run.file("checkpoints")) == [result["steps"]]


def test_a_second_stop_kills_a_trainer_that_does_not_answer_at_once(stand_in: None) -> None:
    """After a single one it would have 30 s."""
    run = training()
    trainer = run.process("trainer")
    assert trainer is not None
    os.kill(trainer.pid, signal.SIGSTOP)
    runs.request_stop(run)
    until(lambda: run.status.get("stop_requests") == 1)
    began = time.monotonic()
    runs.request_stop(run)
    until(lambda: not run.alive("engine"))
    assert time.monotonic() - began < 20
