"""Leases: which process of which user of a machine has a GPU, or the CPU, for itself, and which runs of a queue share a
GPU. A lease is a lock on a file in a folder that all users can write; a second file, whose owner must be the user in
its name, says who holds it. A shared lease is that of one of the GPU's slots (1, 2 ...): a process locks its own lease
first and then looks at the others, so that one of two at least sees the other. Leases are a courtesy between users of
gputui.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypedDict

from ..files import typed
from ..files.places import runs_folder
from ..files.writing import write_atomically
from ..runs import RunError
from ..system import locks
from ..system.identity import Place, Process
from ..system.locks import Lock
from ..system.proc import user_name as user_name
from ..units import since

CPU = "cpu"  # the name of the lease on a machine without a GPU
FOLDER = "GPUTUI_LEASES"  # environment variable: the folder of the leases, such as one that containers share
_FOLDERS = ("/dev/shm/gputui", "/tmp/gputui-leases")  # the first is emptied when the machine is started
_ALL_USERS = 0o1777  # everyone may add files, and remove only their own
_LOCK, _RECORD = ".lock", ".json"
_SLOT = "~"  # between the name of a GPU and the number of a slot
MOST_SHARING = 16  # runs on one GPU
_CHOOSING = "choosing.lock"
LONGEST_WHAT = 80  # characters that another user's text may take in a line
_LOOK_ATTEMPTS = 20  # whoever looks at a lease holds its lock for some microseconds
_CHOOSING_ATTEMPTS = 1000  # of 10 ms: choosing takes some milliseconds


class _HolderRecord(TypedDict, total=False):
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


@dataclass
class Lease:
    """A lease that this process holds."""

    name: str
    lock: Lock
    used_bytes: int | None = None  # before it, or before the first of the runs that share the GPU
    fields: dict[str, object] = field(default_factory=dict)  # as recorded
    slot: int = 0  # from 1, among those of `per_gpu` runs; 0 is the device
    per_gpu: int = 1

    @property
    def key(self) -> str:
        """The name of the lease, which of a slot has its number: it names the files, and the lease to an engine."""
        return _key(self.name, self.slot)

    def is_shared_now(self) -> bool:
        """Return True if another process holds another slot of the GPU."""
        return bool(self.slot) and any(slot != self.slot for slot, _ in _sharers(self.name))

    def write(self, what: str, run: str = "", pid: int | None = None) -> None:
        """Record as holder the process `pid`, by default this one."""
        process = Process.of(pid or os.getpid())
        about = {"what": what, "run": run, "since": time.time(), "used_bytes": self.used_bytes, "per_gpu": self.per_gpu}
        self.fields = about | process.as_fields() | Place.here().as_fields()
        write_record(self.key, self.fields)

    def release(self, stuck: str = "") -> None:
        """Give the device back; `stuck` is recorded as the reason why others still cannot use it."""
        if stuck:  # also of a slot: the whole GPU is stuck
            write_record(self.name, self.fields | {"stuck": stuck})
        if self.slot or not stuck:
            remove_record(self.key)
        self.lock.release()


def take(
    names: Iterable[str], what: str, used: Mapping[str, int | None] | None = None, per_gpu: int = 1
) -> list[Lease]:
    """The leases of devices, or with `per_gpu` of a slot of each; call it inside `choosing` if they were chosen as
    free. NotFree if one cannot be leased: then none is taken. `used` are the bytes of memory in use now.
    """
    taken: list[Lease] = []
    for name in sorted(set(names)):
        try:
            taken.append(_taken(name, per_gpu, (used or {}).get(name)))
        except (locks.Taken, OSError) as fault:
            for lease in taken:
                lease.release()
            if isinstance(fault, OSError):
                raise NotFree(f"{_device(name)} cannot be leased: {fault.strerror}: {fault.filename}") from None
            raise NotFree(f"{_device(name)} is used by {holder(name) or 'another process'}") from None
    for lease in taken:
        lease.write(what)
    return taken


def _taken(name: str, per_gpu: int, used_bytes: int | None) -> Lease:
    """The lease of the device, or with `per_gpu` that of its first free slot. Raises Taken or OSError."""
    for slot in range(1, per_gpu + 1) if per_gpu > 1 else (0,):
        path = _file(_key(name, slot), _LOCK)
        if slot and locks.held(path):
            continue
        lock = locks.take(path, _LOOK_ATTEMPTS, of_all_users=True)
        others = tuple(holder for number, holder in _sharers(name) if number != slot)
        joins = slot and (not others or replace(others[0], sharers=others).can_be_joined(per_gpu))
        if (others and not joins) or (slot and locks.held(_file(name, _LOCK))):
            lock.release()
            break
        if slot:
            remove_record(name)  # it says that the GPU was stuck
        return Lease(name, lock, others[0].used_bytes if others else used_bytes, slot=slot, per_gpu=per_gpu)
    raise locks.Taken


@contextlib.contextmanager
def choosing() -> Iterator[None]:
    """A context that holds the lock under which devices are read, chosen and leased. Only one process of the machine
    can hold it. Raises NotFree if others hold it for ten seconds, or if the folder of the leases cannot be used.
    """
    try:
        lock = locks.take(folder() / _CHOOSING, _CHOOSING_ATTEMPTS, of_all_users=True)
    except locks.Taken:
        raise NotFree("another process has been choosing GPUs for 10 s; try again") from None
    except OSError as fault:
        raise NotFree(f"GPUs cannot be leased: {fault.strerror}: {fault.filename}; {FOLDER} names a folder") from None
    with lock:
        yield


def holder(name: str) -> Holder | None:
    """Who holds the lease or its slots (perhaps only a name), or whose ended run has left the device `stuck`."""
    try:
        is_held = locks.held(_file(name, _LOCK))
        sharers = () if is_held else tuple(holder for _, holder in _sharers(name))
    except OSError:
        return None
    if is_held:
        return _recorded(name, name)
    if sharers:
        return replace(sharers[0], sharers=sharers)
    return max((about for about, _ in _records_of(name) if about.stuck), key=lambda each: each.since, default=None)


def _sharers(name: str) -> Iterator[tuple[int, Holder]]:
    for slot in range(1, MOST_SHARING + 1):
        is_held = locks.held(_file(_key(name, slot), _LOCK))
        if is_held is None:  # slots are made in their order
            return
        if is_held:
            yield slot, _recorded(name, _key(name, slot))


def _recorded(name: str, key: str) -> Holder:
    alive = (about for about, process in _records_of(key) if process is None or process.alive())
    return replace(max(alive, key=lambda each: each.since, default=Holder(name)), name=name)


def holders() -> dict[str, Holder]:
    """Of every device that is leased or stuck, by its name."""
    try:
        names = [entry.name.removesuffix(_LOCK) for entry in os.scandir(folder()) if entry.name.endswith(_LOCK)]
    except OSError:
        return {}
    devices = dict.fromkeys(name.partition(_SLOT)[0] for name in names if f"{name}{_LOCK}" != _CHOOSING)
    all_of = {name: holder(name) for name in devices}
    return {name: who for name, who in all_of.items() if who is not None}


def environment(leases: Sequence[Lease]) -> dict[str, str]:
    """The variable that names the leases to a process that inherits them."""
    return {locks.LEASED: ",".join(f"{lease.lock.fd} {lease.key}" for lease in leases)} if leases else {}


def inherited(variable: str | None) -> list[Lease]:
    """The leases that LEASED names, which children do not inherit. One that cannot be taken over is left out."""
    leases = []
    for entry in (variable or "").split(","):
        number, _, key = entry.partition(" ")
        with contextlib.suppress(ValueError, locks.Taken, OSError):
            name, _, slot = key.partition(_SLOT)
            fields = dict(typed.read_entries(record_file(key), _HolderRecord).value)
            used_bytes, per_gpu = fields.get("used_bytes"), fields.get("per_gpu") or 1
            leases.append(Lease(name, locks.inherited(int(number)), used_bytes, fields, int(slot or 0), per_gpu))
    return leases


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
    for _ in range(_LOOK_ATTEMPTS):
        if stat.S_IMODE(path.lstat().st_mode) == _ALL_USERS:
            return
        time.sleep(locks.RETRY_SECONDS)
    if about.st_uid != os.geteuid():
        raise OSError(1, "is not open to all users (its mode must be 1777)", str(path))
    path.chmod(_ALL_USERS)


def _key(name: str, slot: int) -> str:
    return f"{name}{_SLOT}{slot}" if slot else name


def _file(name: str, suffix: str) -> Path:
    return folder() / f"{name.replace('/', '_')}{suffix}"


def _records_of(name: str) -> Iterator[tuple[Holder, Process | None]]:
    """Each holder on record, with its process if it is not in another container; none from before the last boot."""
    for user, fields in records(name, _HolderRecord):
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


def _device(name: str) -> str:
    return "the CPU" if name == CPU else name


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
