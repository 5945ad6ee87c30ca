"""Reads the events of a run. Damaged lines are left out, counted, and reported in one sentence for each file."""

from __future__ import annotations

import gc
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path

from ..files import writing
from ..files.reading import GrowingFile, bytes_of, open_regular, why
from .events import EVENT_FILES, EVENTS_FILE, Event, Finished, OptionChanged, Started, Warn
from .parsing import E, dated, parse_block, parse_line, with_line
from .run import WAITING, Run, RunError

_MANY_BYTES = 1_000_000


# ---- growing files of lines -------------------------------------------------------------------


class Damage:
    """The number of damaged lines in the event file `path`, or the reason why the file cannot be read."""

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
        if self.unreadable:
            return f"{self.path.name} cannot be read: {self.unreadable}"
        if not self.count:
            return ""
        more = f" and {self.count - 1:,} more" if self.count > 1 else ""
        are = "are" if more else "is"
        lines, left = 1, self._first_offset
        try:
            with open_regular(self.path) as stream:
                while left > 0 and (block := stream.read(min(left, _MANY_BYTES))):
                    lines += block.count(b"\n")
                    left -= len(block)
        except OSError:
            pass
        return f"line {lines:,} of {self.path.name}{more} {are} damaged, left out"


class Tail:
    """Reads the events of the growing file `path`. Each call of `read` returns the events since the last call. An
    incomplete last line is left for a later call. With `from_now`, the present content of the file is skipped, else
    its first `offset` bytes. With `keep_lines`, the events have their lines.
    """

    def __init__(self, path: Path, from_now: bool = False, keep_lines: bool = False, offset: int = 0) -> None:
        self._file, self._keep_lines = GrowingFile(path, bytes_of(path) or 0 if from_now else offset), keep_lines
        self.damage = Damage(path)

    @property
    def offset(self) -> int:
        return self._file.offset

    @property
    def damages(self) -> list[Damage]:
        return [self.damage]

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
        events: list[Event] = []
        # For more than 1 MB the garbage collection would take longer than the reading, and free nothing.
        if paused := len(block) > _MANY_BYTES and gc.isenabled():
            gc.disable()
        try:
            for event, line in parse_block(block):
                if event is not None:
                    events.append(with_line(event, line) if self._keep_lines else event)
                elif line.strip():
                    self.damage.add(offset)
                offset += len(line) + 1
        finally:
            if paused:
                gc.enable()
        return events


# ---- both event files of a run ----------------------------------------------------------------


@dataclass(frozen=True)
class RunEvents:
    """The events of a run in the order of time. `damage` has one sentence for each damaged or unreadable file. `place`
    is the place after them, from which `read_since` goes on."""

    events: list[Event]
    damage: tuple[str, ...] = ()
    place: str = ""

    def of(self, kind: type[E]) -> list[E]:
        """Return all events of one type, in the order of time."""
        return [event for event in self.events if isinstance(event, kind)]

    def last(self, kind: type[E]) -> E | None:
        """Return the newest event of one type; None if there is none."""
        return next((event for event in reversed(self.events) if isinstance(event, kind)), None)


def read_events(folder: Path, names: Sequence[str] = EVENT_FILES, keep_lines: bool = False) -> RunEvents:
    """In the order of time. A file that does not exist has none; one that cannot be read is in `damage`."""
    return _read([Tail(folder / name, keep_lines=keep_lines) for name in names])


def read_since(run: Run, place: str) -> RunEvents:
    """The events of a run, with their lines, that were written after a place: `0`, or `place` of an earlier reading.
    Raises RunError for another text.
    """
    if re.fullmatch(r"0|\d{1,15}-\d{1,15}", place, re.ASCII) is None:
        raise RunError(
            f"{place!r} is no place in a run's events; begin with 0, and go on with the `since` of the answer"
        )
    offsets = place.split("-") if "-" in place else ["0", "0"]
    tails = []
    for name, offset in zip(EVENT_FILES, map(int, offsets), strict=True):
        is_shorter = offset > (bytes_of(run.file(name)) or 0)  # the place is of another run or attempt
        tails.append(Tail(run.file(name), keep_lines=True, offset=0 if is_shorter else offset))
    return _read(tails)


def _read(tails: Sequence[Tail]) -> RunEvents:
    events = in_time(event for tail in tails for event in tail.read())
    damage = tuple(filter(None, (str(tail.damage) for tail in tails)))
    return RunEvents(events, damage, "-".join(str(tail.offset) for tail in tails))


HEAD_BYTES = 262_144  # of the events, in which a run's first start stands


