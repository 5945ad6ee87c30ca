"""Finds and ends all descendants of this process. The trainer may be killed at any moment and then cleans up nothing;
the engine adopts its orphans (on Linux only).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Sequence

from . import proc
from .proc import Stat

_MOST_PARENTS = 32


def descends(pid: int, ancestors: Collection[int]) -> bool:
    """Return True if `pid` is one of `ancestors` or below, or if a process between has ended, which hides it."""
    with contextlib.suppress(OSError):
        for _ in range(_MOST_PARENTS):
            if pid in ancestors or (process := proc.stat(pid)) is None:
                return True
            pid = process.parent
            if pid <= 1:
                return False
    return True


def _below(pid: int, children: dict[int, list[Stat]]) -> list[Stat]:
    direct = children.pop(pid, [])
    return [*direct, *(below for child in direct for below in _below(child.pid, children))]


def send(process: Stat, number: int) -> None:
    """Nothing is done if it has ended or belongs to another user."""
    with contextlib.suppress(OSError):
        now = proc.stat(process.pid)
        if now is not None and now.start_ticks == process.start_ticks and not now.ended:
            os.kill(process.pid, number)


# ---- ending them ---------------------------------------------------------------------------------


LEAVE_SECONDS = 1.0  # grace period for processes that end by themselves after the trainer, such as a resource tracker
TERM_SECONDS = 3.0
KILL_SECONDS = 2.0
HINT = "end them in your code, or start outside of the run whatever is to outlive it"
_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h
_TICK_SECONDS = 0.05


def adopt_orphans() -> None:
    """From now on, every descendant whose parent ends becomes a child of this process (on Linux)."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def collect_dead(trainer: int) -> None:
    """Reap adopted processes, up to the trainer, whose status is left to the code that waits for it."""
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and dead.si_pid != trainer:
            os.waitpid(dead.si_pid, os.WNOHANG)


def end_descendants(spared: int = 0, apart: Collection[int] = ()) -> list[str]:
    """Wait 1 s, then SIGTERM, and SIGKILL after 3 s more. Return the names of those that were asked. Processes that
    they start meanwhile are ended, too, but not `spared`, and not `apart` and their descendants.
    """
    _gone_within(LEAVE_SECONDS, spared, apart)
    left = _still_running(spared, apart)
    names = [f"{process.name} (pid {process.pid})" for process in left]
    for process in left:
        send(process, signal.SIGTERM)
        send(process, signal.SIGCONT)  # if it is stopped, it cannot react before
    if not _gone_within(TERM_SECONDS, spared, apart):
        until = time.monotonic() + KILL_SECONDS
        while (left := _still_running(spared, apart)) and time.monotonic() < until:
            for process in left:
                send(process, signal.SIGKILL)
            time.sleep(_TICK_SECONDS)
    return names


def describe(names: Sequence[str]) -> str:
    """At most five names are shown."""
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    which = "1 process that was" if len(names) == 1 else f"{len(names)} processes that were"
    return f"{which} started in this run outlived it and had to be ended: {shown}"


def _gone_within(seconds: float, spared: int, apart: Collection[int]) -> bool:
    for _ in range(round(seconds / _TICK_SECONDS)):
        if not _still_running(spared, apart):
            return True
        time.sleep(_TICK_SECONDS)
    return not _still_running(spared, apart)


def _still_running(spared: int, apart: Collection[int]) -> list[Stat]:
    """Collects the exit status of children that have ended."""
    children: dict[int, list[Stat]] = {}
    for process in proc.all_stats():
        if process.pid not in apart:
            children.setdefault(process.parent, []).append(process)
    running = []
    for process in _below(os.getpid(), children):
        if process.pid == spared:
            continue
        if not process.ended:
            running.append(process)
        elif process.parent == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
    return running
