"""The queue as its viewers see it: which runs wait, in which order and why, and about when the next run starts.

It reads small files, and is called in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.files.values import mapping, number, text, whole
from ...engine.job import this_machine
from ...engine.queue import any_entry, entries, free_devices
from ...engine.queue.entries import Entry
from ...engine.queue.jobs import ProofJob
from ...engine.queue.listing_reader import ListingReader
from ...engine.units import clock
from .last_events import last_progress
from .queue_places import Queue, Waiting

_reader = ListingReader()


def read() -> Queue:
    """Return the queue as it is now. Without an entry it costs the listing of one folder."""
    if not any_entry():
        return Queue()
    _reader.read()
    listed, paused = _reader.listing.entries, entries.is_paused()
    reasons = mapping(entries.news().get("why"))
    begun = [entry for entry in listed if entry.state not in entries.WAITS]
    left = [left_of(entry) for entry in begun]
    soonest = min((seconds for seconds in left if seconds is not None), default=None) if None not in left else None
    waiting: dict[str, Waiting] = {}
    waits = len(listed) - len(begun)
    count = gpus() if waits else 0
    for place, entry in enumerate((entry for entry in listed if entry.state in entries.WAITS), 1):
        held = entry.state == "held"
        why = "the queue is paused" if paused and not held else why_of(entry, reasons)
        when = f"in about {clock(soonest)}" if soonest is not None and place == 1 and not (held or paused) else ""
        needs, after = free_devices.needs_text(entry, count), entry.after or ""
        waiting[entry.run] = Waiting(entry.run, place, held, why, when, needs, entry.waits_since, after, waits)
    return Queue(waiting, len(begun))


def why_of(entry: Entry, reasons: Mapping[str, Any]) -> str:
    """Return why an entry waits, by the reasons that the runner has written."""
    if entry.state == "held":
        return entry.hold_reason
    if entry.state == "waiting":
        return text(reasons.get(entry.run)) or "the runner has not looked at it yet"
    return "gives way, and returns to the queue" if entry.yields else ""


def left_of(entry: Entry) -> float | None:
    """Return the expected seconds until a run or measurement that has begun ends. None if they are not known."""
    if isinstance(entry.job, ProofJob):
        return entry.job.seconds_left()
    return number(last_progress(entry.folder).get("eta_seconds"))


def place_text(entry: Entry) -> str:
    """Return the place of a new entry, and what it waits for, in one line."""
    listed: Sequence[Entry] = [other for other in entries.all_entries() if other.state in entries.WAITS]
    place = next((number for number, other in enumerate(listed, 1) if other.run == entry.run), 1)
    needs = free_devices.needs_text(entry, gpus())
    if entries.is_paused():
        why = "the queue is paused; gputui queue start goes on"
    elif entry.after:
        why = f"it waits for {entry.after} to end"
    elif place > 1:
        why = f"{listed[place - 2].run} is before it"
    else:
        running = [other.run for other in entries.all_entries() if other.state not in entries.WAITS]
        why = f"{running[-1]} was started before it" if running else "it starts as soon as that is free"
    return f"place {place} in the queue, needs {needs}: {why}"


def gpus() -> int:
    """The number of GPUs of this machine: as the queue's runner has counted them, else as they are read now."""
    counted = whole(entries.news().get("gpus"))
    return len(this_machine.read().gpus) if counted is None else counted
