"""The processes that a training has started: data workers of a user's code, which are its own and not others'.

Separates them from the readings of the host. The kernel lists the children of each thread: a look at all processes of
the machine would cost more than what it tells.
"""

from __future__ import annotations

import contextlib
from pathlib import Path

import psutil


class Children:
    """All descendants of one process."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._known: dict[int, psutil.Process] = {}

    def cores(self) -> float:
        """How many cores they use together, since the call before; one that is new counts from its second time on."""
        found = {}
        for pid in _descendants(self._pid):
            with contextlib.suppress(psutil.Error):
                found[pid] = self._known.get(pid) or psutil.Process(pid)
        self._known = found
        return sum(map(_cores, found.values()))


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            of_thread = [int(child) for child in children.read_text().split()]
        except (OSError, ValueError):
            continue
        for child in of_thread:
            found += [child, *_descendants(child)]
    return found


def _cores(process: psutil.Process) -> float:
    try:
        return float(process.cpu_percent()) / 100
    except psutil.Error:
        return 0.0
