"""Requests to stop the training (by a signal, by the engine through its pipe, by the engine's death), and the
process's end. A request may arrive in any thread, even while TensorFlow runs C++ code. The loop stops between two
executions, and before the first step, when nothing can be lost, at once. A process that cannot stop in time is ended
with `os._exit`.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import io
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import IO, Any

from ...files import places
from ...system import descendants, import_cost, stop_signals

HEARING_SECONDS = 0.5  # the longest time between a signal's arrival and its handling
ENGINE_GONE = "engine"  # the reason if the engine was killed or has failed
ENGINE_LOST = {
    "kind": "engine",
    "message": "the engine of this run was killed or has failed, so that the training has ended by itself",
    "hint": "engine.log and dmesg may show why",
}
ENDED_BY_STOP = 128 + signal.SIGTERM  # as in a shell; for a process that is stopped before it can leave a result


class StopRequested(Exception):
    """Raised in the training loop to end it. `reason` is `stopped`, `timeout` or ENGINE_GONE, and `engine_of` names
    the worker whose engine is gone, if it is another's.
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
        """Listen for signals and to the engine's pipe (`lifeline`), in two threads. To be called in the main thread."""
        reader, self.writer = os.pipe()
        os.set_blocking(self.writer, False)
        # Python's C handler writes the signal number there, whatever the main thread is doing.
        signal.set_wakeup_fd(self.writer, warn_on_full_buffer=False)
        for number in stop_signals.NUMBERS:
            signal.signal(number, self.on_signal)
        self._forking = threading.local()  # the mask of the thread that forks
        os.register_at_fork(before=self._hold, after_in_parent=self._go_on, after_in_child=self._forget)
        threading.Thread(target=self._hear_signals, args=(reader,), name="signals", daemon=True).start()
        threading.Thread(target=self._watch_engine, args=(lifeline,), name="lifeline", daemon=True).start()
        stop_signals.let_through()

    def listen_again(self) -> None:
        """TensorFlow's connection of several machines takes SIGTERM (2.21, preemption_notifier.cc)."""
        if self.writer < 0:
            return
        for number in stop_signals.NUMBERS:
            if signal.getsignal(number) == self.on_signal:  # Python does not know of the other handler
                signal.signal(number, self.on_signal)

    def request(self, reason: str, deadline: bool = False) -> None:
        """Ask for a stop with a reason as of StopRequested. Before the first step, the process is ended at once.
        With `deadline`, it ends itself if the training does not stop within stop_signals.GRACE_SECONDS.
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
        """Return True if a stop was requested. A signal may just have arrived: waits up to HEARING_SECONDS."""
        return self._asked.wait(HEARING_SECONDS)

    def on_signal(self, number: int, _frame: Any) -> None:
        # Python's C handler does the same, but the user's code may have replaced its file descriptor.
        with contextlib.suppress(OSError):
            os.write(self.writer, bytes([number]))

    def _hear_signals(self, reader: int) -> None:
        # The pipe also gets the signals that the user's code handles.
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
        self.leave_result(self.reason)
        self.exit(ENDED_BY_STOP)

    # ---- forks: in a child, signals act as in any program -----------------------------------------

    def _hold(self) -> None:
        # One that reaches the child before `_forget` would be reported to the trainer.
        self._forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, stop_signals.NUMBERS)

    def _go_on(self) -> None:
        signal.pthread_sigmask(signal.SIG_SETMASK, self._forking.mask)

    def _forget(self) -> None:
        # Restore the default handlers in the child. Handlers that the user's code has set stay.
        for number, default in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGINT, signal.default_int_handler)):
            if signal.getsignal(number) == self.on_signal:
                signal.signal(number, default)
        theirs = signal.set_wakeup_fd(-1)
        if theirs not in (-1, self.writer):
            signal.set_wakeup_fd(theirs, warn_on_full_buffer=False)
        self._go_on()


THREADS_SECONDS = 10.0  # for threads that are not daemons
LEAVING_SECONDS = 30.0  # for everything, from the moment when the result is written
STOPPED_SECONDS = 3.0  # for everything, after a request to stop at once
LAST_SECONDS = 5.0  # after these limits, for a process in which Python can no longer run


class ProcessExit:
    """Ends the process once, as Python does, but within a time limit: it waits for threads, runs what `atexit` has,
    and flushes files. Python would then tear TensorFlow down, which can abort or hang after a failure. If the engine
    is gone, processes that the trainer has started, and temporary files, go first.
    """

    def __init__(self, stop: StopSwitch) -> None:
        self._stop = stop
        self._asked = threading.Lock()
        self._closing = threading.Lock()
        self._threads_gone = threading.Event()

    def limit(self, code: int) -> None:
        """End the process LEAVING_SECONDS after its result: destructors of TensorFlow wait for other workers."""
        with contextlib.suppress(RuntimeError, MemoryError):  # no thread can be started: `at_the_end` ends the process
            _end_after(LEAVING_SECONDS, code)

    def at_the_end(self, code: int) -> None:
        """Call it in the main thread, after the result. Threads that are no daemons have THREADS_SECONDS."""
        if self._begin(code, LEAVING_SECONDS, partial(self._lose_patience, code)):
            with contextlib.suppress(Exception):
                threading._shutdown()  # type: ignore[attr-defined]  # what Python calls before atexit's functions
            self._threads_gone.set()
            self._close(code)
        time.sleep(LEAVING_SECONDS + LAST_SECONDS)  # another thread already ends the process

    def at_once(self, code: int) -> None:
        """End the process without waiting for threads, from any thread."""
        if self._begin(code, STOPPED_SECONDS, lambda: None):
            self._close(code)

    def _begin(self, code: int, seconds: float, meanwhile: Callable[[], None]) -> bool:
        """Set the time limits for the end. Return False if another thread has begun it. `meanwhile` gets a thread."""
        if not self._asked.acquire(blocking=False):
            return False
        try:
            _end_after(seconds, code)
            threading.Thread(target=meanwhile, name="patience", daemon=True).start()
        except (RuntimeError, MemoryError):  # no thread can be started, so nothing would end a process that hangs
            _write_open_files()
            os._exit(code)
        return True

    def _lose_patience(self, code: int) -> None:
        if not self._threads_gone.wait(THREADS_SECONDS):
            with contextlib.suppress(Exception):
                print(f"gputui: threads that still run are not waited for: {_still_running()}", file=sys.stderr)
            self._close(code)

    def _close(self, code: int) -> None:
        with self._closing:  # any further caller waits for the end of the process
            with contextlib.suppress(BaseException):
                atexit._run_exitfuncs()
            _write_open_files()
            if self._stop.engine_gone:
                descendants.end_descendants()
                places.remove_scratch()
            os._exit(code)


def _end_after(seconds: float, code: int) -> None:
    limit = threading.Timer(seconds, os._exit, (code,))
    limit.daemon = True
    limit.start()
    with contextlib.suppress(ValueError, AttributeError, OSError):  # the user's code may have closed standard error
        # It works even if Python code can no longer run.
        faulthandler.dump_traceback_later(seconds + LAST_SECONDS, exit=True)


def _still_running() -> str:
    main = threading.main_thread()
    running = [thread for thread in threading.enumerate() if not thread.daemon and thread is not main]
    return ", ".join(sorted(thread.name for thread in running))


def _write_open_files() -> None:
    """Flush the files that are still open, as Python itself does when it collects them."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
    objects = import_cost.tracked_objects()
    # Only the type of each object is tested: isinstance on so many objects would take long.
    kinds = {kind for kind in {type(each) for each in objects} if issubclass(kind, io.TextIOBase | io.BufferedIOBase)}
    files = [each for each in objects if type(each) in kinds]
    for file in files:
        with contextlib.suppress(Exception):
            if not file.closed and file.writable():
                file.flush()
