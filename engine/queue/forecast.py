"""Estimates when the waiting runs of the queue start: it repeats the runner's choice for the moments at which runs are
expected to end.

Nothing is read here. A start is None if it depends on something that is not known.
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

from ..files.reading import read_object
from ..files.values import mapping, number, text
from ..leases import lease, tickets
from ..leases.tickets import Ticket
from ..runs import Run, titles
from ..system.descendants import descends
from ..system.identity import Process
from . import free_devices
from .entries import Entry
from .free_devices import CPU, Device


@dataclass(frozen=True)
class Begun:
    """A run or another program that uses devices now, by the names in `devices`.

    `seconds_left` is None if its end is not known. `is_queued` is True for a run of this queue, whose devices count for
    the setting `most`. `per_gpu` is the number of runs among which it shares its GPU.
    """

    run: str
    devices: frozenset[str] = frozenset()
    seconds_left: float | None = None
    is_queued: bool = True
    per_gpu: int = 1


@dataclass(frozen=True)
class Expected:
    """A waiting run. It takes `count` of the devices in `usable`, the first ones that are free.

    `seconds` returns its expected duration, None if it is not known. `after` is the id of a run that has to end first,
    else empty. `is_held` is True if it does not start by itself, and `is_delayed` if it waits for something other than
    devices, such as another user's turn. `per_gpu` is the number of runs among which it shares its GPU.
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
    """Return for each waiting run, by its id, the seconds until it is expected to start; None if that is not known.

    `waiting` are the runs in the order of the queue, `begun` the present users of the devices. `most` is the number of
    devices that runs of the queue may have at once (None: no limit). `opens_in(s)` returns for how many seconds no run
    is started, counted from the moment in `s` seconds.
    """
    forecast = _Forecast(begun, most)
    left, now = list(waiting), 0.0
    while left:
        if closed := opens_in(now):
            now += closed
        forecast.release(now)
        left = forecast.walk(left, now)
        ends = [end for end in forecast.ends.values() if end is not None]
        if not ends:
            break
        now = max(now, min(ends))
    return {run.run: forecast.starts.get(run.run) for run in waiting}


class _Forecast:
    """The devices and the runs at a moment of the forecast, which `release` and `walk` move on.

    `begun` are the users of the devices at the beginning, and `most` is the number of devices that runs of the queue
    may have at once.
    """

    def __init__(self, begun: Sequence[Begun], most: int | None) -> None:
        self._begun, self._most = {each.run: each for each in begun}, most
        self.ends: dict[str, float | None] = {each.run: each.seconds_left for each in begun}  # of runs that still run
        self.starts: dict[str, float | None] = {}
        self._never: set[str] = set()  # the runs that are held, wait for such a run, or lack devices
        # The devices that may become free, or be taken, at a moment that is not known.
        self._open = {name for each in begun if each.seconds_left is None for name in each.devices}

    def release(self, now: float) -> None:
        """Remove the runs whose end is expected by `now` (seconds from the beginning), so that their devices are
        free.
        """
        for name in [name for name, end in self.ends.items() if end is not None and end <= now]:
            del self.ends[name]

    def walk(self, waiting: Sequence[Expected], now: float) -> list[Expected]:
        """Start the runs that can start at `now` (seconds from the beginning). Return those that still wait and whose
        start can still be known.

        As in the runner, devices for which a run waits are kept from the runs after it.
        """
        names, left, kept = {run.run for run in waiting}, list[Expected](), set[str]()
        for run in waiting:
            if run.is_held or run.after in self._never or run.count > len(run.usable):
                self._never.add(run.run)
            elif run.after and None in (self.starts.get(run.after, now), self.ends.get(run.after, now)):
                self._lose(run)
            elif (
                run.after in self.ends
                or (run.after in names and run.after not in self.starts)
                or self._starts_or_waits(run, now, kept)
            ):
                left.append(run)
        return left

    def _starts_or_waits(self, run: Expected, now: float, kept: set[str]) -> bool:
        """Start a run at `now` if it can start. Return True if it waits, False if it has started or its start cannot be
        known.

        `kept` has the names of the devices that are kept for a run before it. The devices that are kept for this run
        are added: if it waits for whole GPUs, also shared ones, on which no more runs begin.
        """
        begun = {name: self._numbers_on(name) for name in run.usable if name not in kept}
        free = [name for name, numbers in begun.items() if _has_room(run.per_gpu, numbers)]
        free.sort(key=lambda name: bool(begun[name]))
        is_enough = run.count <= len(free)
        chosen = free[: run.count] if is_enough else free
        shared = [name for name in begun if name not in chosen and any(number > 1 for number in begun[name])]
        lacking = sorted(shared, key=lambda name: len(begun[name]))[: run.count - len(chosen)]
        more = len({*chosen} - self._queued_devices())
        is_over = is_enough and self._most is not None and len(self._queued_devices()) + more > self._most
        is_lost = run.is_delayed or self._depends_on_unknown(run, now, is_enough, is_over)
        if is_enough and not (is_over or is_lost):
            self._start(run, chosen, now)
            return False
        kept.update(chosen, lacking)
        if is_lost:
            self._lose(run)
        return not is_lost

    def _numbers_on(self, device: str) -> list[int]:
        return [self._begun[run].per_gpu for run in self.ends if device in self._begun[run].devices]

    def _queued_devices(self) -> set[str]:
        going_on = (self._begun[name] for name in self.ends)
        return {name for each in going_on if each.is_queued for name in each.devices}

    def _depends_on_unknown(self, run: Expected, now: float, is_enough: bool, is_over: bool) -> bool:
        """Return True if the start of a run may be at another moment than `now`, because the end of another run is not
        known.

        `is_enough`: enough of its devices are free. `is_over`: it would have more devices than the queue may have at
        once. A run that can start at the first moment starts in any case.
        """
        if is_enough and is_over:
            return any(end is None and self._begun[name].is_queued for name, end in self.ends.items())
        return not (is_enough and not now) and not self._open.isdisjoint(run.usable)

    def _lose(self, run: Expected) -> None:
        """Record that the start of a run cannot be known. It may then take each of its devices at any moment."""
        self.starts[run.run] = None
        self._open |= set(run.usable)

    def _start(self, run: Expected, chosen: Sequence[str], now: float) -> None:
        seconds = run.seconds()
        self.starts[run.run] = now
        self.ends[run.run] = None if seconds is None else now + seconds
        self._begun[run.run] = Begun(run.run, frozenset(chosen), seconds, per_gpu=run.per_gpu)
        if seconds is None:
            self._open |= set(chosen)


