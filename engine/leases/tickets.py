"""Tickets: which users of this machine wait for devices, so that the queues of several users take turns. Each user
writes one ticket into the folder of the leases. A ticket counts only while the process that has written it is alive,
and only if the file belongs to the user in its name. Tickets are a courtesy: nothing enforces the turns.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypedDict

from ..files import typed
from ..files.writing import write_atomically
from ..system.identity import Place, Process
from . import lease

_BEFORE, _AFTER = "ticket.", ".json"


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
    """Show this user's ticket to the others. A folder that cannot be written is no error."""
    about = {"entries": ticket.entries, "devices": ticket.devices, "since": ticket.since, "on_cpu": ticket.on_cpu}
    with contextlib.suppress(OSError):
        path = _own()
        fields = about | Process.current().as_fields() | Place.here().as_fields()
        write_atomically(path, json.dumps(fields), durable=False)
        path.chmod(0o644)


def remove() -> None:
    """Remove this user's ticket, if there is one and it can be removed."""
    with contextlib.suppress(OSError):
        _own().unlink()


def is_shown() -> bool:
    """Return True if this user has a ticket. It may be that of the runner of another home."""
    with contextlib.suppress(OSError):
        return _own().exists()
    return False


def _own() -> Path:
    return lease.folder() / f"{_BEFORE}{os.geteuid()}{_AFTER}"


def of_others() -> list[Ticket]:
    """Return the tickets of the other users whose runners are alive."""
    try:
        paths = sorted(lease.folder().glob(f"{_BEFORE}*{_AFTER}"))
    except OSError:
        return []
    tickets = []
    for path in paths:
        number = path.name.removeprefix(_BEFORE).removesuffix(_AFTER)
        with contextlib.suppress(OSError):
            about = path.lstat()
            is_theirs = number.isdigit() and about.st_uid == int(number) and about.st_uid != os.geteuid()
            if not is_theirs or not stat.S_ISREG(about.st_mode):
                continue
            fields = typed.read_entries(path, _TicketRecord).value
            process = Process.read(fields)
            if process is not None and process.alive() and fields.get("devices", 0) > 0:
                tickets.append(
                    Ticket(
                        lease.user_name(about.st_uid), fields.get("entries", 1), fields["devices"],
                        lease.moment(fields.get("since")) or time.time(), fields.get("on_cpu", False),
                    )
                )  # fmt: skip
    return tickets


def before(ours: Ticket, tickets: Sequence[Ticket], held: dict[str, int]) -> Iterator[Ticket]:
    """Yield the tickets of users whose turn is before ours: they hold fewer devices, or as many and have waited longer.
    Only tickets for the same kind of device (CPU or GPU) as ours count. `held` has the number of devices of each user.
    """
    for ticket in tickets:
        theirs = (held.get(ticket.user, 0), ticket.since)
        if ticket.on_cpu == ours.on_cpu and theirs < (held.get(ours.user, 0), ours.since):
            yield ticket
