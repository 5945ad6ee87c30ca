"""Turns among the users of a machine: whose run starts next, and which run gives its devices to another user.

The turns are a courtesy: each user's runner writes a ticket and reads the tickets of the others (leases/tickets.py).
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Collection, Sequence

from ..leases import lease, tickets
from ..leases.tickets import Ticket
from ..system.descendants import descends
from ..system.identity import Process
from . import free_devices
from .entries import Entry
from .free_devices import CPU, Device

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
