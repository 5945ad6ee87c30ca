"""How a run is stopped: by a scheduler, by a person, while nobody reads its output."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import signal
import subprocess
import termios
import time
from pathlib import Path

import psutil
import pytest

from tests.doors.engine import Run, checkpoint_files, presets, runs
from tests.doors.tui import AGAIN_SECONDS
from tests.support.front_door import COMMAND, opened, step, until

# ---- a scheduler, and a person -------------------------------------------------------------------


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
        os.write(keyboard, b"\x03")
        time.sleep(AGAIN_SECONDS / 3)
        os.write(keyboard, b"\x03")  # a launcher may double it
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


# ---- a viewer whose output is blocked, closed or full --------------------------------------------


RUN = ["--preset", "quickstart"]
PRINT = ("presets", "presets schema", "runs --json", "guide", "options xla", "--version", "--help")


def the_run() -> Run:
    until(runs.all_runs)
    return runs.find("latest")


def training() -> Run:
    run = the_run()
    until(lambda: run.state == "running" and run.status.get("phase") == "training")
    return run


@pytest.mark.usefixtures("nothing_left_running", "stand_in")
def test_ctrl_c_reaches_the_run_although_nobody_reads_the_output() -> None:
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with contextlib.suppress(BlockingIOError):
        while os.write(writer, b"x" * 4096):  # until the pipe is full
            pass
    os.set_blocking(writer, True)
    viewer = subprocess.Popen([*COMMAND, *RUN, "--json"], stdout=writer, stderr=subprocess.DEVNULL)
    os.close(writer)
    try:
        run = training()
        viewer.send_signal(signal.SIGINT)
        until(lambda: run.state == "stopped")
    finally:
        os.close(reader)
        viewer.wait(120)


@pytest.mark.usefixtures("nothing_left_running", "stand_in")
def test_ctrl_c_as_the_run_starts_stops_it() -> None:
    viewer = opened(*RUN)
    run = the_run()
    time.sleep(0.05)
    viewer.send_signal(signal.SIGINT)
    out, err = viewer.communicate(timeout=60)
    # Before there is a trainer that can say that it stopped, the run ends without a result.
    assert (run.state, viewer.returncode) in (("stopped", 130), ("crashed", 1)), out + err
    assert "Traceback" not in err
    assert run.id in out


@pytest.mark.usefixtures("nothing_left_running", "stand_in")
def test_a_full_disk_behind_the_output_is_told() -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *RUN], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False)
        printed = {
            words: subprocess.run(
                [*COMMAND, *words.split()], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
            )
            for words in PRINT
        }
    assert done.returncode == 74
    assert "(No space left on device)" in done.stderr
    assert f"{the_run().name} is still running" in done.stderr
    assert {words: (ended.returncode, ended.stderr) for words, ended in printed.items()} == dict.fromkeys(
        PRINT, (74, "standard output cannot be written (No space left on device)\n")
    )


@pytest.mark.usefixtures("nothing_left_running", "stand_in")
def test_a_reader_that_has_what_it_wants_is_no_failure() -> None:
    run = runs.create("long", presets.resolve("quickstart").to_yaml())
    run.file("engine.log").write_text("a line of the log\n" * 100_000)
    for words in ("logs latest", "guide", "presets"):
        with subprocess.Popen([*COMMAND, *words.split()], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
            assert command.stdout is not None
            assert command.stderr is not None
            command.stdout.read(1)
            command.stdout.close()
            assert (command.stderr.read(), command.wait(60)) == (b"", 0), words
