"""Reads the events of a run in batches. A batch between two noted places has the same events whenever it is read."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ..files.reading import GrowingFile
from ..runs.event_reading import in_time
from ..runs.events import EVENT_FILES, Event
from ..runs.parsing import parse_block

BLOCK_BYTES = 1 << 18  # of each file in a batch
LONGEST_BYTES = 1 << 24  # more without a newline is no line of an event

Offsets = Mapping[str, int]  # bytes read of each event file, by its name


@dataclass(frozen=True)
class Batch:
    """Some events of a run in the order of time. `ends` are the offsets after them in the files."""

    events: list[Event]
    ends: Offsets


def read_batch(folder: Path, begin: Offsets, ends: Offsets | None = None) -> Batch:
    """Return the next events of the run in `folder` after the offsets `begin`; with `ends`, those up to there.

    Without `ends`, at most 256 kB of each file are read, and events for whose time the other file has not been read far
    enough are left for the next batch. A file that does not exist has no events. Raises OSError if one cannot be read.
    """
    read = {
        name: _read(folder / name, begin.get(name, 0), None if ends is None else ends.get(name, 0))
        for name in EVENT_FILES
    }
    # A file that goes on after its block: nothing is known of the time after the block's last event.
    until = min((block.last_t for block in read.values() if block.goes_on), default=math.inf)
    taken = {name: list(block.until(until)) for name, block in read.items()}
    events = in_time(event for pairs in taken.values() for event, _ in pairs if event is not None)
    return Batch(events, {name: pairs[-1][1] if pairs else begin.get(name, 0) for name, pairs in taken.items()})


@dataclass(frozen=True)
class _Block:
    """The lines of one file: an event, or None if the line is none, and the offset after it."""

    lines: list[tuple[Event | None, int]]
    goes_on: bool  # the file has further lines

    @property
    def last_t(self) -> float:
        return next((event.t for event, _ in reversed(self.lines) if event is not None), math.inf)

    def until(self, t: float) -> Iterator[tuple[Event | None, int]]:
        for event, end in self.lines:
            if event is not None and event.t > t:
                return
            yield event, end


def _read(path: Path, begin: int, end: int | None) -> _Block:
    file = GrowingFile(path, begin)
    try:
        block = file.block(BLOCK_BYTES if end is None else end - begin)
        if end is None and not block and file.size - begin > BLOCK_BYTES:
            block = file.block(LONGEST_BYTES)
    except FileNotFoundError:
        return _Block([], False)
    if not block and end != begin and file.size - begin > LONGEST_BYTES:
        return _Block([(None, begin + LONGEST_BYTES)], end is None)
    lines, at = [], begin
    for event, line in parse_block(block):
        at += len(line) + 1
        lines.append((event, at))
    return _Block(lines, end is None and file.size - begin > BLOCK_BYTES)
