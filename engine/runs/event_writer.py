"""Writes the events of a run to a file, and keeps them while its disk is full."""

from __future__ import annotations

import json
import threading
import time
from dataclasses import fields
from pathlib import Path

from ..files.appending import RETRY_SECONDS, Gap, LineFile
from ..files.values import plain
from ..system.run_clock import RunClock
from ..units import counted
from .events import T_DIGITS, Event, Warn


class EventWriter:
    """Appends events to one file, one line each, without buffering. Several threads may use it.

    A full disk raises no error: events wait in memory (files/appending.py) and are written later, with a warning after
    them.
    """

    def __init__(self, path: Path, run_id: str, clock: RunClock | None = None) -> None:
        self.path, self._run_id = path, run_id
        self.clock = clock or RunClock.launched()
        self._lock = threading.Lock()
        self._file = LineFile(path)
        self._closed = False

    def emit(self, event: Event, t: float | None = None) -> None:
        """Write one event; `t` is its time in Unix seconds, by default now."""
        line = self._line(event, t)
        with self._lock:
            if not self._closed:
                self._warn(self._file.append(line))

    def drain(self, seconds: float) -> int:
        """Try for `seconds` to write the events that wait for the disk; return the number of events that are still
        missing.
        """
        until = time.monotonic() + seconds
        while True:
            with self._lock:
                self._warn(self._file.flush())
                missing = self._file.missing if self._file.waiting else 0
            if not missing or time.monotonic() >= until:
                return missing
            time.sleep(RETRY_SECONDS)

    def unwritten(self) -> list[str]:
        """Return the lines that still wait for the disk."""
        with self._lock:
            return self._file.lines

    def close(self) -> None:
        with self._lock:
            self._warn(self._file.flush())
            self._file.close()
            self._closed = True

    def _line(self, event: Event, t: float | None = None) -> str:
        head = {"t": round(self.clock.now() if t is None else t, T_DIGITS), "type": event.type, "run": self._run_id}
        own = {field.name: plain(getattr(event, field.name)) for field in fields(event)}
        return json.dumps(head | own, allow_nan=False, separators=(",", ":"))

    def _warn(self, gap: Gap | None) -> None:
        if gap is not None:
            lost = f"{counted(gap.lost, 'events')} {'is' if gap.lost == 1 else 'are'} missing"
            kept = lost if gap.lost else "no event is missing"
            message = f"{gap.reason}: nothing could be written to {self.path} for {gap.seconds:.1f} s; {kept}"
            self._file.append(self._line(Warn(kind="disk", message=message)))
