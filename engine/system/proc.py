"""Reads what the kernel tells of processes (proc(5)). What it hides, as of other users, is None or left out."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

_STATE, _PARENT, _START = 0, 1, 19  # fields of /proc/PID/stat, counted from 0 after the name


@dataclass(frozen=True)
class Stat:
    """`ended` means not waited for yet. `start_ticks` tells it from a later process with the same id."""

    pid: int
    parent: int
    name: str
    ended: bool
    start_ticks: int


def stat(pid: int) -> Stat | None:
    """None if it is gone or hidden. Raises other OSErrors, such as that of too many open files."""
    try:
        line = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    head, _, tail = line.rpartition(")")  # the name may contain spaces and brackets
    fields = tail.split()
    if len(fields) <= _START:
        return None
    return Stat(pid, int(fields[_PARENT]), head.partition("(")[2], fields[_STATE] in "ZX", int(fields[_START]))


def all_stats() -> Iterator[Stat]:
    """Every process that can be seen; none without /proc."""
    for name in os.listdir("/proc") if os.path.isdir("/proc") else ():
        with suppress(OSError):
            if name.isdigit() and (process := stat(int(name))) is not None:
                yield process


def below(pid: int) -> list[int]:
    """The ids of all descendants, by the kernel's own lists."""
    pids: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, text(children).split()):
            pids += [child, *below(child)]
    return pids


def users(pid: int) -> list[str]:
    """The real and the effective user's number; empty if it has ended."""
    lines = text(f"/proc/{pid}/status").splitlines()
    return next((line.split()[1:3] for line in lines if line.startswith("Uid:")), [])


def words(pid: int) -> list[str]:
    return text(f"/proc/{pid}/cmdline").split("\0")[:-1]


def open_files(pid: int) -> list[Path]:
    """The links in /proc to its open files; empty if they cannot be seen."""
    with suppress(OSError):
        return list(Path(f"/proc/{pid}/fd").iterdir())
    return []


@cache
def user_name(number: int) -> str:
    """`user NUMBER` if the id has no name."""
    try:
        return pwd.getpwuid(number).pw_name
    except (KeyError, OSError):
        return f"user {number}"


@cache
def boot_id() -> str:
    """A new one at each start of the machine; empty if it is not known."""
    return text("/proc/sys/kernel/random/boot_id").strip()


@cache
def pid_namespace() -> str:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def sizes(path: str | Path) -> dict[str, int]:
    """The lines `NAME: N kB` of a file of the kernel, in bytes."""
    rows = (line.partition(":") for line in text(path).splitlines())
    return {name: 1024 * int(words[0]) for name, _, rest in rows if (words := rest.split()) and words[0].isdecimal()}


def text(path: str | Path) -> str:
    """The content of a file of the kernel; empty if it cannot be read."""
    with suppress(OSError):
        return Path(path).read_text(encoding="utf-8", errors="surrogateescape")
    return ""
