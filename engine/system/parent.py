"""Binds a process to the life of the one that starts it, until it can watch for that one's end itself (on Linux only).

An interpreter can hang before it runs any of gputui's code, in a sitecustomize.py for instance.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

from . import own_python

NOT_RUN = "gputui: cannot be run: "  # what a command that cannot be started prints where another program has become it
_SET_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of linux/prctl.h; the signal comes when the thread that has forked ends
# A program that binds itself and then becomes its command. It is alone in its process, and has no sitecustomize.py.
_BINDS = f"""
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl({_SET_DEATH_SIGNAL}, signal.SIGKILL, 0, 0, 0)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
signal.signal(signal.SIGPIPE, signal.SIG_DFL)
signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as fault:
    sys.exit({NOT_RUN!r} + fault.strerror)
"""


def start(command: Sequence[str], **more: Any) -> subprocess.Popen[Any]:
    """Start a process that is killed with this one, or with the thread that calls this; `more` is for Popen.

    Raises OSError; where this process has several threads, the new one prints NOT_RUN and the reason instead.
    """
    bind = binding()
    if bind is None and sys.platform == "linux":
        command = [own_python.path(), "-I", "-S", "-c", _BINDS, str(os.getpid()), *command]
    return subprocess.Popen(command, preexec_fn=bind, **more)


def binding() -> Callable[[], None] | None:
    """For subprocess' `preexec_fn`: a new process calls it before its program starts, and is killed with this one.

    None where this process has more threads than one: a child of these can run no Python before its program.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return None
    this = os.getpid()

    def bind() -> None:
        _set_death_signal(signal.SIGKILL)
        if os.getppid() != this:  # it has ended meanwhile
            os._exit(1)

    return bind


def release() -> None:
    """Called in the new process, which watches for the other's end from now on."""
    if sys.platform == "linux":
        _set_death_signal(0)


def _set_death_signal(number: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0)
