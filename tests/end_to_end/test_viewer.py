"""A headless viewer whose output is blocked, closed, full or no longer read, and Ctrl-C at any moment."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from gputui.engine import presets, runs
from gputui.engine.runs import Run

from tests.support.front_door import COMMAND, gputui, opened, until
from tests.support.standing_in import stand_in

__all__ = ["stand_in"]

RUN = ["--preset", "quickstart"]
PRINT = ("presets", "presets schema", "runs --json", "guide", "options xla", "--version", "--help")

pytestmark = pytest.mark.usefixtures("nothing_left_running", "stand_in")


def the_run() -> Run:
    until(runs.all_runs)
    return runs.find("latest")


def training() -> Run:
    run = the_run()
    until(lambda: run.state == "running" and run.status.get("phase") == "training")
    return run


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


@pytest.mark.parametrize("wait_seconds", [0.0, 0.05, 0.2, None])
def test_ctrl_c_as_the_run_starts_or_trains_stops_it(wait_seconds: float | None) -> None:
    viewer = opened(*RUN)
    if wait_seconds is None:
        run = training()
    else:
        run = the_run()
        time.sleep(wait_seconds)
    viewer.send_signal(signal.SIGINT)
    out, err = viewer.communicate(timeout=60)
    found = run.state, viewer.returncode
    if wait_seconds is None:
        assert found == ("stopped", 130), out + err
    else:  # before there is a trainer that can say that it stopped, the run ends without a result
        assert found in (("stopped", 130), ("crashed", 1)), out + err
    assert "Traceback" not in err
    assert run.id in out


def test_who_reads_only_the_first_line_is_told_that_the_run_goes_on() -> None:
    viewer = opened(*RUN, "--json")
    assert viewer.stdout is not None
    assert viewer.stderr is not None
    viewer.stdout.readline()
    viewer.stdout.close()
    said = viewer.stderr.read()
    viewer.stderr.close()
    run = training()
    assert viewer.wait(120) == 74
    assert said.splitlines() == [
        "standard output cannot be written (nobody reads it)",
        f"{run.name} is still running; show it with: gputui watch {run.name}",
    ]


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


INTERRUPTED_IMPORT = """
import os, signal, sys

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
"""


def test_ctrl_c_while_the_command_is_imported_is_no_traceback(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_IMPORT)
    done = gputui("runs", env={**os.environ, "PYTHONPATH": str(tmp_path)})
    assert (done.returncode, done.stderr) == (-signal.SIGINT, "")


def test_closed_descriptors_are_no_obstacle() -> None:
    viewer = subprocess.Popen(["sh", "-c", f"exec {COMMAND[0]} --preset quickstart <&- >&- 2>&-"])
    run = training()
    gputui("stop", run.id)
    assert viewer.wait(120) == 130
    assert run.state == "stopped"
