"""Requests to stop the training: by a signal, by the engine through its pipe, or by the engine's death.

A request may arrive in any thread at any time, even while TensorFlow runs C++ code. The training loop stops between two
executions. Before the first step nothing can be lost, and the process stops at once. Later, a process that cannot stop
in time is ended with `os._exit`.
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from typing import IO, Any

from ...system import stop_signals

HEARING_SECONDS = 0.5  # the longest time between a signal's arrival and its handling
ENGINE_GONE = "engine"  # the reason if the engine was killed or has failed
ENGINE_LOST = {
    "kind": "engine",
    "message": "the engine of this run was killed or has failed, so that the training has ended by itself",
    "hint": "engine.log and dmesg may show why",
}
ENDED_BY_STOP = 128 + signal.SIGTERM  # as in a shell; for a process that is stopped before it can leave a result


class StopRequested(Exception):
    """Raised in the training loop to end it. `reason` is `stopped`, `timeout` or ENGINE_GONE.

    If the engine of another worker is gone, `engine_of` names that worker. Otherwise it is empty.
    """

    def __init__(self, reason: str, engine_of: str = "") -> None:
        super().__init__(reason)
        self.reason, self.engine_of = reason, engine_of


class StopSwitch:
    """Stores the first request to stop. `check` then raises StopRequested in the training loop."""

    def __init__(self) -> None:
        self.reason = ""
        self.at_once = True  # until a step has been trained
        self.engine_gone = False
        self.leave_result: Callable[[str], None] = lambda _reason: None
        self.exit: Callable[[int], None] = os._exit
        self.writer = -1  # the pipe that signal numbers are written to
        self._asked = threading.Event()

    def listen(self, lifeline: IO[str]) -> None:
        """Listen for signals in one thread and to the engine's pipe (`lifeline`) in another. To be called in the main
        thread.
        """
        reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        # Python's C handler writes the signal number there, whatever the main thread is doing.
        signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        for number in stop_signals.NUMBERS:
            signal.signal(number, self.on_signal)
        forks = _Forks(self)
        os.register_at_fork(before=forks.hold, after_in_parent=forks.go_on, after_in_child=forks.forget)
        threading.Thread(target=self._hear_signals, args=(reader,), name="signals", daemon=True).start()
        threading.Thread(target=self._watch_engine, args=(lifeline,), name="lifeline", daemon=True).start()
        stop_signals.let_through()

    def listen_again(self) -> None:
        """Handle signals again after TensorFlow's connection of several machines, which takes SIGTERM for itself (2.21,
        preemption_notifier.cc).

        Does nothing before `listen`.
        """
        if self.writer < 0:
            return
        for number in stop_signals.NUMBERS:
            if signal.getsignal(number) == self.on_signal:  # Python does not know of the other handler
                signal.signal(number, self.on_signal)

    def request(self, reason: str, deadline: bool = False) -> None:
        """Ask for a stop with a `reason` as StopRequested has it. Before the first step, the process is ended at once.

        With `deadline`, the process ends itself if the training does not stop within stop_signals.GRACE_SECONDS.
        """
        self.reason = self.reason or reason
        self._asked.set()
        if self.at_once:
            self._leave()
        if deadline:
            timer = threading.Timer(stop_signals.GRACE_SECONDS, self._leave)
            timer.daemon = True
            timer.start()

    def check(self) -> None:
        if self.reason:
            raise StopRequested(self.reason)

    def requested(self) -> bool:
        """Return True if a stop was requested. Waits up to HEARING_SECONDS before it returns False, because a signal
        may just have arrived.
        """
        return self._asked.wait(HEARING_SECONDS)

    def on_signal(self, number: int, _frame: Any) -> None:
        """Handle a signal in the main thread: write its number to the pipe, without waiting.

        Python's C handler does the same, but the user's code may have replaced its file descriptor.
        """
        with contextlib.suppress(OSError):
            os.write(self.writer, bytes([number]))

    def _hear_signals(self, reader: int) -> None:
        """Read signal numbers from the pipe (file descriptor `reader`) without end, and handle each.

        The pipe also gets the signals that the user's code handles.
        """
        with contextlib.suppress(OSError):  # the user's code may close descriptors that it has not opened
            while numbers := os.read(reader, 64):
                if any(number in stop_signals.NUMBERS for number in numbers):
                    self.request("stopped")

    def _watch_engine(self, lifeline: IO[str]) -> None:
        for line in lifeline:
            self.request("timeout" if line.strip() == "timeout" else "stopped")
        # End of file: the engine has ended, and no other process would end a training that hangs.
        self.engine_gone = True
        self.request(ENGINE_GONE, deadline=True)

    def _leave(self) -> None:
        """End the process from any thread, even while the main thread is busy."""
        self.leave_result(self.reason)
        self.exit(ENDED_BY_STOP)


class _Forks:
    """Keeps the signal handling of `switch` out of forked children, in which signals act as in any program."""

    def __init__(self, switch: StopSwitch) -> None:
        self._switch = switch
        self._mask = threading.local()  # of the thread that forks

    def hold(self) -> None:
        """Block signals before a fork. Otherwise a signal that reaches the child before `forget` would be reported to
        the trainer.
        """
        self._mask.before = signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals.NUMBERS)

    def go_on(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._mask.before)

    def forget(self) -> None:
        """Restore the default handlers in the child. Handlers that the user's code has set stay."""
        for number, default in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
            if signal.getsignal(number) == self._switch.on_signal:
                signal.signal(number, default)
        theirs = signal.set_wakeup_fd(-1)
        if theirs not in (-1, self._switch.writer):
            signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        self.go_on()
