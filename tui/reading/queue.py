"""The queue as its viewers see it: which runs wait, in which order and why, and about when each starts. Functions read
small files, and are to be called in a thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache, lru_cache, partial
from itertools import islice
from pathlib import Path

from ...engine import runs
from ...engine.job import this_machine
from ...engine.queue import entries, queue_devices, queue_settings
from ...engine.queue.entries import Entry, ListingReader, News
from ...engine.queue.forecast import MOST_RUNS, Begun, Durations, Expected, start_times
from ...engine.queue.jobs import Job, ProofJob, RunJob, job_of, state_if_not_ended
from ...engine.queue.queue_settings import Settings
from ...engine.runs import Run, titles
from ...engine.runs.events import Progress
from ...engine.runs.run import PROOF
from ...engine.units import clock
from .queue_places import Queue, Waiting, last_event

FORECAST_SECONDS = 5.0


def starts_in(listed: Sequence[Entry], news: News) -> dict[str, float | None]:
    """Return the seconds until each waiting entry starts, None if unknown: of runs that Slurm starts, without devices
    in the runner's `news`, or in a paused queue."""
    unknown = dict.fromkeys(entry.run for entry in listed if entry.state in entries.WAITS)
    if entries.is_paused() or not news.devices:
        return unknown
    return unknown | _starts_in([entry for entry in listed if not entry.is_of_slurm], news)


class StartTimes:
    """The start times for screens, which ask often: forecast again after 5 s, or if the queue changes."""

    def __init__(self) -> None:
        self._listed: Sequence[Entry] = ()
        self._news = News()
        self._starts: dict[str, float | None] = {}
        self._at = float("-inf")

    def starts_in(self, listed: Sequence[Entry], news: News) -> dict[str, float | None]:
        age = time.monotonic() - self._at
        if listed is not self._listed or news != self._news or age >= FORECAST_SECONDS:
            self._starts, self._listed, self._news = starts_in(listed, news), listed, news
            self._at, age = time.monotonic(), 0.0
        return {name: None if start is None else max(0.0, start - age) for name, start in self._starts.items()}


def when_text(seconds: float | None) -> str:
    """Return in words when a run starts, such as `soon` or `in about 4:10`; empty for None."""
    return "" if seconds is None else f"in about {clock(seconds)}" if seconds >= 1 else "soon"


def _starts_in(listed: Sequence[Entry], news: News) -> dict[str, float | None]:
    devices, now = news.devices, time.time()
    gpus, settings = queue_devices.shown_at_once(devices), _settings(queue_settings.path(), queue_settings.stamp())

    @cache
    def durations() -> Durations:
        queued = {entry.run for entry in listed}
        return Durations(islice((run for run in runs.all_runs() if run.id not in queued), MOST_RUNS))

    def seconds(entry: Entry) -> float | None:  # by its own last estimate, else as earlier runs did
        if isinstance(entry.job, ProofJob):
            return entry.job.limit_seconds()
        progress = last_event(entry.folder, Progress) if entry.state != "running" else None
        own = progress.eta_seconds if progress else None
        return durations().expected_seconds(entry.folder) if own is None else own

    leased: dict[str, set[str]] = {}
    for device in devices:
        if device.holder:
            leased.setdefault(Path(device.run).name or device.name, set()).add(device.name)
    paths = [Path(device.run) for device in devices if device.run]
    jobs: dict[str, Job] = {
        path.name: ProofJob(path) if (path / ProofJob.first_file).exists() else RunJob(path) for path in paths
    }
    begun = {}
    for entry in listed:
        if entry.state in entries.WAITS:
            continue
        mine = frozenset(leased.pop(entry.run, ())) | frozenset(entry.devices)
        if mine or entry.kind == PROOF:  # a sweep has none, and others may wait for its end
            left = _left_of(entry.job)
            if left is None and (whole := seconds(entry)) is not None:
                left = max(0.0, whole - (now - (entry.started_at or now)))
            begun[entry.run] = Begun(entry.run, mine, left, per_gpu=entry.per_gpu)
    queued = {name for each in begun.values() for name in each.devices}
    for key, names in leased.items():
        if others := names - queued:
            begun[key] = Begun(key, frozenset(others), _left_of(jobs[key]) if key in jobs else None, False)
    for after in {entry.after for entry in listed if entry.after} - {entry.run for entry in listed}:
        if after not in begun and state_if_not_ended(after):
            begun[after] = Begun(after, seconds_left=_left_of(job_of(after)), is_queued=False)
    # One that is being started and has no devices yet takes its own before all that wait.
    expected = []
    for entry in sorted(listed, key=lambda entry: entry.state in entries.WAITS):
        if entry.state in entries.WAITS or (entry.state == "starting" and entry.run not in begun):
            able = [device.name for device in queue_devices.allowed(queue_devices.usable(entry, devices), settings)]
            count, after, is_held = queue_devices.count(entry, gpus), entry.after or "", entry.state == "held"
            expected.append(Expected(entry.run, able, count, partial(seconds, entry), after, is_held,
                                     entry.run in news.delayed, entry.per_gpu))  # fmt: skip
    starts = start_times(expected, list(begun.values()), settings.most, lambda passed: settings.opens_in(now + passed))
    return {entry.run: starts[entry.run] for entry in listed if entry.state in entries.WAITS}


