"""Child processes: on Linux bound to the life of the process that starts them until they can watch for its end
themselves, as an interpreter can hang before it runs gputui's code (sitecustomize.py), or taken over from another
program by exec.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Generic, TypeVar

from . import stop_signals

NOT_RUN = "gputui: cannot be run: "  # what a command that cannot be started prints if another program has become it
NOT_STARTED = 127  # the exit code of a command that cannot be started, as in a shell
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
    """The kernel kills the process when this one, or the thread that calls, ends (on Linux only). Raises OSError; with
    several threads the new process prints NOT_RUN and the reason instead.
    """
    bind = binding()
    if bind is None and sys.platform == "linux":
        command = [own_python(), "-I", "-S", "-c", _BINDS, str(os.getpid()), *command]
    return subprocess.Popen(command, preexec_fn=bind, **more)


def start_session(log: Path, *words: str, **more: Any) -> subprocess.Popen[bytes]:
    """Start a module of gputui (`words`, with its arguments) in a session of its own, with its output at the end of
    `log`. Requests to stop wait until it calls `let_through`. Raises OSError.
    """
    # -P: a file in the current folder must not replace one of gputui's modules.
    command = [sys.executable, "-P", "-m", *words]
    with log.open("ab") as out, stop_signals.held():
        return subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, start_new_session=True, **more
        )


def binding() -> Callable[[], None] | None:
    """Return a `preexec_fn` that binds the new process' life to this one's. None on other systems than Linux, and if
    this process has several threads, as its child then cannot run Python code before its program.
    """
    if sys.platform != "linux" or threading.active_count() > 1:
        return None
    this = os.getpid()

    def bind() -> None:
        _set_death_signal(signal.SIGKILL)
        if os.getppid() != this:  # the parent has ended meanwhile
            os._exit(1)

    return bind


def release() -> None:
    """Let this process outlive its parent, which has started it by `start`, and for whose end it now watches."""
    if sys.platform == "linux":
        _set_death_signal(0)


def _set_death_signal(number: int) -> None:
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_SET_DEATH_SIGNAL, number, 0, 0, 0)


# ---- a process that was started by the program whose process id this one has taken over by exec --


_LOOK_SECONDS = 0.02


class Child:
    """The methods of `subprocess.Popen` for a child of the program that became this process by exec."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """The exit code, or the negative number of the signal; None while it runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return the exit code as `poll` does. Raises TimeoutExpired."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if (left := until - time.monotonic()) <= 0:
                raise subprocess.TimeoutExpired(str(self.pid), timeout)
            time.sleep(min(left, _LOOK_SECONDS))
        return code

    def send_signal(self, number: int) -> None:
        """No other process gets its id before `wait` or `poll` has returned its exit code."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


# ---- the interpreter in which gputui itself is installed -----------------------------------------


OWN_PYTHON = "GPUTUI_OWN_PYTHON"  # environment variable of a trainer that runs in another interpreter


def own_python() -> str:
    """The interpreter in which gputui is installed, also if this process runs in another one."""
    return os.environ.get(OWN_PYTHON) or sys.executable


T = TypeVar("T")


class BackgroundCall(Generic[T]):
    """Calls `call` in a new thread at once. If the call hangs, its thread ends with the process."""

    def __init__(self, call: Callable[[], T], begin: Callable[[Callable[[], None]], None] | None = None) -> None:
        """`begin` gets the work in place of a new thread."""
        self._call, self.ended = call, threading.Event()
        self._outcome: T | Exception
        (begin or _in_new_thread)(self._work)

    def _work(self) -> None:
        try:
            self._outcome = self._call()
        except Exception as fault:  # noqa: BLE001 - raised again by `result`
            self._outcome = fault
        self.ended.set()

    def result(self, seconds: float) -> T:
        """Raises what the call raised, or TimeoutError."""
        if not self.ended.wait(seconds):
            raise TimeoutError(f"no answer within {seconds:g} s")
        if isinstance(self._outcome, Exception):
            raise self._outcome
        return self._outcome


def _in_new_thread(work: Callable[[], None]) -> None:
    threading.Thread(target=work, name="background call", daemon=True).start()


class BackgroundCalls:
    """Calls one after another in one thread. One that hangs keeps it; it ends with the process."""

    def __init__(self) -> None:
        self._waiting: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._last: BackgroundCall[Any] | None = None

    def result(self, call: Callable[[], T], seconds: float) -> T:
        """Raises what `call` raised, or TimeoutError, at once while an earlier call has not ended."""
        if self._last is None:
            _in_new_thread(self._work)
        elif not self._last.ended.is_set():
            raise TimeoutError("an earlier call has not been answered")
        self._last = last = BackgroundCall(call, self._waiting.put)
        return last.result(seconds)

    def _work(self) -> None:
        while True:
            self._waiting.get()()
