"""Tickets: which users of this machine wait for devices, so that the queues of several users take turns.

Each user writes a ticket of their own into the folder of the leases; it counts only while the process that has written
it is alive, and only if it belongs to the user in its name. It is a courtesy: nothing enforces the turns.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..files.declared_types import Form
from ..files.reading import read_object
from ..files.writing import write_atomically
from ..system.identity import Place, Process
from . import lease

_BEFORE, _AFTER = "ticket.", ".json"
_FORM = Form({"entries": int, "devices": int, "since": float, "on_cpu": bool, "pid": int, "start_ticks": int})


@dataclass(frozen=True)
class Ticket:
    """The first waiting run of a user: how many devices it needs, GPUs or the CPU, and since when it waits (Unix time).

    `entries` is the number of the user's waiting runs.
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
        path = lease.folder() / f"{_BEFORE}{os.geteuid()}{_AFTER}"
        fields = about | Process.current().as_fields() | Place.here().as_fields()
        write_atomically(path, json.dumps(fields), durable=False)
        path.chmod(0o644)


def remove() -> None:
    """Remove this user's ticket."""
    with contextlib.suppress(OSError):
        (lease.folder() / f"{_BEFORE}{os.geteuid()}{_AFTER}").unlink()


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
            fields = read_object(path, _FORM).value
            process = Process.read(fields)
            if process is not None and process.alive() and fields.get("devices", 0) > 0:
                tickets.append(
                    Ticket(
                        lease.user_name(about.st_uid), fields.get("entries", 1), fields["devices"],
                        fields.get("since", 0.0), fields.get("on_cpu", False),
                    )
                )  # fmt: skip
    return tickets


def before(ours: Ticket, tickets: Sequence[Ticket], held: dict[str, int]) -> Iterator[Ticket]:
    """Yield the tickets whose turn is before ours: of users who hold fewer devices, and of equals who wait longer.

    `held` has the number of devices that each user holds.
    """
    for ticket in tickets:
        theirs = (held.get(ticket.user, 0), ticket.since)
        if ticket.on_cpu == ours.on_cpu and theirs < (held.get(ours.user, 0), ours.since):
            yield ticket
