"""A lock that one process holds at a time, that the kernel releases however the process ends, and that children inherit
with the descriptor. Over NFS other machines see it, too, unless the mount options prevent this.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import time
from dataclasses import dataclass
from pathlib import Path

LEASED = "GPUTUI_LEASED"  # environment variable of an engine: `descriptor name` of each lease that it inherits
ENGINE_LOCK = "engine.lock"  # in a run folder; the engine holds it as long as it lives
PROOF_LOCK = "proof.lock"  # in a proof folder; the proof's process holds it as long as it lives
# A process that tests a lock holds it for some microseconds. Attempts are counted, not seconds: on a busy machine one
# second may be over before the second attempt.
ATTEMPTS, RETRY_SECONDS = 100, 0.01
_PLAIN = os.O_NOFOLLOW | os.O_NONBLOCK
_NO_LOCKS = (errno.ENOLCK, errno.ENOTSUP, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL)


class Taken(Exception):
    """Another process holds the lock."""


@dataclass(frozen=True)
class Lock:
    """If the file system has no locks, `works` is False, and the lock excludes nobody."""

    fd: int
    works: bool = True

    def __enter__(self) -> Lock:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """A process that has inherited the descriptor still holds the lock."""
        if self.fd in _held:
            _held.remove(self.fd)
            os.close(self.fd)


_held: set[int] = set()


def _held_lock(fd: int, works: bool) -> Lock:
    _held.add(fd)
    return Lock(fd, works)


def _leave_to_parent() -> None:
    for fd in _held:
        os.close(fd)
    _held.clear()


os.register_at_fork(after_in_child=_leave_to_parent)


def take(path: Path, attempts: int = ATTEMPTS, of_all_users: bool = False) -> Lock:
    """The lock of `path`, which is created. Attempts are 10 ms apart. With `of_all_users`, all users can lock it.
    Raises Taken after the last attempt, or OSError if the file cannot be created.
    """
    for attempt in range(attempts):
        if attempt:
            time.sleep(RETRY_SECONDS)
        fd = _open_of_all_users(path) if of_all_users else os.open(path, os.O_RDWR | os.O_CREAT | _PLAIN, 0o600)
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
    raise Taken


def _open_of_all_users(path: Path) -> int:
    """Read only: with fs.protected_regular Linux refuses another user's file in a sticky folder with O_CREAT."""
    with contextlib.suppress(FileNotFoundError):
        return os.open(path, os.O_RDONLY | _PLAIN)
    with contextlib.suppress(FileExistsError):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | _PLAIN, 0o644)
        os.fchmod(fd, 0o644)  # whatever the umask is
        return fd
    return os.open(path, os.O_RDONLY | _PLAIN)


def inherited(fd: int) -> Lock:
    """Children do not inherit it. Raises Taken, or OSError if `fd` is not open."""
    os.set_inheritable(fd, False)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # it is held already: tests whether the file system has locks
    except BlockingIOError:
        raise Taken from None
    except OSError:
        return _held_lock(fd, works=False)
    return _held_lock(fd, works=True)


def held(path: Path) -> bool | None:
    """None if the file cannot be tested, for example as it does not exist."""
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
    """Another process may delete the file before it is locked."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(fd))
    except OSError:
        return False
