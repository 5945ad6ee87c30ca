"""The queue as its viewers see it: which runs wait, in which order and why, and about when each starts. Functions read
small files, and are to be called in a thread."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...engine.files.values import mapping, text, whole
from ...engine.job import this_machine
from ...engine.queue import any_entry, entries, free_devices
from ...engine.queue.entries import Entry, ListingReader
from ...engine.runs import titles
from ...engine.runs.run import PROOF
from . import queue_times
from .queue_places import Queue, Waiting

_reader, _times = ListingReader(), queue_times.StartTimes()


def read() -> Queue:
    """Return the queue as it is now. If it is empty, this costs only the listing of one folder."""
    if not any_entry():
        return Queue()
    _reader.read()
    listed, paused, news = _reader.listing.entries, entries.is_paused(), entries.news()
    reasons = mapping(news.get("why"))
    begun = [entry for entry in listed if entry.state not in entries.WAITS and entry.kind != PROOF]
    starts = _times.starts_in(listed, news)
    waiting: dict[str, Waiting] = {}
    places = places_of(listed)
    waits = len(places)
    count = gpus() if waits else 0
    for entry in (entry for entry in listed if entry.state in entries.WAITS):
        held, place = entry.state == "held", places.get(entry.run)
        why = entries.PAUSED_REASON if paused and place and not held else why_of(entry, reasons)
        when = queue_times.when_text(starts[entry.run])
        needs, after = free_devices.needs_text(entry, count), entries.name_of(entry.after) if entry.after else ""
        waiting[entry.run] = Waiting(entry.name, place, held, why, when, needs, entry.waits_since, after, waits)
    return Queue(waiting, len(begun))


def places_of(listed: Sequence[Entry]) -> dict[str, int]:
    """Return the places, from 1 on, of the waiting entries by their ids. An entry that Slurm starts has no place."""
    waiting = (entry.run for entry in listed if entry.state in entries.WAITS and not entry.is_of_slurm)
    return {run: place for place, run in enumerate(waiting, 1)}


def why_of(entry: Entry, reasons: Mapping[str, Any]) -> str:
    """Return in words why an entry waits; empty if it has begun, unless it was asked to give way. `reasons` are those
    that the runner has written, by id."""
    if entry.state == "held":
        return entry.hold_reason
    if entry.state == "waiting":
        in_slurm = f"waits in Slurm as job {entry.slurm_job}" if entry.slurm_job else ""
        why = text(reasons.get(entry.run))
        why = None if why and why.startswith("held") else why  # from before it was released
        return why or in_slurm or "the runner has not looked at it yet"
    return "gives way, and returns to the queue" if entry.yields else ""


def title_of(entry: Entry) -> str:
    return f"{entry.what} of {entry.group}" if entry.kind == PROOF else titles.with_name(entry.folder)


def place_text(entry: Entry, name: Callable[[Entry], str] = lambda entry: entry.name) -> str:
    """Return the place of a new entry, or its job of Slurm, and what it waits for. `name` names another entry."""
    if entry.is_of_slurm:
        after = f"; it waits for {entries.name_of(entry.after)} to end" if entry.after else ""
        return f"submitted to Slurm as job {entry.slurm_job}, needs {free_devices.needs_text(entry, 0)}{after}"
    everything = entries.all_entries()
    listed: Sequence[Entry] = [other for other in everything if other.state in entries.WAITS and not other.is_of_slurm]
    place = places_of(everything).get(entry.run, 1)
    before = [other for other in listed[: place - 1] if other.state == "waiting"]  # held runs are passed over
    needs = free_devices.needs_in_full(entry, gpus())
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
    counted = whole(entries.news().get("gpus"))
    return len(this_machine.read().gpus) if counted is None else counted
