"""The interface of a target, and what it gets to know about the run."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from pathlib import Path
from typing import Any, Protocol

from .. import figures
from ..files.reading import GrowingFile
from ..options import OPTIONS, is_private
from ..runs import Run, titles
from ..runs.event_reading import in_time
from ..runs.events import EVENT_FILES, Event, Finished, OptionChanged, Outcome, Started
from ..runs.history import PLACE, RowMaker
from ..runs.launched_with import options_of
from ..runs.parsing import parse_block

_LOGIN = re.compile(r"//[^/?#\s]*@")  # in an address; a password may have an @
RESULT = "result/"  # before the names of figures of the result


@dataclass(frozen=True)
class AboutRun:
    """What a target shows about a run, with the options that differ from their defaults."""

    folder: Path
    id: str
    title: str
    preset: str
    options: Mapping[str, Any]
    tags: Sequence[str]
    note: str


def about_run(run: Run) -> AboutRun:
    values, title, notes = options_of(run), titles.title_of(run), titles.read_notes(run)
    defaults = {info.key: info.default for info in OPTIONS}
    shared = {key: value for key, value in values.items() if not is_private(key)}
    changed = {key: value for key, value in shared.items() if key not in defaults or value != defaults[key]}
    return AboutRun(run.path, run.id, title.whole, title.preset, changed, notes.tags, notes.note)


def without_login(text: str) -> str:
    """Return the text without the user names and passwords in addresses."""
    return _LOGIN.sub("//", text)


class Target(Protocol):
    """Writes the points of one run to one place. `remote` is what it needs to find its remote run again. Any method may
    raise any exception; the follower then waits, calls `open` again, and writes the same points once more.
    """

    remote: dict[str, Any]
    where: str  # the path or address at which the user finds the figures

    def open(self, about: AboutRun, key: str) -> int | None:
        """Create the remote run, or find that of `key`. Returns the first point it lacks; None: it trusts the place."""

    def write(self, points: Sequence[Point]) -> None:
        """Return when the target has them. The same points may be given again."""

    def end(self, about: AboutRun, outcome: Outcome) -> None:
        """How the run has ended. It may be called again, also after further points."""


@dataclass(frozen=True)
class Point:
    """Figures after `step` steps."""

    number: int
    t: float  # Unix seconds
    step: int
    figures: Mapping[str, float]
    is_result: bool = False
    goes_back_to: int | None = None  # the step from which the training goes on, if it trains some steps again


@dataclass
class PointMaker:
    """Makes points of events. Its fields are its state between two batches."""

    number: int = 0  # of the next point
    step: int = 0  # of the last one
    readings: dict[str, float] = field(default_factory=dict)
    goes_back_to: int | None = None

    def points(self, events: Iterable[Event]) -> Iterator[Point]:
        """The events are in the order of time."""
        maker = RowMaker(self.readings)
        self.readings = maker.readings
        for event in events:
            step, values = self.step, None
            if isinstance(event, Started | OptionChanged):
                begins_at = event.resumed_at_step if isinstance(event, Started) else event.resumes_at_step
                if (begins_at or 0) < self.step:
                    self.goes_back_to = begins_at or 0
            elif isinstance(event, Finished):
                step, keys = event.summary.get("steps") or step, [figure.key for figure in figures.RUN]
                result = {key: figures.at(event.summary, key) for key in keys if not key.startswith("metrics.")}
                result |= {f"metrics.{name}": value for name, value in (event.summary.get("metrics") or {}).items()}
                values = {RESULT + key: value for key, value in result.items() if value is not None} or None
            elif (row := maker.row(event)) is not None:
                step = int(row.get("step", step))
                values = {name: value for name, value in row.items() if name == "epoch" or name not in PLACE}
            if values is not None:
                yield Point(self.number, event.t, step, values, isinstance(event, Finished), self.goes_back_to)
                self.number, self.step, self.goes_back_to = self.number + 1, step, None


BLOCK_BYTES = 1 << 18  # of each file in a batch
LONGEST_BYTES = 1 << 24  # more without a newline is no line of an event

Offsets = Mapping[str, int]  # bytes read of each event file, by its name


@dataclass(frozen=True)
class Batch:
    """Events in the order of time, and the offsets after them in the files."""

    events: list[Event]
    ends: Offsets


def read_batch(folder: Path, begin: Offsets, ends: Offsets | None = None) -> Batch:
    """The events after `begin`, up to `ends` or else from at most 256 kB of each file; those for whose time the other
    file has not been read are left for the next batch. Raises OSError.
    """
    lines, until = dict[str, list[tuple[Event | None, int]]](), math.inf
    for name in EVENT_FILES:
        lines[name], goes_on = _read(folder / name, begin.get(name, 0), None if ends is None else ends.get(name, 0))
        if goes_on:  # nothing is known of the time after the block's last event
            until = min(until, next((event.t for event, _ in reversed(lines[name]) if event is not None), math.inf))
    taken = {
        name: list(takewhile(lambda pair: pair[0] is None or pair[0].t <= until, pairs))
        for name, pairs in lines.items()
    }
    events = in_time(event for pairs in taken.values() for event, _ in pairs if event is not None)
    return Batch(events, {name: pairs[-1][1] if pairs else begin.get(name, 0) for name, pairs in taken.items()})


def _read(path: Path, begin: int, end: int | None) -> tuple[list[tuple[Event | None, int]], bool]:
    """Lines of a file (None: no event) with the offset after each, and whether it has further lines."""
    file = GrowingFile(path, begin)
    try:
        block = file.block(BLOCK_BYTES if end is None else end - begin)
        if end is None and not block and file.size - begin > BLOCK_BYTES:
            block = file.block(LONGEST_BYTES)
    except FileNotFoundError:
        return [], False
    if not block and end != begin and file.size - begin > LONGEST_BYTES:
        return [(None, begin + LONGEST_BYTES)], end is None
    lines, at = [], begin
    for event, line in parse_block(block):
        at += len(line) + 1
        lines.append((event, at))
    return lines, end is None and file.size - begin > BLOCK_BYTES
