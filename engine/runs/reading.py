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
    """The lines of a file that are not whole events, or the reason why it cannot be read at all."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._first_offset = 0
        self.count = 0
        self.unreadable = ""

    def add(self, offset: int) -> None:
        """Count a line that begins at this byte."""
        if not self.count:
            self._first_offset = offset
        self.count += 1

    def __str__(self) -> str:
        """One sentence; empty if there is no damage."""
        if self.unreadable:
            return f"{self.path.name} cannot be read: {self.unreadable}"
        if not self.count:
            return ""
        more = f" and {self.count - 1:,} more" if self.count > 1 else ""
        are = "are" if more else "is"
        return f"line {self._first_line():,} of {self.path.name}{more} {are} damaged, left out"

    def _first_line(self) -> int:
        """The number of the first damaged line; counted only for the message, as reading must be fast."""
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
    """The new events of a growing file, each time it is read; a half-written last line waits."""

    def __init__(self, path: Path, from_now: bool = False) -> None:
        self._file = GrowingFile(path, _size(path) if from_now else 0)
        self.damage = Damage(path)

    @property
    def damages(self) -> list[Damage]:
        return [self.damage]

    def move(self, folder: Path) -> None:
        """Read on in the folder to which the file's folder was renamed."""
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
    """Suspend garbage collection, which takes longer than reading thousands of events and frees nothing."""
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
    """The events of a run in the order of their time; `damage` has a sentence for each damaged file."""

    events: list[Event]
    damage: tuple[str, ...] = ()

    def of(self, kind: type[E]) -> list[E]:
        """The events of one type."""
        return [event for event in self.events if isinstance(event, kind)]

    def last(self, kind: type[E]) -> E | None:
        """The newest event of one type."""
        return next((event for event in reversed(self.events) if isinstance(event, kind)), None)


def read_events(folder: Path, names: Sequence[str] = EVENT_FILES) -> RunEvents:
    """The events of both files, or of the named ones."""
    tails = [Tail(folder / name) for name in names]
    events = in_time(event for tail in tails for event in tail.read())
    return RunEvents(events, tuple(filter(None, (str(tail.damage) for tail in tails))))


def in_time(events: Iterable[Event]) -> list[Event]:
    """Events in the order of their time."""
    return sorted(events, key=attrgetter("t"))