def _has_room(per_gpu: int, begun: Sequence[int]) -> bool:
    """Return True if a run that shares its GPU among `per_gpu` runs can start on a device. `begun` has this number of
    each run that uses the device.
    """
    return not begun or (len(begun) < per_gpu and all(number == per_gpu for number in begun))


MOST_RUNS = 200  # runs that are read, the newest first
MOST_COMPARED = 9
# Changed options with which a run takes as long as without.
_OTHER = ("device.visible", "train.seed", "train.learning_rate", "run.give_way", "run.tries", "run.code", "run.on_oom")


class Durations:
    """The durations of earlier runs, which are read from their folders once.

    `earlier` has the newest run first; runs that have not completed do not count.
    """

    def __init__(self, earlier: Iterable[Run]) -> None:
        self._seconds: dict[str, list[float]] = {}
        for run in earlier:
            if (seconds := _seconds(run, _written(run, "result.json"))) is not None:
                self._seconds.setdefault(_compared(run), []).append(seconds)

    def expected_seconds(self, run: Run) -> float | None:
        """Return the median duration of the newest runs with the preset and the changed options of `run`, None if
        there is none.

        Options that do not change the duration, such as the seed, are not compared.
        """
        seconds = self._seconds.get(_compared(run), [])[:MOST_COMPARED]
        return median(seconds) if seconds else None


def _compared(run: Run) -> str:
    return _compared_at(run, _written(run, titles.FILE))


@lru_cache(4 * MOST_RUNS)
def _compared_at(run: Run, _written_at: float) -> str:
    origin = read_object(run.file(titles.FILE)).value
    changes = {key: mapping(change).get("to") for key, change in mapping(origin.get("changes")).items()}
    others = {key: value for key, value in sorted(changes.items()) if key not in _OTHER}
    return json.dumps([text(origin.get("preset")) or titles.name_of(run), others])


@lru_cache(4 * MOST_RUNS)
def _seconds(run: Run, written_at: float) -> float | None:
    return number(run.whole_result.get("seconds")) if written_at and run.has_completed() else None


def _written(run: Run, name: str) -> float:
    try:
        return run.file(name).stat().st_mtime
    except OSError:
        return 0.0


TURN_SECONDS = 60.0  # for which free devices are left to another user
ASKED_AFTER_SECONDS = 10.0  # a run gives way to another user who has waited for so long
LEAST_RUNNING_SECONDS = 30.0  # a run is not asked to give way sooner