@lru_cache(1)
def _settings(_path: Path, _written_at: float) -> Settings:
    return queue_settings.read()  # again only if the file has changed: the screens ask every second


def _left_of(job: Job) -> float | None:
    if isinstance(job, ProofJob):
        return job.seconds_left()
    progress = last_event(Run(job.path), Progress)
    return progress.eta_seconds if progress else None


_reader, _times = ListingReader(), StartTimes()


def read() -> Queue:
    _reader.read()
    listed, paused, news = _reader.listing.entries, entries.is_paused(), entries.news()
    reasons = news.why
    begun = [entry for entry in listed if entry.state not in entries.WAITS and entry.kind != PROOF]
    starts = _times.starts_in(listed, news)
    waiting: dict[str, Waiting] = {}
    places = places_of(listed)
    waits = len(places)
    count = gpus() if waits else 0
    for entry in (entry for entry in listed if entry.state in entries.WAITS):
        held, place = entry.state == "held", places.get(entry.run)
        why = entries.PAUSED_REASON if paused and place and not held else why_of(entry, reasons)
        when = when_text(starts[entry.run])
        needs, after = queue_devices.needs_text(entry, count), entries.name_of(entry.after) if entry.after else ""
        waiting[entry.run] = Waiting(entry.name, place, held, why, when, needs, entry.waits_since, after, waits)
    return Queue(waiting, len(begun))


def places_of(listed: Sequence[Entry]) -> dict[str, int]:
    """Return the places, from 1 on, of the waiting entries by their ids. Those that are held come last, as the others
    pass over them. An entry that Slurm starts has no place."""
    waiting = [entry for entry in listed if entry.state in entries.WAITS and not entry.is_of_slurm]
    waiting.sort(key=lambda entry: entry.state == "held")
    return {entry.run: place for place, entry in enumerate(waiting, 1)}


def why_of(entry: Entry, reasons: Mapping[str, str]) -> str:
    """Return in words why an entry waits; empty if it has begun, unless it was asked to give way. `reasons` are those
    that the runner has written, by id."""
    if entry.state == "held":
        return entry.hold_reason
    if entry.state == "waiting":
        in_slurm = f"waits in Slurm as job {entry.slurm_job}" if entry.slurm_job else ""
        why = reasons.get(entry.run)
        why = None if why and why.startswith("held") else why  # from before it was released
        return why or in_slurm or "its turn is not decided yet"
    return "gives way, and returns to the queue" if entry.yields else ""


def title_of(entry: Entry) -> str:
    return f"{entry.what} of {entry.group}" if entry.kind == PROOF else titles.with_name(entry.folder)


def place_text(entry: Entry, name: Callable[[Entry], str] = lambda entry: entry.name) -> str:
    """Return the place of a new entry, or its job of Slurm, and what it waits for. `name` names another entry."""
    if entry.is_of_slurm:
        after = f"; it waits for {entries.name_of(entry.after)} to end" if entry.after else ""
        return f"submitted to Slurm as job {entry.slurm_job}, needs {queue_devices.needs_text(entry, 0)}{after}"
    everything = entries.all_entries()
    places = places_of(everything)
    place = places.get(entry.run, 1)
    before = [other for other in everything if other.state == "waiting" and places.get(other.run, place) < place]
    needs = queue_devices.needs_in_full(entry, gpus())
    if entries.is_paused():
        why = entries.PAUSED_REASON
    elif entry.after:
        why = f"it waits for {entries.name_of(entry.after)} to end"
    elif before:
        why = f"{name(before[-1])} is before it"
    else:
        running = [other for other in everything if other.state not in entries.WAITS and not other.is_of_slurm]
        why = f"{name(running[-1])} was started before it" if running else "it starts as soon as that is free"
    return f"place {place} in the queue, needs {needs}: {why}"


def gpus() -> int:
    """Return the number of GPUs: as the queue's runner has counted them or, without a runner, as they are read now."""
    counted = entries.news().gpus
    return len(this_machine.read().gpus) if counted is None else counted
