"""By what the users of a machine tell each other who has which GPU, or the CPU, and who waits. A lease is a lock on a
file in a folder that all users can write; a second file, whose owner must be the user in its name, says who holds it.
The runs of a queue that share a GPU lease one of its slots (1, 2 ...) each. All this is a courtesy between users.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypedDict

from ..files import typed
from ..files.places import runs_folder
from ..files.writing import write_atomically
from ..runs import RunError
from ..system import locks
from ..system.identity import Place, Process
from ..system.proc import user_name as user_name
from ..units import since

CPU = "cpu"  # the name of the lease on a machine without a GPU
FOLDER = "GPUTUI_LEASES"  # environment variable: the folder of the leases, such as one that containers share
_FOLDERS = ("/dev/shm/gputui", "/tmp/gputui-leases")  # the first is emptied when the machine is started
_ALL_USERS = 0o1777  # everyone may add files, and remove only their own
_LOCK, _RECORD = ".lock", ".json"
SLOT = "~"  # between the name of a GPU and the number of a slot
MOST_SHARING = 16  # runs on one GPU
CHOOSING = "choosing.lock"
LONGEST_WHAT = 80  # characters that another user's text may take in a line
LOOK_ATTEMPTS = 20  # whoever looks at a lease holds its lock for some microseconds


class HolderRecord(TypedDict, total=False):
    pid: int
    start_ticks: int
    since: float
    what: str
    run: str
    stuck: str
    used_bytes: int | None
    per_gpu: int  # fmt: skip


class NotFree(RunError):
    """The devices of a start are in use. The text names who uses them, or what is missing."""


@dataclass(frozen=True)
class Holder:
    """Who has leased the device `name`, as a file of theirs says; of a shared GPU its first slot."""

    name: str
    user: str = ""
    pid: int = 0
    since: float = 0.0  # Unix time, 0 if not known
    what: str = ""  # its work: the title of a run, or a command
    run: str = ""  # the folder of its run
    stuck: str = ""  # why the memory of a GPU is still used after the end of its run: nobody holds the lease then
    used_bytes: int | None = None  # of memory when the lease was taken
    per_gpu: int = 1  # runs that may share the GPU; 1 for a lease of the whole device
    sharers: tuple[Holder, ...] = ()  # the holders of all leased slots of a shared GPU

    def __str__(self) -> str:
        by = f"{self.user}'s {self.what}" if self.what else self.user or "another process"
        begin = f" {since(self.since)}" if self.since else ""
        more = f" and {len(self.sharers) - 1} more" if len(self.sharers) > 1 else ""
        return (f"{self.places}: " if self.sharers else "") + by + begin + more

    @property
    def places(self) -> str:
        """`1 of 2 runs`, of a shared GPU; else empty."""
        return f"{len(self.sharers)} of {self.per_gpu} runs" if self.sharers else ""

    def can_be_joined(self, per_gpu: int) -> bool:
        """All holders are runs of this home that share the GPU among `per_gpu` runs, and one more is allowed."""
        ours = user_name(os.geteuid()), runs_folder(), per_gpu
        are_ours = all((each.user, Path(each.run).parent, each.per_gpu) == ours for each in self.sharers)
        return 0 < len(self.sharers) < per_gpu and are_ours


def holder(name: str) -> Holder | None:
    """Who holds the lease or its slots (perhaps only a name), or whose ended run has left the device `stuck`."""
    try:
        slots = held_slots(name)
    except OSError:
        return None
    if slots:
        return holder_of(name, slots)
    return max((about for about, _ in _records_of(name) if about.stuck), key=lambda each: each.since, default=None)


def held_slots(name: str) -> list[int]:
    """The leased slots of a device; 0 is the device itself. Raises OSError."""
    held = [0] if locks.held(lock_file(name)) else []
    for slot in range(1, MOST_SHARING + 1):
        is_held = locks.held(lock_file(name, slot))
        if is_held is None:  # slots are made in their order
            break
        held += [slot] * is_held
    return held


def holder_of(name: str, slots: Sequence[int]) -> Holder:
    """Who holds these slots of a device: the first holder, with all as `sharers`, or who holds the device itself."""
    holders = []
    for slot in slots:
        alive = (about for about, process in _records_of(key_of(name, slot)) if process is None or process.alive())
        holders.append(replace(max(alive, key=lambda each: each.since, default=Holder(name)), name=name))
    return replace(holders[0], sharers=tuple(holders) if slots[0] else ())


def holders() -> dict[str, Holder]:
    """Of every device that is leased or stuck, by its name."""
    try:
        names = [entry.name.removesuffix(_LOCK) for entry in os.scandir(folder()) if entry.name.endswith(_LOCK)]
    except OSError:
        return {}
    devices = dict.fromkeys(name.partition(SLOT)[0] for name in names if f"{name}{_LOCK}" != CHOOSING)
    all_of = {name: holder(name) for name in devices}
    return {name: who for name, who in all_of.items() if who is not None}


# ---- the folder -----------------------------------------------------------------------------------


def folder() -> Path:
    """It is made if necessary. OSError if none can be made and written by all users (mode 1777)."""
    given = os.environ.get(FOLDER)
    for path in map(Path, [given] if given else _FOLDERS):
        try:
            with contextlib.suppress(FileExistsError):
                path.mkdir()
                path.chmod(_ALL_USERS)  # whatever the umask is
            _verify(path)
            return path
        except OSError:
            if given or str(path) == _FOLDERS[-1]:
                raise
    raise AssertionError("unreachable")


def _verify(path: Path) -> None:
    about = path.lstat()
    if not stat.S_ISDIR(about.st_mode):
        raise OSError(20, "is no folder", str(path))
    # Another process may have made it at this moment, and not set its mode yet.
    for _ in range(LOOK_ATTEMPTS):
        if stat.S_IMODE(path.lstat().st_mode) == _ALL_USERS:
            return
        time.sleep(locks.RETRY_SECONDS)
    if about.st_uid != os.geteuid():
        raise OSError(1, "is not open to all users (its mode must be 1777)", str(path))
    path.chmod(_ALL_USERS)


def key_of(name: str, slot: int) -> str:
    return f"{name}{SLOT}{slot}" if slot else name


def lock_file(name: str, slot: int = 0) -> Path:
    """Of a device, or of one of its slots. Raises OSError."""
    return _file(key_of(name, slot), _LOCK)


def _file(name: str, suffix: str) -> Path:
    return folder() / f"{name.replace('/', '_')}{suffix}"


def _records_of(name: str) -> Iterator[tuple[Holder, Process | None]]:
    """Each holder on record, with its process if it is not in another container; none from before the last boot."""
    for user, fields in records(name, HolderRecord):
        place = Place.read(fields)
        process = Process.read(fields) if place is not None and place.is_here else None
        if place is not None and not place.shares_kernel:
            continue
        used_bytes, per_gpu = fields.get("used_bytes"), fields.get("per_gpu", 1)
        yield Holder(
            name, user, fields.get("pid", 0), moment(fields.get("since")),
            " ".join(fields.get("what", "").split())[:LONGEST_WHAT], fields.get("run", ""),
            " ".join(fields.get("stuck", "").split())[:LONGEST_WHAT],
            used_bytes if used_bytes is None or used_bytes >= 0 else None,
            min(max(per_gpu, 1), MOST_SHARING),
        ), process  # fmt: skip


def moment(since: float | None) -> float:
    """Return the Unix time of another user's record, 0 if it is not a time that has been."""
    return since if since is not None and 0 < since <= time.time() else 0.0


