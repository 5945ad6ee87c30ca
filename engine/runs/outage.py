"""What a viewer can find out about a silent run: that its disk is full, and how it seems to have ended."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from ..files import disk

SILENT_SECONDS = 3.0
GOES_ON = "the training goes on, and its events wait in memory"
ENDED = "the training has ended, and its result waits for room; it is given up after two minutes"


class Silence:
    """Checks the disk while a run that is alive writes nothing."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._since = time.monotonic()
        self._told = ""

    def look(self, heard: bool, trains: bool = True) -> str:
        """A sentence where the disk keeps the run from writing: once for each silence, again when it has trained."""
        now, waits = time.monotonic(), GOES_ON if trains else ENDED
        if heard:
            self._since, self._told = now, ""
        if self._told == waits or now - self._since < SILENT_SECONDS:
            return ""
        self._since = now
        full = disk.looked_at(self._folder)
        self._told = waits if full else ""
        return f"{full}: {waits}" if full else ""


def lost(folder: Path, log: Sequence[str]) -> dict[str, str]:
    """The error of a run that has ended without a result, found from its disk and its log."""
    last = next((line.strip() for line in reversed(log) if line.strip()), "")
    return {
        "kind": "crash",
        "message": disk.looked_at(folder) or "the run ended without a result: its engine is gone",
        "hint": f"the last line of engine.log: {last[:200]}" if last else "engine.log is empty",
    }
