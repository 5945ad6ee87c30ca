"""Sends a signal to a process that a status file names, once the process is verified to be what the file says.

Anybody can write a file that names any process: only what this user's own file says counts, and only a process of this
user that is seen to be at work for it gets the signal.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

from .identity import Process


class NotVerified(Exception):
    """The process may be anybody's; the text says why."""


def send(process: Process, number: int, named_by: Path, is_at_work: Callable[[Process], bool]) -> None:
    """Raises NotVerified; `named_by` is the file that names the process, `is_at_work` looks whether it serves it."""
    if not _is_mine(named_by):
        raise NotVerified(f"{named_by.name} belongs to another user")
    try:
        handle = os.pidfd_open(process.pid)  # from here on the number cannot come to mean another process
    except OSError as fault:
        if fault.errno != errno.ENOSYS:
            raise NotVerified(f"process {process.pid} has ended") from None
        handle = None
    try:
        _verify(process, is_at_work)
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
        raise NotVerified(f"process {process.pid} is not at work for it")


def _is_mine(path: Path) -> bool:
    try:
        return path.lstat().st_uid == os.geteuid()
    except OSError:
        return False
