"""Finds and ends processes that a training has started and that outlive it.

The trainer may be killed at any moment and then cleans up nothing. The engine adopts the trainer's orphans (on Linux
only), so that it can end them after the trainer.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
from collections.abc import Sequence

from . import descendants
from .descendants import Descendant

LEAVE_SECONDS = 1.0  # grace period for processes that end by themselves after the trainer, such as a resource tracker
TERM_SECONDS = 3.0
KILL_SECONDS = 2.0
HINT = "end them in your code, or start outside of the run whatever is to outlive it"
_SET_CHILD_SUBREAPER = 36  # from linux/prctl.h
_TICK_SECONDS = 0.05


def adopt_orphans() -> None:
    """Make every descendant whose parent ends a child of this process from now on."""
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def collect_dead(trainer: int) -> None:
    """Collect the exit status of adopted processes that have ended; without that they stay in the process table.

    The trainer is the only child that the engine has started itself; its status is left to the code that waits for it.
    """
    with contextlib.suppress(ChildProcessError):
        while (dead := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)) and dead.si_pid != trainer:
            os.waitpid(dead.si_pid, os.WNOHANG)


def end_descendants(spared: int = 0) -> list[str]:
    """End every descendant, by request and later by force; returns the names of those that had to be ended.

    Processes that they start meanwhile are ended, too. Nothing more is done to the one whose process id is `spared`.
    """
    _gone_within(LEAVE_SECONDS, spared)
    left = _below(spared)
    names = [f"{process.name} (pid {process.pid})" for process in left]
    for process in left:
        process.end()
    if not _gone_within(TERM_SECONDS, spared):
        until = time.monotonic() + KILL_SECONDS
        while (left := _below(spared)) and time.monotonic() < until:
            for process in left:
                process.send(signal.SIGKILL)
            time.sleep(_TICK_SECONDS)
    return names


def describe(names: Sequence[str]) -> str:
    """A sentence about the processes that were ended."""
    shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    which = "1 process that was" if len(names) == 1 else f"{len(names)} processes that were"
    return f"{which} started in this run outlived it and had to be ended: {shown}"


def _gone_within(seconds: float, spared: int) -> bool:
    """Looks are counted, not seconds: on a busy machine all of these may be over before the second look."""
    for _ in range(round(seconds / _TICK_SECONDS)):
        if not _below(spared):
            return True
        time.sleep(_TICK_SECONDS)
    return not _below(spared)


def _below(spared: int) -> list[Descendant]:
    """The descendants that still run, but one; those that have ended are collected on the way."""
    found = []
    for process in descendants.all_now():
        if process.pid == spared:
            continue
        if not process.ended:
            found.append(process)
        elif process.parent == os.getpid():
            with contextlib.suppress(ChildProcessError):
                os.waitpid(process.pid, os.WNOHANG)
    return found
