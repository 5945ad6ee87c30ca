"""What headers and lists read first: the newest runs, their last events, and the places of waiting runs in the queue,
which queue.py reads. What was read of a folder is kept while its files do not change."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Generic, TypeVar

from ...engine import runs
from ...engine.files.reading import last_lines
from ...engine.runs import Run
from ...engine.runs.events import EVENTS_FILE, Progress
from ...engine.runs.parsing import E, parse_line
from ...engine.runs.run import WAITING

T = TypeVar("T")
MEASURED_SECONDS = 0.3  # at a time


class Kept(Generic[T]):
    """What was read of folders, by their names. It is read again if the `stamp` of the files differs from the last one,
    or if it `goes_on`."""

    def __init__(self, goes_on: Callable[[T], bool] = lambda _: False) -> None:
        self._goes_on = goes_on
        self._known: dict[str, tuple[object, T]] = {}
        self._to_measure: dict[str, None] = {}

    def read(self, name: str, stamp: object, read: Callable[[T | None], T]) -> T:
        """`read` gets what was read before, None the first time."""
        before = self._known.get(name)
        if before is None or before[0] != stamp or self._goes_on(before[1]):
            self._known[name] = stamp, read(before[1] if before else None)
            self._to_measure[name] = None
        return self._known[name][1]

    def measure(self, measured: Callable[[T], T]) -> bool:
        """Replace what was read by what `measured` returns, for about MEASURED_SECONDS. True if that differs."""
        until, differ = time.monotonic() + MEASURED_SECONDS, False
        while self._to_measure and time.monotonic() < until:
            name = next(iter(self._to_measure))
            del self._to_measure[name]
            stamp, former = self._known[name]
            self._known[name] = stamp, measured(former)
            differ |= self._known[name][1] != former
        return differ


@dataclass(frozen=True)
class Waiting:
    """The place of the run with the name `run` in the queue, from 1 on, why it waits, and about when it starts. `place`
    is None for a run that Slurm starts, and `count` is the number of runs that have a place. `why` and `when` are empty
    if they are not known. `when` is `soon`, or a text such as `in about 4:10`. `since` is the Unix time at which the
    run was queued, and `after` the name of the run that has to end first, else empty."""

    run: str
    place: int | None
    held: bool = False
    why: str = ""
    when: str = ""
    needs: str = ""
    since: float = 0.0
    after: str = ""
    count: int = 1

    def __str__(self) -> str:
        """Return place, start and reason in one line. The most important part comes first, as the end may be cut."""
        if self.held:
            return self.why if self.why.startswith("held") else f"held: {self.why}"
        lead = ", ".join(filter(None, (f"place {self.place}" if self.place else "", self.when)))
        return ": ".join(filter(None, (lead, self.why)))


@dataclass(frozen=True)
class Queue:
    """The waiting runs by their ids, in the order of the queue, and the number of queued runs that have begun."""

    waiting: Mapping[str, Waiting] = field(default_factory=dict)
    begun: int = 0

    def words(self, training: int) -> tuple[str, ...]:
        """Return how many runs train and wait, and the next start, as texts from the longest; empty if none waits."""
        if not self.waiting:
            return ()
        waits = f"{len(self.waiting)} wait"
        trains = max(training, self.begun)  # one that has just begun is not running yet
        both = f"{trains} train, {waits}" if trains else waits
        when = next((each.when for each in self.waiting.values() if each.when), "")
        timed = (f"{both}, next {when}", f"{both}, next {when.removeprefix('in about ')}") if when else ()
        return (*timed, both, waits)


LOOKED_AT = 50  # how many runs are searched


def waits(run: Run) -> bool:
    """Return True if the run waits in the queue. If it is not queued, this costs only one call of `stat`."""
    return run.queue_file.exists() and run.state == WAITING


def newest_runs(waits: Callable[[Run], bool] = waits, of: Iterable[Run] | None = None) -> list[Run]:
    """Return the 50 newest runs that do not wait in the queue, of all runs `of` or those on the disk."""
    return list(islice((run for run in (runs.all_runs() if of is None else of) if not waits(run)), LOOKED_AT))


TAIL_BYTES = 16384


def last_event(run: Run, kind: type[E], suits: Callable[[E], bool] = lambda _event: True) -> E | None:
    """Return the last event of this type that `suits`; None if there is none near the end of the file."""
    lines = last_lines(run.file(EVENTS_FILE), TAIL_BYTES)
    events = (parse_line(line) for line in reversed(lines) if f'"type":"{kind.type}"'.encode() in line)
    return next((event for event in events if isinstance(event, kind) and suits(event)), None)


def share_done(progress: Progress | None) -> float | None:
    """Return the share of its steps that a run has done, from 0 to 1; None if it is not known."""
    if progress is None or progress.step is None or not progress.steps:
        return None
    return min(1.0, progress.step / progress.steps)