class FairShare:
    """Decides the turns of this user's queue by the user's own ticket and the tickets of the others."""

    def __init__(self) -> None:
        self._me = lease.user_name(os.geteuid())
        self._ours: Ticket | None = None
        self._others: Sequence[Ticket] = ()
        self._held: Counter[str] = Counter()
        self._released: frozenset[str] = frozenset()
        self._released_at = 0.0

    def exchange_tickets(self, waiting: Sequence[Entry], gpus: int) -> None:
        """Write the ticket of this user, for the first run in `waiting`, and read the tickets of the others.

        `waiting` are the runs that could start. If it is empty, the ticket is removed. `gpus` is the machine's number
        of GPUs.
        """
        ours = None
        if waiting:
            first, on_cpu = waiting[0], waiting[0].needs == CPU or not gpus
            ours = Ticket(self._me, len(waiting), free_devices.count(first, gpus), first.waits_since, on_cpu)
        if ours != self._ours or (ours and not tickets.is_shown()):  # another home's runner may have removed it
            tickets.write(ours) if ours else tickets.remove()
        self._ours, self._others = ours, tickets.of_others()
        self._held = (
            Counter(who.user for who in lease.holders().values() if not who.stuck) if self._others else Counter()
        )

    def close(self) -> None:
        """Remove the ticket of this user."""
        if self._ours is not None:
            tickets.remove()

    def turn_of(self, free: Collection[str], number: int) -> str:
        """Return the user to whom the free devices are left; empty if this user may take `number` of them. A `number`
        of 0 is for a run that is to share a GPU with runs that have begun: its place is left to a user for whom too few
        devices are free.

        `free` has the names of all free devices. They are left to a user whose turn is first only if they are enough
        for that user but not for both, and for at most 60 s after another device has become free.
        """
        if not self._released >= frozenset(free):
            self._released_at = time.monotonic()
        self._released = frozenset(free)
        if self._ours is not None and not number:
            waiting = tickets.before(self._ours, self._others, self._held)
            return next((each.user for each in waiting if each.devices > len(free)), "")
        if self._ours is None or time.monotonic() - self._released_at >= TURN_SECONDS:
            return ""
        first = tickets.before(self._ours, self._others, self._held)
        return next((each.user for each in first if each.devices <= len(free) < each.devices + number), "")

    def to_give_way(self, running: Sequence[Entry], seen: Sequence[Device], free: int) -> dict[str, str]:
        """Return the reason for each of the `running` runs that is to give its devices to another user, by the run's
        id.

        A run gives way only if its option run.give_way is set and it has run for 30 s. The reason is a foreign process
        on one of its GPUs (`seen` are the devices), or a user who has waited for 10 s, has fewer devices than this
        user, and for whom the `free` free devices are too few.
        """
        able = [entry for entry in running if entry.gives_way and not entry.yields and _is_long_enough(entry)]
        asked = {entry.run: why for entry in able if (why := _strangers(entry, seen))}
        for ticket in self._others:
            is_waiting = time.time() - ticket.since >= ASKED_AFTER_SECONDS and free < ticket.devices
            if not is_waiting or self._held[ticket.user] >= self._held[self._me]:
                continue
            fitting = [entry for entry in able if ticket.on_cpu == (CPU in entry.devices)]
            given, chosen = free, []
            for entry in sorted(fitting, key=lambda entry: -entry.place):
                together = [other for other in running if set(other.devices) & set(entry.devices)]
                if given < ticket.devices and entry not in chosen and all(other in fitting for other in together):
                    given += len(entry.devices)
                    chosen += together  # all runs that share its GPU
            if given >= ticket.devices:
                asked |= {entry.run: f"{ticket.user} waits for it" for entry in chosen}
        return asked


def _is_long_enough(entry: Entry) -> bool:
    return time.time() - (entry.started_at or 0.0) >= LEAST_RUNNING_SECONDS


def _strangers(entry: Entry, seen: Sequence[Device]) -> str:
    """Return in words which process that the run has not started uses one of its GPUs. `seen` are all devices.

    Empty if there is none, or if the driver does not report the users of processes.
    """
    engine = Process.read(entry.folder.status, "engine")
    for device in seen:
        if device.name in entry.devices and engine is not None:
            for user in device.users:
                if user.user and not descends(user.pid, (engine.pid,)):
                    return f"{device} is used by {user}"
    return ""
