"""The processes that this one has started, and those that these have started, as /proc lists them."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_STATE, _PARENT, _START = 0, 1, 19  # fields of /proc/PID/stat (proc(5)), counted behind the name


@dataclass(frozen=True)
class Descendant:
    """A process; `start_ticks` tells it from a later one with its id."""

    pid: int
    parent: int
    name: str
    ended: bool
    start_ticks: int

    def send(self, number: int) -> None:
        """Nothing is sent where it has ended, or to a process of another user."""
        now = _read(self.pid)
        if now is not None and now.start_ticks == self.start_ticks and not now.ended:
            with suppress(OSError):
                os.kill(self.pid, number)

    def end(self) -> None:
        """By request; a stopped process does not react to it before it is continued."""
        self.send(signal.SIGTERM)
        self.send(signal.SIGCONT)


def all_now() -> list[Descendant]:
    """Also those that have ended and are not waited for yet."""
    children: dict[int, list[Descendant]] = {}
    for pid in _pids():
        if (found := _read(pid)) is not None:
            children.setdefault(found.parent, []).append(found)
    return _below(os.getpid(), children)


def _below(pid: int, children: dict[int, list[Descendant]]) -> list[Descendant]:
    """Each list is taken once, so that ids which were given anew while they were read cannot make a circle."""
    found = children.pop(pid, [])
    return [*found, *(below for one in found for below in _below(one.pid, children))]


def _pids() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except OSError:
        return []


def _read(pid: int) -> Descendant | None:
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    head, _, tail = text.rpartition(")")  # the name may contain spaces and brackets
    fields = tail.split()
    if len(fields) <= _START:
        return None
    name = head.partition("(")[2]
    return Descendant(pid, int(fields[_PARENT]), name, fields[_STATE] in "ZX", int(fields[_START]))
