"""Tickets: which users of this machine wait for devices, so that the queues of several users take turns. Each user
writes one ticket into the folder of the leases. A ticket counts only while the process that has written it is alive,
and only if the file belongs to the user in its name. Tickets are a courtesy: nothing enforces the turns.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

from ..system.identity import Place, Process
from . import lease

_NAME = "ticket"


class _TicketRecord(TypedDict, total=False):
    entries: int
    devices: int
    since: float
    on_cpu: bool
    pid: int
    start_ticks: int


@dataclass(frozen=True)
class Ticket:
    """The first waiting run of a user: the number of devices that it needs, and since when it waits (Unix time).
    `on_cpu` is True if it needs the CPU, else it needs GPUs. `entries` is the number of the user's waiting runs.
    """

    user: str
    entries: int
    devices: int
    since: float
    on_cpu: bool = False


def write(ticket: Ticket) -> None:
    """Show this user's ticket to the others."""
    about: dict[str, object] = {name: value for name, value in vars(ticket).items() if name != "user"}
    lease.write_record(_NAME, about | Process.current().as_fields() | Place.here().as_fields())


def remove() -> None:
    lease.remove_record(_NAME)


def is_shown() -> bool:
    """Return True if this user has a ticket. It may be that of the runner of another home."""
    with contextlib.suppress(OSError):
        return lease.record_file(_NAME).exists()
    return False


def of_others() -> list[Ticket]:
    """Return the tickets of the other users whose runners are alive."""
    tickets = []
    with contextlib.suppress(OSError):
        for user, fields in lease.records(_NAME, _TicketRecord):
            process = Process.read(fields)
            is_others = user != lease.user_name(os.geteuid()) and fields.get("devices", 0) > 0
            if is_others and process is not None and process.alive():
                since = lease.moment(fields.get("since")) or time.time()
                on_cpu = fields.get("on_cpu", False)
                tickets.append(Ticket(user, fields.get("entries", 1), fields["devices"], since, on_cpu))
    return tickets


def before(ours: Ticket, tickets: Sequence[Ticket], held: dict[str, int]) -> Iterator[Ticket]:
    """Yield the tickets of users whose turn is before ours: they hold fewer devices, or as many and have waited longer.
    Only tickets for the same kind of device (CPU or GPU) as ours count. `held` has the number of devices of each user.
    """
    for ticket in tickets:
        theirs = (held.get(ticket.user, 0), ticket.since)
        if ticket.on_cpu == ours.on_cpu and theirs < (held.get(ours.user, 0), ours.since):
            yield ticket
