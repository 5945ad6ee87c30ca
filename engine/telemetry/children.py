"""Measures the processor time of the processes that a training has started, such as data workers of the user's code.

The kernel lists the children of each thread; going through all processes of the machine would be too expensive.
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
        """How many cores they have used on average since the last call; a new one counts from its second call on."""
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
