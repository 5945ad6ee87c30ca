"""Ends the trainer's process as Python ends a program, but within a time limit.

It waits for threads that are not daemons, runs the functions registered with `atexit` (among them multiprocessing's,
which ends daemon processes), and flushes open files. Python would then tear TensorFlow down, which can abort or hang
after a failure. `os._exit` skips that, so that the run's result and exit code stay as they are.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import io
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from ...files import places
from ...system import descendants, import_cost
from .stopping import StopSwitch

THREADS_SECONDS = 10.0  # for threads that are not daemons
LEAVING_SECONDS = 30.0  # for everything, from the moment when the result is written
STOPPED_SECONDS = 3.0  # for everything, after a request to stop at once
LAST_SECONDS = 5.0  # after these limits, for a process in which Python can no longer run


class ProcessExit:
    """Ends the process once, for the first thread that asks for it. Later requests have no effect.

    If `stop` knows that the engine is gone, it first ends the processes that the trainer has started, and removes
    temporary files.
    """

    def __init__(self, stop: StopSwitch) -> None:
        self._stop = stop
        self._asked = threading.Lock()
        self._closing = threading.Lock()
        self._threads_gone = threading.Event()

    def limit(self, code: int) -> None:
        """End the process with the exit status `code` if it still runs after LEAVING_SECONDS. To be called when the
        run's result is written.

        Destructors run next, and some of TensorFlow's destructors wait for other workers.
        """
        with contextlib.suppress(RuntimeError, MemoryError):  # no thread can be started: `at_the_end` ends the process
            _end_after(LEAVING_SECONDS, code)

    def at_the_end(self, code: int) -> None:
        """End the process with the exit status `code`. To be called in the main thread when the run's result is
        written.

        Threads that are not daemons are waited for, at most THREADS_SECONDS.
        """
        if self._begin(code, LEAVING_SECONDS, partial(self._lose_patience, code)):
            with contextlib.suppress(Exception):
                threading._shutdown()  # type: ignore[attr-defined]  # what Python calls before atexit's functions
            self._threads_gone.set()
            self._close(code)
        time.sleep(LEAVING_SECONDS + LAST_SECONDS)  # another thread already ends the process

    def at_once(self, code: int) -> None:
        """End the process with the exit status `code` without waiting for threads. Any thread may call this at any
        time.
        """
        if self._begin(code, STOPPED_SECONDS, lambda: None):
            self._close(code)

    def _begin(self, code: int, seconds: float, meanwhile: Callable[[], None]) -> bool:
        """Set the time limits for ending the process. Return False if another thread has already begun to end it, else
        True.

        The process is ended with the exit status `code`, at the latest after `seconds`. `meanwhile` is called in a
        thread. If no thread can be started, the process is ended at once.
        """
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
    """Flush the files that are still open, as Python itself does when it collects them.

    Standard output and error are flushed separately, as the objects tracked by `import_cost` do not include them.
    """
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
