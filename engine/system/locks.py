"""A lock that one process holds at a time and that the kernel frees when it ends, however it ends.

It belongs to the open file: a process that is started with its descriptor holds it on, also when the one that took it
has closed its own. Over NFS it is seen by other machines, too, unless the mount says otherwise.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

ENGINE_LOCK = "engine.lock"  # of a run folder; the engine holds it as long as it lives
PATIENCE_SECONDS = 1.0  # whoever looks at a lock holds it for some microseconds
RETRY_SECONDS = 0.01
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class Taken(Exception):
    """Somebody else holds the lock."""


@dataclass(frozen=True)
class Lock:
    """A lock that this process holds; where the file system has no locks (`works` is False) it keeps nobody out."""

    fd: int
    works: bool = True

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Whoever has been given the descriptor holds the lock on."""
        if self.fd in _held:
            _held.remove(self.fd)
            os.close(self.fd)


_held: set[int] = set()


def _held_lock(fd: int, works: bool) -> Lock:
    _held.add(fd)
    return Lock(fd, works)


def _leave_to_parent() -> None:
    """A process that is forked shares the descriptors, and would hold the locks as long as it lives."""
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def take(path: Path) -> Lock:
    """Raises Taken, and OSError where the file cannot be made."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if _is_still(path, fd):
                return _held_lock(fd, works=True)
        except BlockingIOError:
            pass
        except OSError as fault:
            if fault.errno in _NO_LOCKS:
                return _held_lock(fd, works=False)
            os.close(fd)
            raise
        os.close(fd)
        if time.monotonic() > until:
            raise Taken
        time.sleep(RETRY_SECONDS)


def inherited(fd: int) -> Lock:
    """The lock whose descriptor this process was given; no process that it starts gets it. Raises Taken."""
    os.set_inheritable(fd, False)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it is held already: this only asks whether there are locks
    except BlockingIOError:
        raise Taken from None
    except OSError:
        return _held_lock(fd, works=False)
    return _held_lock(fd, works=True)


def held(path: Path) -> bool | None:
    """Whether somebody holds the lock; None where that cannot be told."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return None
    finally:
        os.close(fd)
    return False


def _is_still(path: Path, fd: int) -> bool:
    """The file may have been deleted, with its folder, between its opening and its locking."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(fd))
    except OSError:
        return False
