"""Finds and ends all descendants of this process: the processes that it or its descendants have started. The trainer
may be killed at any moment and then cleans up nothing; the engine adopts its orphans (on Linux only).
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from . import descendants

_MOST_PARENTS = 32
_STATE, _PARENT, _START = 0, 1, 19  # fields of /proc/PID/stat (proc(5)), counted from 0 after the name


@dataclass(frozen=True)
class Descendant:
    """`ended` means not waited for yet. `start_ticks` tells it from a later process with the same id."""

    pid: int
    parent: int
    name: str
    ended: bool
    start_ticks: int

    def send(self, number: int) -> None:
        """Nothing is done if it has ended or belongs to another user."""
        now = _read(self.pid)
        if now is not None and now.start_ticks == self.start_ticks and not now.ended:
            with suppress(OSError):
                os.kill(self.pid, number)

    def end(self) -> None:
        """SIGTERM, and SIGCONT, as a stopped process cannot react."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)


def all_now(apart: Collection[int] = ()) -> list[Descendant]:
    """Return also those that have not been waited for, but not `apart` and their descendants; none without /proc."""
    children: dict[int, list[Descendant]] = {}
    for pid in _pids():
        if pid not in apart and (process := _read(pid)) is not None:
            children.setdefault(process.parent, []).append(process)
    return _below(os.getpid(), children)


def descends(pid: int, ancestors: Collection[int]) -> bool:
    """Return True if `pid` is one of `ancestors` or below, or if a process between has ended, which hides it."""
    for _ in range(_MOST_PARENTS):
        if pid in ancestors or (process := _read(pid)) is None:
            return True
        pid = process.parent
        if pid <= 1:
            return False
    return True


def _below(pid: int, children: dict[int, list[Descendant]]) -> list[Descendant]:
    direct = children.pop(pid, [])
    return [*direct, *(below for child in direct for below in _below(child.pid, children))]


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _read(pid: int) -> Descendant | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")  # the name may contain spaces and brackets
    fields = tail.split()
    if len(fields) <= _START:
        return None
    name = head.partition("(")[2]
    return Descendant(pid, int(fields[_PARENT]), name, fields[_STATE] in "ZX", int(fields[_START]))


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
        process.end()
    if not _gone_within(TERM_SECONDS, spared, apart):
        until = time.monotonic() + KILL_SECONDS
        while (left := _still_running(spared, apart)) and time.monotonic() < until:
            for process in left:
                process.send(signal.SIGKILL)
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


def _still_running(spared: int, apart: Collection[int]) -> list[Descendant]:
    """Collects the exit status of children that have ended."""
    running = []
    for process in descendants.all_now(apart):
        if process.pid == spared:
            continue
        if not process.ended:
            running.append(process)
        elif process.parent == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
    return running
