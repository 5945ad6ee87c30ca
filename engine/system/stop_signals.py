"""The signals that ask a run to stop, sent only to a process that was verified, as anybody can write a status file that
names any process. They are blocked while a process starts: before Python's first handler they would end it.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .identity import Process

GRACE_SECONDS = 30.0  # a training that was asked to stop and has not ended by then is ended by force
NUMBERS = (signal.SIGTERM, signal.SIGINT)
# Sent in addition to SIGTERM if a person asks. Schedulers send SIGTERM and SIGINT to all processes of a
# job, as often as they like; nobody else sends this one, and a process that does not know it ignores it.
BY_PERSON = signal.SIGURG
# The signals that run.stop_signal may name. A scheduler may send such a signal to all processes of a job.
BY_SCHEDULER = {"SIGUSR1": signal.SIGUSR1, "SIGUSR2": signal.SIGUSR2}
_BLOCKED = (*NUMBERS, BY_PERSON, *BY_SCHEDULER.values())


@contextmanager
def held() -> Iterator[None]:
    """A process is started in the context, and will call `let_through`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hold() -> None:
    """Signals that arrive before `let_through` wait."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)


def let_through() -> None:
    """Signals that have waited are delivered now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)


def set_defaults() -> None:
    """SIGTERM and SIGINT end this process at once, without a traceback."""
    for number in NUMBERS:
        signal.signal(number, signal.SIG_DFL)
    let_through()


# ---- sending -------------------------------------------------------------------------------------


class NotVerified(Exception):
    """The process may be another one than the intended one, or has ended."""


def send(process: Process, numbers: Sequence[int], named_by: Path, is_at_work: Callable[[Process], bool]) -> None:
    """NotVerified, without a signal, unless `named_by` is this user's file, and `is_at_work` knows the process."""
    try:
        is_mine = named_by.lstat().st_uid == os.geteuid()
    except OSError:
        is_mine = False
    if not is_mine:
        raise NotVerified(f"{named_by.name} belongs to another user")
    try:
        handle = os.pidfd_open(process.pid)  # from here on the process id cannot be reused for another process
    except OSError as fault:
        if fault.errno != errno.ENOSYS:
            raise NotVerified(f"process {process.pid} has ended") from None
        handle = None
    try:
        if process.place is not None and not process.alive():
            raise NotVerified(f"process {process.pid} is not the one that was started")
        if not process.is_mine():
            raise NotVerified(f"process {process.pid} runs as another user")
        if not is_at_work(process):
            raise NotVerified(f"process {process.pid} does not belong to it")
        for number in numbers:
            if handle is None:
                os.kill(process.pid, number)
            else:
                signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        raise NotVerified(f"process {process.pid} has ended") from None
    finally:
        if handle is not None:
            os.close(handle)
