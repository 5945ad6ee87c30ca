"""gputui in a real terminal, from the first look to the last."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.doors.engine import entries, gpu_use, locks, records, runs
from tests.end_to_end.terminal import Terminal, needs_tmux, terminal
from tests.support.front_door import COMMAND, ended, gputui, step, until
from tests.support.idle import idle
from tests.support.standing_in import stand_in as stand_in

pytestmark = [needs_tmux, pytest.mark.usefixtures("nothing_left_running")]


def interface(window: Terminal) -> psutil.Process:
    """The gputui process in a window."""
    found: psutil.Process = until(
        lambda: next((p for p in psutil.Process(window.pid).children() if "gputui" in " ".join(p.cmdline())), None)
    )
    return found


@pytest.mark.slow
def test_open_load_start_watch_finish_find_it_again_and_quit() -> None:
    with terminal() as window:
        window.shows("device", "quickstart", "Start")
        window.type("o")
        window.shows("safe-memory", "input-heavy")
        window.type("Enter")
        window.shows("memory_growth", "global batch")
        window.type("r")
        window.shows("throughput", "samples/s", "loss", "input wait", "no GPU")
        seen = window.shows("done", "epoch 6/6", "step 270/270")
        assert "accuracy" in seen
        window.resize(80, 24)
        window.shows("done", "step 270/270")
        window.resize(120, 40)
        window.type("F4")
        run = runs.find("latest")
        window.shows(run.id, "done", "samples/s")
        window.type("C-q")
        assert "exit code 0" in window.shows("exit code")
        assert "Traceback" not in window.screen
    assert ended(run)["outcome"] == "ok"


def _has_ended(process: psutil.Process) -> bool:
    try:
        return process.status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


def killed_screen(window: Terminal, number: signal.Signals) -> None:
    """Kill the gputui of a window; its run goes on."""
    run, screen = runs.find("latest"), interface(window)
    os.kill(screen.pid, number)
    until(lambda: _has_ended(screen))
    before = step(run)
    until(lambda: step(run) > before + 20)


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_a_run_outlives_its_screens_and_is_seen_again_with_its_history() -> None:
    own = Path(os.environ["XDG_CONFIG_HOME"]) / "gputui" / "presets"
    own.mkdir(parents=True)
    idle(own, name="long")
    forked: dict[str, Any] = {**os.environ, "GPUTUI_WARM": "0"}
    with terminal(**forked) as window:
        window.shows("quickstart", "Start")
        window.type("o")
        window.shows("long")
        window.type(*"long", "Enter")
        window.shows("Long enough", "global batch")
        window.still()
        window.type("r")
        window.shows("throughput", "training")
        run = runs.find("latest")
        until(lambda: step(run) > 1)
        killed_screen(window, signal.SIGKILL)
    with terminal("watch") as window:
        window.shows("r1 long", "training", "samples/s")
        killed_screen(window, signal.SIGHUP)
    with terminal("watch") as window:
        window.shows("r1 long", "training", "samples/s")
        window.type("C-q")
        shown = " ".join(window.shows("exit code").split())
        assert f"long goes on: gputui watch {run.name} shows it again" in shown, shown
    gputui("stop", run.id)
    assert ended(run)["outcome"] == "stopped"


@pytest.mark.slow
@pytest.mark.usefixtures("stand_in")
def test_a_run_that_waits_when_its_user_logs_out_has_begun_when_they_come_back() -> None:
    """Queued by its key, seen by the command in the same terminal, and started although nobody looks."""
    passed = ("PYTHONPATH", "GPUTUI_LEASES", "GPUTUI_IDLE_SECONDS")
    own: dict[str, Any] = {name: os.environ[name] for name in passed} | {"GPUTUI_WARM": "0"}
    (held,) = gpu_use.take([records.CPU], "digits")
    with terminal(size=(80, 24), then="exec sh", **own) as window:
        window.shows("quickstart", "Start")
        window.still()
        window.type("Q")
        window.shows("place 1 in the queue, needs the CPU")
        window.type("C-q")
        window.shows("1 job waits in the queue: gputui queue shows why", "exit code 0")
        window.type(f"clear; {shlex.join(COMMAND)} queue", "Enter")
        window.shows("waiting", "needs the CPU; used by", "'s digits since")
    run = runs.find("latest")
    assert run.state == "waiting"
    held.release()
    until(lambda: run.state == "running")
    with terminal(size=(80, 24), **own) as window:
        window.shows("Live ▶1")
        window.type("F4")
        window.shows(run.id, "running")
        window.type("C-q")
        assert "goes on: gputui watch" in " ".join(window.shows("exit code").split())
    gputui("stop", run.id)
    assert ended(run)["outcome"] == "stopped"
    until(lambda: not entries.all_entries() and not locks.held(entries.queue_folder() / entries.RUNNER_LOCK))


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path, so that the lines of a dialog that name it break at the same words everywhere."""
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def test_a_file_is_edited_and_read_again(folder: Path) -> None:
    preset, steps, editor = folder / "mine.yaml", folder / "steps", folder / "editor"
    preset.write_text("# mine\ninput: {batch_size: 48}\n")
    editor.write_text(f'#!/bin/sh\necho "EDITING $1"\nexec sh {steps} "$1"\n')
    editor.chmod(0o755)

    def does(script: str) -> None:
        steps.write_text(script)

    with terminal(str(preset), VISUAL=str(editor), GPUTUI_WARM="0") as window:
        window.shows("mine", "batch_size", "48")
        does("sed -i s/48/96/ $1")
        window.type("E")
        window.has_said("is read again")
        window.shows("96")
        does("sed -i s/96/many/ $1")
        window.type("E")
        window.shows("mine.yaml:2:", "'many'", "input: {batch_size: many}", "Back")
        does("read line; sed -i s/many/128/ $1")  # waits as a person does, and Ctrl-C is the editor's own
        window.still()
        window.type("e")
        window.shows("EDITING")
        window.type("Enter")
        window.has_said("is read again")
        window.shows("128")
        does("exit 3")
        window.type("E")
        window.shows("ended with exit code 3")
        does("true")
        while "is not changed so far" not in window.screen:  # an editor that is back at once may take longer here
            window.type("E")
            with contextlib.suppress(AssertionError):
                window.shows("is not changed so far", seconds=15)
        does("trap : INT; while ! test -e $1.go; do sleep 0.1; done; sed -i s/128/160/ $1")
        window.type("E")
        window.shows("EDITING")
        window.type("C-c")
        (folder / "mine.yaml.go").touch()
        window.shows("160")
        window.type("C-q")
        window.shows("exit code 0")
