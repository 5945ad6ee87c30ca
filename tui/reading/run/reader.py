"""Reads a run folder in a thread of its own, and makes snapshots. A follower merges the two files of events while
reading, a limited number at a time, so that a long run opens quickly and in little memory; a replay keeps the original
pace."""

from __future__ import annotations

import heapq
import re
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from operator import attrgetter
from pathlib import Path

from ....engine.files.reading import GrowingFile, bytes_of, why
from ....engine.runs import Follower, Run
from ....engine.runs.event_reading import Damage, Tail
from ....engine.runs.events import EVENT_FILES, Event
from ....engine.runs.parsing import parse_line
from ...base.errors import clean
from .snapshot import Snapshot, Store

EVENTS_A_READ = 4000
PARSED_BYTES = 3_000_000  # of a backlog larger than this, only part of the frequent readings is used
FRESH_BYTES = 200_000  # the end of a file is always read completely
LONGEST_PAUSE = 30.0
_DENSE = re.compile(rb'\{"t":[0-9.]+,"type":"(gpu|host|allocator|progress|input_stages)"')


class _ThinnedTail(Tail):
    """Reads the new events of one file. If very many are unread, it leaves out most of the frequent readings."""

    def __init__(self, path: Path, thin: bool) -> None:
        super().__init__(path)
        self._thin = thin
        self._seen: Counter[bytes] = Counter()

    def events(self) -> Iterator[Event]:
        file, every = self._file, 0
        try:
            for line in file.lines():
                begin = file.offset - len(line)
                every = every or (1 + (file.size - begin) // PARSED_BYTES if self._thin else 1)
                dense = _DENSE.match(line) if every > 1 else None
                if dense is not None and file.size - file.offset >= FRESH_BYTES:
                    self._seen[dense[1]] += 1
                    if self._seen[dense[1]] % every:
                        continue
                if (event := parse_line(line)) is not None:
                    yield event
                elif line.strip():
                    self.damage.add(begin)
            self.damage.unreadable = ""
        except FileNotFoundError:
            return
        except OSError as fault:  # the file is opened again at the next reading
            self.damage.unreadable = why(fault)


class MergedTail(Tail):
    """Reads both event files of a run as one, ordered by time. Each call reads a limited number of events."""

    def __init__(self, run: Run, *, thin: bool = True) -> None:
        self._files = [_ThinnedTail(run.file(name), thin) for name in EVENT_FILES]
        self._running: Iterator[Event] = iter(())
        self.behind = False  # the files hold more than the last reading gave

    @property
    def damages(self) -> list[Damage]:
        return [file.damage for file in self._files]

    def read(self) -> list[Event]:
        if taken := self._take():
            return taken
        self._running = heapq.merge(*(file.events() for file in self._files), key=attrgetter("t"))
        return self._take()

    def _take(self) -> list[Event]:
        taken = [event for _, event in zip(range(EVENTS_A_READ), self._running, strict=False)]
        self.behind = len(taken) == EVENTS_A_READ
        return taken


class Replay:
    """Returns the recorded events again, `speed` times as fast as they were recorded. The pause before a resume is
    shortened. `clock` returns the present time in seconds; only differences matter."""

    def __init__(self, run: Run, speed: float, clock: Callable[[], float]) -> None:
        self._tail = MergedTail(run, thin=False)
        self._speed, self._clock, self._began = speed, clock, clock()
        self._waiting: deque[Event] = deque(self._tail.read())
        self._first = self._waiting[0].t if self._waiting else 0.0
        self.ended = False

    def now(self) -> float:
        return float(self._first + (self._clock() - self._began) * self._speed)

    def poll(self) -> list[Event]:
        due: list[Event] = []
        while self._waiting and self._waiting[0].t <= self.now():
            due.append(self._waiting.popleft())
            if not self._waiting:
                self._waiting.extend(self._tail.read())
        if self._waiting and (pause := self._waiting[0].t - self.now()) > LONGEST_PAUSE * max(1.0, self._speed):
            self._first += pause
        self.ended = not self._waiting
        return due


@dataclass(frozen=True)
class Picture:
    """All data that a screen needs to paint itself: the snapshot of the run and the end of its log."""

    snapshot: Snapshot = field(default_factory=Snapshot)
    log: tuple[str, ...] = ()
    log_arrived: tuple[float, ...] = ()  # when each line was seen; 0 for those that stood there before
    log_count: int = 0
    reading: bool = True  # the disk has more than was read so far


class RunReader:
    """Reads one run for one viewer. One thread calls `poll`. Any thread may read `picture`, the newest data for the
    screen."""

    def __init__(self, run: Run, replay_speed: float | None = None, clock: Callable[[], float] | None = None) -> None:
        self.run = run
        self._newest_t, self._seen_at = 0.0, time.monotonic()  # of the newest event, and when it was read
        self._clock = clock or (lambda: self._newest_t + time.monotonic() - self._seen_at)
        self._sizes_at_end: tuple[int | None, ...] = ()
        self.picture = Picture()
        self._store = Store()
        self._log = LogTail(run.file("engine.log"))
        self._replay = Replay(run, replay_speed, clock or time.monotonic) if replay_speed else None
        self._merged = MergedTail(run)
        self._follower = Follower(run, tails=[self._merged])

    @property
    def ended(self) -> bool:
        return (self._replay or self._follower).ended

    def poll(self) -> bool:
        """Read the new events and log lines and make a new picture. Return True if there is more to read at once."""
        if self.ended:  # a run may have been resumed, and may have ended again since the last reading
            if self._replay is not None or not (self.run.alive("engine") or self._sizes() != self._sizes_at_end):
                return False
            self._follower.ended = False
        fresh = (self._replay or self._follower).poll()
        self._store.feed(fresh)
        if fresh:
            self._newest_t, self._seen_at = max(event.t for event in fresh), time.monotonic()
        self._log.poll()
        # The follower holds the end back until there is no other event.
        holds_end = bool(fresh) and not self.ended and not self.run.is_active
        behind = self._replay is None and (self._merged.behind or holds_end)
        now = self._replay.now() if self._replay else self._clock()
        snapshot = self._store.snapshot(None if behind else now)
        # A new engine moves the result away at its start.
        is_live = self._replay is None and snapshot.phase == "ended" and snapshot.outcome is None
        if is_live and (self.run.liveness.starting or not self.run.file("result.json").exists()):
            snapshot = replace(snapshot, phase="starting", phase_detail="")
        whole = self.run.whole_result if self.ended and self._replay is None else {}
        if snapshot.summary and (seconds := whole.get("seconds")) is not None:  # as in the table of runs
            summary = replace(snapshot.summary, seconds=seconds, goodput=whole.get("goodput"))
            snapshot = replace(snapshot, elapsed=seconds, summary=summary)
        self.picture = Picture(snapshot, self._log.lines, self._log.arrived, self._log.count, behind)
        self._sizes_at_end = self._sizes() if self.ended else ()
        return behind

    def _sizes(self) -> tuple[int | None, ...]:
        # They grow after the end of the run if it was resumed meanwhile.
        return () if self._replay is not None else tuple(bytes_of(self.run.file(name)) for name in EVENT_FILES)


LOG_LINES = 2000
LOG_BYTES = 400_000


class LogTail:
    """The last lines of engine.log, without characters that control the terminal. `lines` is the same object until
    there are new lines. `arrived` has for each line the Unix time at which it was read, 0 for lines of the first
    reading."""

    def __init__(self, path: Path) -> None:
        self._file = GrowingFile(path)
        self._begun = False
        self._kept: deque[str] = deque(maxlen=LOG_LINES)
        self._arrived: deque[float] = deque(maxlen=LOG_LINES)
        self.lines: tuple[str, ...] = ()
        self.arrived: tuple[float, ...] = ()
        self.count = 0

    def poll(self) -> None:
        now, first = time.time() if self._begun else 0.0, 0
        try:
            if not self._begun:
                self._file.offset = max(0, self._file.path.stat().st_size - LOG_BYTES - 1)
                self._begun, first = True, int(self._file.offset > 0)  # the rest of a line is left out
            block = self._file.block(LOG_BYTES)
        except OSError:
            return
        if block:
            lines = block.decode("utf-8", "replace").split("\n")[first:-1]
            fresh = [clean(line.rstrip("\r").rpartition("\r")[2].expandtabs(8)) for line in lines]
            self._kept.extend(fresh)
            self.count += len(fresh)
            self._arrived.extend([now] * len(fresh))
            self.lines, self.arrived = tuple(self._kept), tuple(self._arrived)
