"""The signals that ask a run to stop: blocked while a process starts, and sent only to a process that was verified.

Python needs tens of milliseconds before its first handler can be set, and until then such a signal would end the
process. A blocked signal waits in the kernel, also one that is ignored until a handler is installed. The signal mask is
inherited: the parent blocks the signals around the start, and the child unblocks them when its handlers are installed.

Anybody can write a status file that names any process. Only this user's own file counts, and only a process of this
user that is seen to work for the run or proof gets the signal.
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
    """Block the signals during the context, in which a process is started that will call `let_through`."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def hold() -> None:
    """Block the signals until `let_through` is called; signals that arrive meanwhile wait."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _BLOCKED)


def let_through() -> None:
    """Unblock the signals after the handlers are installed; signals that have waited are delivered now."""
    signal.pthread_sigmask(signal.SIG_UNBLOCK, _BLOCKED)


def set_defaults() -> None:
    """Let SIGTERM and SIGINT end this process at once, without a traceback. Used by a process that waits for work."""
    for number in NUMBERS:
        signal.signal(number, signal.SIG_DFL)
    let_through()


# ---- sending -------------------------------------------------------------------------------------


class NotVerified(Exception):
    """The process may be another one than the intended one, or has ended. The text gives the reason."""


def send(process: Process, numbers: Sequence[int], named_by: Path, is_at_work: Callable[[Process], bool]) -> None:
    """Send the signals `numbers` to the process. Raises NotVerified, without a signal, if it may be another process.

    `named_by` is the file that names the process, and must belong to this user. `is_at_work` returns True if the
    process works for the run or proof of that file.
    """
    if not _is_mine(named_by):
        raise NotVerified(f"{named_by.name} belongs to another user")
    try:
        handle = os.pidfd_open(process.pid)  # from here on the process id cannot be reused for another process
    except OSError as fault:
        if fault.errno != errno.ENOSYS:
            raise NotVerified(f"process {process.pid} has ended") from None
        handle = None
    try:
        _verify(process, is_at_work)
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


def _verify(process: Process, is_at_work: Callable[[Process], bool]) -> None:
    if process.place is not None and not process.alive():
        raise NotVerified(f"process {process.pid} is not the one that was started")
    if not process.is_mine():
        raise NotVerified(f"process {process.pid} runs as another user")
    if not is_at_work(process):
        raise NotVerified(f"process {process.pid} does not belong to it")


def _is_mine(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False