# ---- records: files by which the users of a machine tell each other -------------------------------


def record_file(name: str) -> Path:
    """Return the path of this user's. Raises OSError."""
    return _file(name, f".{os.geteuid()}{_RECORD}")


def write_record(name: str, fields: Mapping[str, object]) -> None:
    """A file that cannot be written is no error: the lock of a lease alone keeps others off."""
    with contextlib.suppress(OSError):
        path = record_file(name)
        write_atomically(path, json.dumps(fields), durable=False)
        path.chmod(0o644)


def remove_record(name: str) -> None:
    with contextlib.suppress(OSError):
        record_file(name).unlink()


def records(name: str, kind: type) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Each user with the entries of their record, of the types that `kind` declares. Raises OSError."""
    for path in sorted(folder().glob(f"{name.replace('/', '_')}.*{_RECORD}")):
        number = path.name.removesuffix(_RECORD).rpartition(".")[2]
        with contextlib.suppress(OSError):
            if number.isdigit() and belongs_to(path, int(number)):
                yield user_name(int(number)), typed.read_entries(path, kind).value


def belongs_to(path: Path, user_id: int) -> bool:
    """Return True for a regular file of the user. Raises OSError."""
    about = path.lstat()
    return about.st_uid == user_id and stat.S_ISREG(about.st_mode)


# ---- tickets --------------------------------------------------------------------------------------

# Which users of this machine wait for devices, so that the queues of several users take turns. A ticket counts only
# while the process that has written it is alive. Tickets are a courtesy: nothing enforces the turns.
_TICKET = "ticket"


@dataclass(frozen=True)
class Ticket:
    """The first waiting run of a user."""

    user: str
    entries: int  # the user's waiting runs
    devices: int  # that it needs
    since: float  # Unix time
    on_cpu: bool = False  # it needs the CPU, else GPUs


def write_ticket(ticket: Ticket) -> None:
    """Show this user's ticket to the others."""
    about: dict[str, object] = {name: value for name, value in vars(ticket).items() if name != "user"}
    write_record(_TICKET, about | Process.current().as_fields() | Place.here().as_fields())


def remove_ticket() -> None:
    remove_record(_TICKET)


def has_ticket() -> bool:
    """Return True if this user has a ticket. It may be that of the runner of another home."""
    with contextlib.suppress(OSError):
        return record_file(_TICKET).exists()
    return False


def tickets_of_others() -> list[Ticket]:
    """Return the tickets of the other users whose runners are alive."""
    tickets = []
    with contextlib.suppress(OSError):
        for user, fields in records(_TICKET, Ticket):
            process = Process.read(fields)
            is_others = user != user_name(os.geteuid()) and fields.get("devices", 0) > 0
            if is_others and process is not None and process.alive():
                since = moment(fields.get("since")) or time.time()
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
