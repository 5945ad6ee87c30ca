"""Estimates when the waiting runs of the queue start, by the runner's choice at the moments at which runs are expected
to end. A start is None if it depends on something that is not known.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import median

from ..files import typed
from ..files.reading import written_at
from ..leases import records
from ..leases.records import Ticket
from ..runs import Run, titles
from ..system.descendants import descends
from ..system.identity import Process
from . import queue_devices
from .entries import Device, Entry
from .queue_devices import CPU


@dataclass(frozen=True)
class Begun:
    """A run or another program that uses devices now. `seconds_left` is None if its end is not known. The devices of
    runs that are queued count for the setting `most`. `per_gpu` runs share its GPU.
    """

    run: str
    devices: frozenset[str] = frozenset()
    seconds_left: float | None = None
    is_queued: bool = True
    per_gpu: int = 1


@dataclass(frozen=True)
class Expected:
    """A waiting run, which takes the first `count` free devices of `usable`. `seconds` is None if not known. `is_held`:
    it does not start by itself. `is_delayed`: it waits for something other than devices.
    """

    run: str
    usable: Sequence[str]
    count: int
    seconds: Callable[[], float | None]
    after: str = ""
    is_held: bool = False
    is_delayed: bool = False
    per_gpu: int = 1


def start_times(
    waiting: Sequence[Expected],
    begun: Sequence[Begun],
    most: int | None = None,
    opens_in: Callable[[float], float] = lambda _seconds: 0.0,
) -> dict[str, float | None]:
    """The seconds until each waiting run (in the order of the queue) starts, by id; None if not known. At most `most`
    devices are taken at once; from the moment in `s` seconds no run is started for `opens_in(s)` seconds.
    """
    users = {each.run: each for each in begun}
    ends: dict[str, float | None] = {each.run: each.seconds_left for each in begun}  # of runs that still run
    starts: dict[str, float | None] = {}
    never: set[str] = set()  # the runs that are held, wait for such a run, or lack devices
    # The devices that may become free, or be taken, at a moment that is not known.
    unknown = {name for each in begun if each.seconds_left is None for name in each.devices}
    left, now = list(waiting), 0.0
    while left:
        if closed := opens_in(now):
            now += closed
        ends = {name: end for name, end in ends.items() if end is None or end > now}
        # As in the runner, devices for which a run waits are kept from the runs after it.
        names, kept, walked, left = {run.run for run in left}, set[str](), left, []
        for run in walked:
            if run.is_held or run.after in never or run.count > len(run.usable):
                never.add(run.run)
                continue
            if run.after and None in (starts.get(run.after, now), ends.get(run.after, now)):
                starts[run.run] = None
                unknown |= set(run.usable)
                continue
            if run.after in ends or (run.after in names and run.after not in starts):
                left.append(run)
                continue
            on = {name: [users[other].per_gpu for other in ends if name in users[other].devices]
                  for name in run.usable if name not in kept}  # fmt: skip
            free = [name for name, numbers in on.items()
                    if len(numbers) < run.per_gpu and all(number == run.per_gpu for number in numbers)]  # fmt: skip
            free.sort(key=lambda name: bool(on[name]))
            is_enough, chosen = run.count <= len(free), free[: run.count]
            queued = {name for other in ends if users[other].is_queued for name in users[other].devices}
            is_over = is_enough and most is not None and len(queued | {*chosen}) > most
            # The start may be at another moment than `now`, as the end of another run is not known. A run that can
            # start at the first moment starts in any case.
            if is_enough and is_over:
                is_lost = any(end is None and users[name].is_queued for name, end in ends.items())
            else:
                is_lost = not (is_enough and not now) and not unknown.isdisjoint(run.usable)
            is_lost |= run.is_delayed
            if is_enough and not (is_over or is_lost):
                seconds = run.seconds()
                starts[run.run], ends[run.run] = now, None if seconds is None else now + seconds
                users[run.run] = Begun(run.run, frozenset(chosen), seconds, per_gpu=run.per_gpu)
                unknown |= set(chosen if seconds is None else ())
                continue
            # If it waits for whole GPUs, no more runs begin on as many of the shared ones as it lacks.
            shared = [name for name in on if name not in chosen and any(number > 1 for number in on[name])]
            kept.update(chosen, sorted(shared, key=lambda name: len(on[name]))[: run.count - len(chosen)])
            if is_lost:
                starts[run.run] = None
                unknown |= set(run.usable)
            else:
                left.append(run)
        later = [end for end in ends.values() if end is not None]
        if not later:
            break
        now = max(now, min(later))
    return {run.run: starts.get(run.run) for run in waiting}


MOST_RUNS = 200  # runs that are read, the newest first
MOST_COMPARED = 9
# Changed options with which a run takes as long as without.
_OTHER = ("device.visible", "train.seed", "train.learning_rate", "run.give_way", "run.tries", "run.code", "run.on_oom")


class Durations:
    """The durations of completed earlier runs (the newest first), which are read from their folders once."""

    def __init__(self, earlier: Iterable[Run]) -> None:
        self._seconds: dict[str, list[float]] = {}
        for run in earlier:
            if (seconds := _seconds(run, written_at(run.file("result.json")))) is not None:
                self._seconds.setdefault(_compared(run), []).append(seconds)

    def expected_seconds(self, run: Run) -> float | None:
        """The median of the newest runs with its preset and its changes that matter; None without one."""
        seconds = self._seconds.get(_compared(run), [])[:MOST_COMPARED]
        return median(seconds) if seconds else None


def _compared(run: Run) -> str:
    return _compared_at(run, written_at(run.file(titles.FILE)))


@lru_cache(4 * MOST_RUNS)
def _compared_at(run: Run, _written_at: float) -> str:
    origin = typed.read_usable(run.file(titles.FILE), titles.Origin)
    changes = {key: change.get("to") for key, change in origin.changes.items()}
    others = {key: value for key, value in sorted(changes.items()) if key not in _OTHER}
    return json.dumps([origin.preset or titles.name_of(run), others])


@lru_cache(4 * MOST_RUNS)
def _seconds(run: Run, written_at: float) -> float | None:
    return run.whole_result.get("seconds") if written_at and run.has_completed() else None


TURN_SECONDS = 60.0  # for which free devices are left to another user
ASKED_AFTER_SECONDS = 10.0  # a run gives way to another user who has waited for so long
LEAST_RUNNING_SECONDS = 30.0  # a run is not asked to give way sooner


class FairShare:
    """Decides the turns of this user's queue by the user's own ticket and the tickets of the others."""

    def __init__(self) -> None:
        self._me = records.user_name(os.geteuid())
        self._ours: Ticket | None = None
        self._others: Sequence[Ticket] = ()
        self._held: Counter[str] = Counter()
        self._released: frozenset[str] = frozenset()
        self._released_at = 0.0

    def exchange_tickets(self, waiting: Sequence[Entry], gpus: int) -> None:
        """Write this user's ticket for the runs that could start (none: remove it); read the others'."""
        ours = None
        if waiting:
            first, on_cpu = waiting[0], waiting[0].needs == CPU or not gpus
            ours = Ticket(self._me, len(waiting), queue_devices.count(first, gpus), first.waits_since, on_cpu)
        if ours != self._ours or (ours and not records.has_ticket()):  # another home's runner may have removed it
            records.write_ticket(ours) if ours else records.remove_ticket()
        self._ours, self._others = ours, records.tickets_of_others()
        self._held = (
            Counter(who.user for who in records.holders().values() if not who.stuck) if self._others else Counter()
        )

    def close(self) -> None:
        if self._ours is not None:
            records.remove_ticket()

    def turn_of(self, free: Collection[str], number: int) -> str:
        """The user to whom the free devices (all in `free`) are left, for at most 60 s after another became free; empty
        if this user may take `number`, or 0: share a GPU with runs that have begun.
        """
        if not self._released >= frozenset(free):
            self._released_at = time.monotonic()
        self._released = frozenset(free)
        if self._ours is None or (number and time.monotonic() - self._released_at >= TURN_SECONDS):
            return ""
        count = sum((name == CPU) == self._ours.on_cpu for name in free)
        others = records.before(self._ours, self._others, self._held)
        first = (each for each in others if count < each.devices + number and (each.devices <= count or not number))
        return next((each.user for each in first), "")

    def to_give_way(self, running: Sequence[Entry], seen: Sequence[Device], free: Collection[str]) -> dict[str, str]:
        """Return why runs, by id, are to stop: a foreign process is on the GPU, or a user with fewer devices has waited
        for 10 s and `free` are too few. Only runs with run.give_way that have run for 30 s stop.
        """
        now = time.time()
        able = [entry for entry in running if entry.gives_way and not entry.yields
                and now - (entry.started_at or 0.0) >= LEAST_RUNNING_SECONDS]  # fmt: skip
        asked = {entry.run: why for entry in able if (why := _strangers(entry, seen))}
        for ticket in self._others:
            given, chosen = sum((name == CPU) == ticket.on_cpu for name in free), list[Entry]()
            is_waiting = now - ticket.since >= ASKED_AFTER_SECONDS and given < ticket.devices
            if not is_waiting or self._held[ticket.user] >= self._held[self._me]:
                continue
            fitting = [entry for entry in able if ticket.on_cpu == (CPU in entry.devices)]
            for entry in sorted(fitting, key=lambda entry: -entry.place):
                together = [other for other in running if set(other.devices) & set(entry.devices)]
                if given < ticket.devices and entry not in chosen and all(other in fitting for other in together):
                    given += len(entry.devices)
                    chosen += together  # all runs that share its GPU
            if given >= ticket.devices:
                asked |= {entry.run: f"{ticket.user} waits for it" for entry in chosen}
        return asked


def _strangers(entry: Entry, seen: Sequence[Device]) -> str:
    engine = Process.read(entry.folder.status, "engine")
    for device in seen:
        if device.name in entry.devices and engine is not None:
            for user in device.strangers:
                if user.user and not descends(user.pid, (engine.pid,)):
                    return f"{device} is used by {user}"
    return ""
