"""Identifies a process on a machine by its id and the kernel's tick count at its start, so that it cannot be confused
with a later one. Both are valid only within one container (PID namespace), between two starts of the machine.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeGuard

from . import proc

_MODULES = tuple("gputui.engine" + kind for kind in ("", ".trainer", ".proof", ".scaling", ".sweep", ".tune"))


@dataclass(frozen=True)
class Place:
    """The machine and container in which process ids are valid."""

    host: str
    boot_id: str  # the kernel's boot id: a new one at each start of the machine
    pid_namespace: str

    @classmethod
    @cache
    def here(cls) -> Place:
        return cls(os.uname().nodename, proc.boot_id(), proc.pid_namespace())

    @classmethod
    def read(cls, status: Mapping[str, Any]) -> Place | None:
        """None if the status file has none, as older versions of gputui wrote it."""
        values = [status.get(name) for name in ("host", "boot_id", "pid_namespace")]
        return cls(*map(str, values)) if all(isinstance(value, str) for value in values) else None

    @property
    def is_here(self) -> bool:
        """Process ids are valid here: the same container of this machine since its last start."""
        here = Place.here()
        return (self.boot_id, self.pid_namespace) == (here.boot_id, here.pid_namespace) and (
            bool(self.boot_id) or self.host == here.host
        )

    @property
    def shares_kernel(self) -> bool:
        """This machine since its last start, in any container: locks are seen there, too."""
        return bool(self.boot_id) and self.boot_id == Place.here().boot_id

    @property
    def name(self) -> str:
        return f"{self.host} (another container of this machine)" if self.shares_kernel else self.host

    def as_fields(self) -> dict[str, str]:
        return {"host": self.host, "boot_id": self.boot_id, "pid_namespace": self.pid_namespace}


@dataclass(frozen=True)
class Process:
    """A process that cannot be confused with a later one of the same id."""

    pid: int
    start_ticks: int  # since the start of the machine; 0: unknown
    place: Place | None

    @classmethod
    def current(cls) -> Process:
        return cls.of(os.getpid())

    @classmethod
    def of(cls, pid: int) -> Process:
        """If it has ended already, `alive` is always False."""
        with suppress(OSError):
            return cls(pid, _start_ticks(pid) or 0, Place.here())
        return cls(pid, 0, Place.here())

    @classmethod
    def read(cls, status: Mapping[str, Any], role: str = "") -> Process | None:
        """`role`, such as `engine`, is the prefix of the fields if the status file has several processes."""
        pid, ticks = status.get(_key(role, "pid")), status.get(_key(role, "start_ticks"))
        return cls(pid, ticks if _is_count(ticks) else 0, Place.read(status)) if _is_count(pid) else None

    def as_fields(self, role: str = "") -> dict[str, int]:
        return {_key(role, "pid"): self.pid, _key(role, "start_ticks"): self.start_ticks}

    def alive(self) -> bool:
        """Exactly this process runs here, or that cannot be determined, as with too many open files."""
        if self.place is None or not self.place.is_here or self.start_ticks <= 0:
            return False
        try:
            return _start_ticks(self.pid) == self.start_ticks
        except OSError:  # too many open files, for instance: a run is not deleted because this process cannot look
            return True

    def is_mine(self) -> bool:
        """False if it has ended."""
        return proc.users(self.pid) == [str(os.getuid()), str(os.geteuid())]

    def serves(self, folder: Path) -> bool:
        """Its command line ends with `-m gputui.engine[...] FOLDER`."""
        words = proc.words(self.pid)[-3:]
        try:
            is_ours = len(words) == 3 and words[0] == "-m" and words[1] in _MODULES
            return is_ours and os.path.samefile(words[2], folder)
        except (OSError, ValueError):
            return False

    def has_open(self, path: Path) -> bool:
        """False also if its files cannot be seen."""
        try:
            state = os.stat(path)
        except OSError:
            return False
        for file in proc.open_files(self.pid):
            with suppress(OSError):
                if os.path.samestat(os.stat(file), state):
                    return True
        return False


def _key(role: str, name: str) -> str:
    return f"{role}_{name}" if role else name


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**63


def _start_ticks(pid: int) -> int | None:
    # None for a process that has ended, even if it has not been waited for
    process = proc.stat(pid)
    return None if process is None or process.ended else process.start_ticks
