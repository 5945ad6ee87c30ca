"""A server that is started once for all workers of pytest-xdist, and ends with the last of those who use it."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pytest

READY = "ready"  # what a server writes first
CANNOT = "cannot"  # of one that ends at once, since it cannot serve on this machine


def folder(factory: pytest.TempPathFactory, name: str) -> Path:
    """A folder that all workers of this session of tests share."""
    own = factory.getbasetemp()
    common = (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / name
    common.mkdir(exist_ok=True)
    return common


@contextlib.contextmanager
def server(folder: Path, command: Sequence[str], environment: Mapping[str, str]) -> Iterator[None]:
    """Keep the server of this folder running; whoever is first starts it.

    The server writes READY once it serves, or CANNOT. Its standard input is a pipe that all users hold open, so that it
    reads the end of it when the last has gone.
    """
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        users = folder / "users"
        if not users.exists():
            os.mkfifo(users)
        held = _join(users) or _start(users, command, environment)
    yield
    os.close(held)


def _join(users: Path) -> int | None:
    """The end of the pipe that a user holds; None where no server reads the other."""
    try:
        return os.open(users, os.O_WRONLY | os.O_NONBLOCK)
    except OSError as fault:
        if fault.errno != errno.ENXIO:
            raise
        return None


def _start(users: Path, command: Sequence[str], environment: Mapping[str, str]) -> int:
    users.with_name("socket").unlink(missing_ok=True)  # of one that has ended with its last user
    reads = os.open(users, os.O_RDONLY | os.O_NONBLOCK)
    held = os.open(users, os.O_WRONLY)
    os.set_blocking(reads, True)
    with open(users.with_name("errors"), "ab") as errors:
        started = subprocess.Popen(
            command, stdin=reads, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **environment}
        )
    os.close(reads)
    assert started.stdout is not None
    assert started.stdout.readline().decode().strip() in (READY, CANNOT), users.with_name("errors").read_text()
    started.stdout.close()
    started.returncode = 0  # it may outlive this worker, which must not be warned of it
    return held
