"""gputui in a real terminal, from the first look to the last, with real training."""

from __future__ import annotations

import os
import shlex
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest
from gputui.engine import runs
from gputui.engine.leases import lease
from gputui.engine.queue import entries
from gputui.engine.system import locks

from tests.support.front_door import COMMAND, ended, gputui, step, until
from tests.support.idle import idle
from tests.support.standing_in import stand_in as stand_in
from tests.support.terminal import Terminal, needs_tmux, terminal

pytestmark = [pytest.mark.slow, needs_tmux, pytest.mark.usefixtures("nothing_left_running")]


def interface(window: Terminal) -> psutil.Process:
    """The gputui process in a window."""
    found: psutil.Process = until(
        lambda: next((p for p in psutil.Process(window.pid).children() if "gputui" in " ".join(p.cmdline())), None)
    )
    return found


def test_open_load_start_watch_finish_find_it_again_and_quit() -> None:
    with terminal() as window:
        window.shows("device", "quickstart", "Start")
        window.type("o")
        window.shows("safe-memory", "input-heavy")
        window.type("Enter")
        window.shows("tf32", "global batch")
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


def killed_screen(window: Terminal, number: signal.Signals) -> None:
    """Kill the gputui of a window; its run goes on."""
    run, screen = runs.find("latest"), interface(window)
    os.kill(screen.pid, number)
    until(lambda: not screen.is_running() or screen.status() == psutil.STATUS_ZOMBIE)
    before = step(run)
    until(lambda: step(run) > before + 20)


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
        window.shows(run.id, "training", "samples/s")
        killed_screen(window, signal.SIGHUP)
    with terminal("watch") as window:
        window.shows(run.id, "training", "samples/s")
        window.type("C-q")
        shown = " ".join(window.shows("exit code").split())
        assert f"long goes on: gputui watch {run.name} shows it again" in shown, shown
    gputui("stop", run.id)
    assert ended(run)["outcome"] == "stopped"


@pytest.mark.usefixtures("stand_in")
def test_a_run_that_waits_when_its_user_logs_out_has_begun_when_they_come_back() -> None:
    """Queued by its key, seen by the command in the same terminal, and started although nobody looks."""
    passed = ("PYTHONPATH", "GPUTUI_LEASES", "GPUTUI_IDLE_SECONDS")
    own: dict[str, Any] = {name: os.environ[name] for name in passed} | {"GPUTUI_WARM": "0"}
    (held,) = lease.take([lease.CPU], "digits")
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
