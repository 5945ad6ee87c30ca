"""The end of the trainer's process: what Python does at the end of a program, within a time limit.

Threads that are no daemons are waited for, the functions registered with `atexit` run (among them multiprocessing's,
which ends daemon processes), and open files are written out. Python's own way would go on to tear TensorFlow down,
which can abort or hang after a failure: here `os._exit` follows, and the run's result and exit code stand.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import gc
import io
import os
import sys
import threading
import time
from collections.abc import Callable
from functools import partial

from ...files import scratch
from ...system import reaper
from .stopping import StopSwitch

THREADS_SECONDS = 10.0  # for threads that are no daemons
LEAVING_SECONDS = 30.0  # for everything
STOPPED_SECONDS = 3.0  # for everything, where somebody waits for an immediate stop
LAST_SECONDS = 5.0  # beyond these limits, for a process in which no Python can run any more


class ProcessExit:
    """Ends the process, once, from whichever thread asks first."""

    def __init__(self, stop: StopSwitch) -> None:
        self._stop = stop
        self._asked = threading.Lock()
        self._closing = threading.Lock()
        self._threads_gone = threading.Event()

    def at_the_end(self, code: int) -> None:
        """In the main thread, when the run's result is written."""
        if self._begin(code, LEAVING_SECONDS, partial(self._lose_patience, code)):
            with contextlib.suppress(Exception):
                threading._shutdown()  # type: ignore[attr-defined]  # what Python calls before atexit's functions
            self._threads_gone.set()
            self._close(code)
        time.sleep(LEAVING_SECONDS + LAST_SECONDS)  # another thread is at it

    def at_once(self, code: int) -> None:
        """In any thread, while the main one may be anywhere: no thread is waited for."""
        if self._begin(code, STOPPED_SECONDS, lambda: None):
            self._close(code)

    def _begin(self, code: int, seconds: float, meanwhile: Callable[[], None]) -> bool:
        """Set the limits of time; False where another thread has come first."""
        if not self._asked.acquire(blocking=False):
            return False
        limit = threading.Timer(seconds, os._exit, (code,))
        patience = threading.Thread(target=meanwhile, name="patience")
        try:
            for thread in (limit, patience):
                thread.daemon = True
                thread.start()
            with contextlib.suppress(ValueError, AttributeError, OSError):  # their code may have closed standard error
                faulthandler.dump_traceback_later(seconds + LAST_SECONDS, exit=True)  # needs no Python to go on
        except (RuntimeError, MemoryError):  # no more threads: nothing would end what hangs
            _write_open_files()
            os._exit(code)
        return True

    def _lose_patience(self, code: int) -> None:
        if not self._threads_gone.wait(THREADS_SECONDS):
            with contextlib.suppress(Exception):
                print(f"gputui: threads that still run are not waited for: {_still_running()}", file=sys.stderr)
            self._close(code)

    def _close(self, code: int) -> None:
        with self._closing:  # whoever comes second waits for the end of the process
            with contextlib.suppress(BaseException):
                atexit._run_exitfuncs()
            _write_open_files()
            if self._stop.engine_gone:
                reaper.end_descendants()
                scratch.remove()
            os._exit(code)


def _still_running() -> str:
    main = threading.main_thread()
    return ", ".join(sorted(one.name for one in threading.enumerate() if not one.daemon and one is not main))


def _write_open_files() -> None:
    """What is still in the buffers of files that nobody has closed; Python does it as it collects them."""
    objects = gc.get_objects()
    # A million of them are asked for their type alone; whether they are files would take half a second.
    kinds = {kind for kind in {type(found) for found in objects} if issubclass(kind, io.TextIOBase | io.BufferedIOBase)}
    files = [found for found in objects if type(found) in kinds]
    # Text first: it flushes into the buffer beneath.
    for file in sorted(files, key=lambda file: not isinstance(file, io.TextIOBase)):
        with contextlib.suppress(Exception):
            if not file.closed and file.writable():
                file.flush()
