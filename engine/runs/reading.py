"""Reads the events of a run; damaged lines are left out, counted, and reported in one sentence for each file."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TypeVar

from ..files.reading import GrowingFile, open_regular, why
from .events import EVENT_FILES, Event
from .parsing import parse_block

E = TypeVar("E", bound=Event)
_MANY_BYTES = 1_000_000


# ---- growing files of lines -------------------------------------------------------------------


class Damage:
    """The number of damaged lines in a file of events, or the reason why the file cannot be read."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._first_offset = 0
        self.count = 0
        self.unreadable = ""

    def add(self, offset: int) -> None:
        """Count a damaged line, which begins at byte `offset`."""
        if not self.count:
            self._first_offset = offset
        self.count += 1

    def __str__(self) -> str:
        """One sentence about the damage; empty if there is none."""
        if self.unreadable:
            return f"{self.path.name} cannot be read: {self.unreadable}"
        if not self.count:
            return ""
        more = f" and {self.count - 1:,} more" if self.count > 1 else ""
        are = "are" if more else "is"
        return f"line {self._first_line():,} of {self.path.name}{more} {are} damaged, left out"

    def _first_line(self) -> int:
        """Return the number of the first damaged line.

        It is counted only for the message, so that reading stays fast.
        """
        lines, left = 1, self._first_offset
        try:
            with open_regular(self.path) as stream:
                while left > 0 and (block := stream.read(min(left, _MANY_BYTES))):
                    lines += block.count(b"\n")
                    left -= len(block)
        except OSError:
            pass
        return lines


class Tail:
    """Reads the new events of a file that grows; a last line that is not complete is read later."""

    def __init__(self, path: Path, from_now: bool = False) -> None:
        self._file = GrowingFile(path, _size(path) if from_now else 0)
        self.damage = Damage(path)

    @property
    def damages(self) -> list[Damage]:
        return [self.damage]

    def move(self, folder: Path) -> None:
        """Continue reading in `folder`, the new path of the renamed run folder."""
        self._file.path = self.damage.path = folder / self._file.path.name

    def read(self) -> list[Event]:
        offset = self._file.offset
        try:
            block = self._file.block()
        except FileNotFoundError:
            return []
        except OSError as fault:
            self.damage.unreadable = why(fault)
            return []
        self.damage.unreadable = ""
        with _no_collecting(len(block)):
            return list(self._events(block, offset))

    def _events(self, block: bytes, offset: int) -> Iterator[Event]:
        for event, line in parse_block(block):
            if event is not None:
                yield event
            elif line.strip():
                self.damage.add(offset)
            offset += len(line) + 1


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0


@contextmanager
def _no_collecting(size_bytes: int) -> Iterator[None]:
    """Suspend garbage collection while a large block is read: it would take longer than the reading, and free
    nothing.
    """
    paused = size_bytes > _MANY_BYTES and gc.isenabled()
    if paused:
        gc.disable()
    try:
        yield
    finally:
        if paused:
            gc.enable()


# ---- both event files of a run ----------------------------------------------------------------


@dataclass(frozen=True)
class RunEvents:
    """The events of a run in the order of time; `damage` has one sentence for each damaged file."""

    events: list[Event]
    damage: tuple[str, ...] = ()

    def of(self, kind: type[E]) -> list[E]:
        """Return all events of one type, in the order of time."""
        return [event for event in self.events if isinstance(event, kind)]

    def last(self, kind: type[E]) -> E | None:
        """Return the newest event of one type; None if there is none."""
        return next((event for event in reversed(self.events) if isinstance(event, kind)), None)


def read_events(folder: Path, names: Sequence[str] = EVENT_FILES) -> RunEvents:
    """Return the events in the files `names` of a run folder; by default both event files."""
    tails = [Tail(folder / name) for name in names]
    events = in_time(event for tail in tails for event in tail.read())
    return RunEvents(events, tuple(filter(None, (str(tail.damage) for tail in tails))))


def in_time(events: Iterable[Event]) -> list[Event]:
    """Return the events in the order of time."""
    return sorted(events, key=attrgetter("t"))
