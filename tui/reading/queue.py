"""The queue as its viewers see it: which runs wait, in which order and why, and about when each starts.

It reads small files, and is called in a thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.files.values import mapping, text, whole
from ...engine.job import this_machine
from ...engine.queue import any_entry, entries, free_devices
from ...engine.queue.entries import Entry
from ...engine.queue.listing_reader import ListingReader
from . import queue_times
from .queue_places import Queue, Waiting

_reader, _times = ListingReader(), queue_times.StartTimes()


def read() -> Queue:
    """Return the queue as it is now. Without an entry it costs the listing of one folder."""
    if not any_entry():
        return Queue()
    _reader.read()
    listed, paused, news = _reader.listing.entries, entries.is_paused(), entries.news()
    reasons = mapping(news.get("why"))
    begun = [entry for entry in listed if entry.state not in entries.WAITS]
    starts = _times.starts_in(listed, news)
    waiting: dict[str, Waiting] = {}
    waits = len(listed) - len(begun)
    count = gpus() if waits else 0
    for place, entry in enumerate((entry for entry in listed if entry.state in entries.WAITS), 1):
        held = entry.state == "held"
        why = "the queue is paused" if paused and not held else why_of(entry, reasons)
        when = queue_times.when_text(starts[entry.run])
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
