"""Sends a signal to a process that a status file names, after verifying that it is the process the file means.

Anybody can write a file that names any process. Only this user's own file counts, and only a process of this user that
is seen to work for the run or proof gets the signal.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Sequence
from pathlib import Path

from .identity import Process


class NotVerified(Exception):
    """The process may be a different one; the text says why."""


def send(process: Process, numbers: Sequence[int], named_by: Path, is_at_work: Callable[[Process], bool]) -> None:
    """Send the signals; raises NotVerified.

    `named_by` is the file that names the process; `is_at_work` tests whether the process works for that run or proof.
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