def events_of(folder: Path, kind: type[E], most: int = -1) -> list[E]:
    """The trainer's events of one type, in the first `most` bytes; no line of another type is parsed."""
    try:
        lines = GrowingFile(folder / EVENTS_FILE).block(most).split(b"\n")
    except OSError:
        return []
    word = f'"{kind.type}"'.encode()
    events = (parse_line(line) for line in lines if word in line)
    return [event for event in events if isinstance(event, kind)]


def last_of(folder: Path, kind: type[E]) -> E | None:
    """The newest event of one type of the trainer; no line of another type is parsed."""
    return next(reversed(events_of(folder, kind)), None)


def in_time(events: Iterable[Event]) -> list[Event]:
    """Return the events in the order of time."""
    return sorted(events, key=attrgetter("t"))


# ---- as they are written --------------------------------------------------------------------------


SILENT_SECONDS = 3.0
TRAINS_ON = "the training goes on, and its events wait in memory"
ENDED = "the training has ended, and its result waits for room; it is given up after two minutes"


class Follower:
    """The events of a run from both of its files, in the order of time, while they are written. With `from_now`, the
    events that the files already have are skipped. A resumed run has several `finished` events, so a `finished` event
    is held back until no process of the run is alive. It is then the last event. `tails` replace those of both files.
    """

    def __init__(
        self, run: Run, from_now: bool = False, keep_lines: bool = False, tails: Sequence[Tail] | None = None
    ) -> None:
        self.run = run
        self._tails = tails or [Tail(run.file(name), from_now, keep_lines) for name in EVENT_FILES]
        self._reported: set[Damage] = set()
        self._silent_since, self._told = time.monotonic(), ""  # and what was said of this silence
        self._finished: Finished | None = None
        self.ended = False
        self.outcome = ""  # the outcome of a run that has ended

    def poll(self) -> list[Event]:
        """The events since the last poll, with warnings about files and disk. Sets `ended` at the last event."""
        state = self.run.liveness
        alive = state.engine or state.trainer
        fresh = in_time(event for tail in self._tails for event in tail.read())
        damages = [damage for tail in self._tails for damage in tail.damages]
        new = [damage for damage in damages if damage not in self._reported and str(damage)]
        self._reported.update(new)
        news = [self._warning("damaged_file", str(damage)) for damage in new]
        for event in fresh:
            if isinstance(event, Finished):
                self._finished = event
            else:
                if isinstance(event, Started | OptionChanged):  # another trainer follows
                    self._finished = None
                news.append(event)
        trains = state.trainer or state.starting or bool(state.host)
        if fresh:
            self._silent_since, self._told = time.monotonic(), ""
        # That the disk refuses writing is said once for each silence, and once more if the training has ended.
        waits = TRAINS_ON if trains else ENDED
        if alive and self._told != waits and time.monotonic() - self._silent_since >= SILENT_SECONDS:
            self._silent_since = time.monotonic()
            full = writing.try_writing(self.run.path)
            self._told = waits if full else ""
            if full:
                news.append(self._warning("disk", f"{full}: {waits}"))
        if not alive and not fresh and self.run.state not in ("starting", WAITING):
            self.ended = True
            last = self._finished
            if last is None:
                result = self.run.result
                summary = result or {"outcome": "crashed", "error": lost_error(self.run.path, self.run.log_tail())}
                last = dated(Finished(outcome=summary["outcome"], summary=summary), time.time(), self.run.id)
            self.outcome = last.outcome
            news.append(last)
        return news

    def _warning(self, kind: str, message: str) -> Event:
        # It is not in the run's files.
        return dated(Warn(kind=kind, message=message), time.time(), self.run.id)


def follow(run: Run, interval_seconds: float = 0.1) -> Iterator[Event]:
    """All events from the first until the run has ended, read every `interval_seconds`."""
    follower = Follower(run)
    while not follower.ended:
        yield from follower.poll()
        if not follower.ended:
            time.sleep(interval_seconds)


def lost_error(folder: Path, log: Sequence[str]) -> dict[str, str]:
    """Return the error (`kind`, `message` and `hint`) of a run that has ended without a result. The message names the
    disk if it cannot be written to. The hint has the last line of `log`, the lines of engine.log.
    """
    last = next((line.strip() for line in reversed(log) if line.strip()), "")
    return {
        "kind": "crash",
        "message": writing.try_writing(folder) or "the run ended without a result: its engine is gone",
        "hint": f"the last line of engine.log: {last[:200]}" if last else "engine.log is empty",
    }
