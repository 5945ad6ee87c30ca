"""The entries of the queue, each in a file of its own, and the lock that makes a process its runner. An entry is
changed only under the lock of the queue. The module imports little, as the runner keeps it in memory.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Literal

from ..files import places as places
from ..files import typed
from ..files.places import QUEUE, home, runs_folder
from ..files.reading import read_object
from ..files.writing import write_atomically
from ..gpu import VISIBLE, Gpu, GpuProcess
from ..job import slurm
from ..leases.records import CPU
from ..options import gpu_choice, options_json
from ..runs import Run, RunError, titles
from ..runs.run import LaunchOptions
from ..system import child_process, locks
from ..system.locks import Lock
from . import entry_names
from .jobs import Job, job_of

State = Literal["waiting", "held", "starting", "running"]
WAITS: tuple[State, ...] = ("waiting", "held")
RUNNER_LOCK, LOCK, PAUSED, NEWS, LOG = "runner.lock", ".lock", ".paused", ".runner.json", "runner.log"
PAUSED_REASON = "the queue is paused; gputui queue start goes on"
SETTLED_SECONDS = 0.1  # a folder that has changed just now may change again without a new time
_UNKNOWN = ("", -1)
LOCK_ATTEMPTS = 2000  # of 10 ms, for the lock of the queue, under which a run is launched
# Variables of this terminal or of this process, which a run does not get later.
_LEFT_OUT = ("_", "COLUMNS", "LINES", "OLDPWD", "SHLVL", "TERM")
_INTERNAL = ("GPUTUI_LOCK", "GPUTUI_FORKED", "GPUTUI_SCRATCH", "GPUTUI_LAUNCHED", locks.LEASED)


@dataclass(frozen=True)
class Entry:
    """A queued run, or a queued measurement (`kind` is `proof`; `what` is its kind). The lowest `place` comes first.
    Times are Unix times.
    """

    run: str
    place: float
    state: State = "waiting"
    kind: str = "run"  # or `proof`
    what: str = ""  # the kind of measurement
    queued_at: float = 0.0
    returned_at: float | None = None  # when the run has given way
    started_at: float | None = None
    boot_id: str = ""
    tries: int = 0  # the number of starts
    most_tries: int = 1  # run.tries
    group: str = ""  # the preset, whose failures are counted together
    after: str | None = None  # the id of a run or measurement that has to end first
    needs: str = "all"  # `cpu` or the value of device.visible
    bytes: int | None = None  # of memory that it needs on each GPU; None if it does not share GPUs
    prediction: str = ""  # from what the memory is predicted, or whether so many runs on a GPU were measured to pay
    devices: Sequence[str] = ()  # of the last start
    gives_way: bool = False  # run.give_way
    yields: bool = False  # it was asked to give way
    code: str = ""  # `new` or `copy` if the run is resumed after its code has changed
    displaced_by: str = ""  # who used its GPU when it ran out of memory, after which it returned to the queue once
    per_gpu: int = 1  # run.per_gpu
    hold_reason: str = ""
    slurm_job: str | None = None  # its id, empty until sbatch has answered; None if the runner starts the run
    among: Sequence[str] = ()  # GPUs that CUDA_VISIBLE_DEVICES and TensorFlow leave to such as `free:1`; () is all
    anyway: bool = False  # it does not wait for trainings outside of the queue that use the CPU

    @property
    def is_of_slurm(self) -> bool:
        return self.slurm_job is not None

    @property
    def waits_since(self) -> float:
        return self.returned_at or self.queued_at

    @property
    def name(self) -> str:
        return name_of(self.run)

    @property
    def folder(self) -> Run:
        """The run; a measurement has only `job`."""
        return Run(runs_folder() / self.run)

    @property
    def job(self) -> Job:
        return job_of(self.run, self.kind)


def name_of(id_: str) -> str:
    return Run(runs_folder() / id_).name


def queue_folder() -> Path:
    return home() / QUEUE


def file_of(name: str) -> Path:
    return queue_folder() / f"{name}.json"


@contextlib.contextmanager
def locked() -> Iterator[None]:
    """Hold the queue's lock. RunError if another process holds it for 20 s, or if the file system has no locks."""
    places.make(queue_folder(), exist_ok=True)
    try:
        lock = locks.take(queue_folder() / LOCK, LOCK_ATTEMPTS)
    except locks.Taken:
        raise RunError("the queue is in use by another gputui, which does not end; try again") from None
    with lock:
        if not lock.works:
            raise RunError(
                f"the file system of {queue_folder()} has no locks; set GPUTUI_HOME to a folder on a local disk"
            )
        yield


# ---- reading and writing -------------------------------------------------------------------------


@dataclass(frozen=True)
class Listing:
    """The entries in their order, and a line for each file that cannot be read."""

    entries: tuple[Entry, ...] = ()
    damage: tuple[str, ...] = ()


class ListingReader:
    """Reads the entries repeatedly: `listing` has them as of the last call of `read`."""

    def __init__(self) -> None:
        self.listing = Listing()
        self._stamp = ("", 0)

    def read(self) -> bool:
        """Read the entries if their folder has changed. True if it has changed, or may just have changed."""
        folder, now = queue_folder(), time.time()
        try:
            changed_ns = folder.stat().st_mtime_ns
        except OSError:
            changed_ns = 0
        stamp = str(folder), changed_ns
        if stamp == self._stamp:
            return False
        self.listing = listing()
        self._stamp = stamp if now - changed_ns / 1e9 > SETTLED_SECONDS else _UNKNOWN
        return True


def read(name: str) -> Entry | None:
    """None if there is no entry of the run or measurement `name`, or if its file is damaged."""
    return typed.read(file_of(name), Entry, run=name).value


def listing() -> Listing:
    entries, damage = [], []
    for name in entry_names():
        content = typed.read(file_of(name), Entry, run=name)
        if content.value is not None:
            entries.append(content.value)
        elif content.damage:
            damage.append(f"{file_of(name)} {content.damage}; gputui queue rm {name} removes it")
    return Listing(tuple(sorted(entries, key=lambda entry: (entry.place, entry.queued_at, entry.run))), tuple(damage))


def all_entries() -> tuple[Entry, ...]:
    return listing().entries


def write(entry: Entry) -> None:
    """The caller must hold the lock of the queue."""
    write_atomically(file_of(entry.run), json.dumps(asdict(entry), indent=1) + "\n")


def discard(name: str) -> None:
    """Remove the entry `name`, if there is one, with its environment. The caller must hold the lock of the queue."""
    drafts = queue_folder().glob(f".{glob.escape(name)}.json.*")  # of processes that were killed while they wrote
    for path in (file_of(name), environment_file(name), *drafts):
        with contextlib.suppress(FileNotFoundError):
            path.unlink()


def is_paused() -> bool:
    return (queue_folder() / PAUSED).exists()


@dataclass(frozen=True)
class Device:
    """A GPU or MIG instance, or without `gpu` the CPU."""

    gpu: Gpu | None = None
    holder: str = ""  # who uses the device, or why it is not free; empty if it is free
    shut: str = ""  # why it cannot even be shared: it is leased or broken
    strangers: Sequence[GpuProcess] = ()  # that compute on it, without those of runs that share it
    settles: bool = False  # it is free, but has to stay idle for some seconds
    run: str = ""  # the folder of this user's run that has leased it
    per_gpu: int = 1  # the runs among which this home's queue shares the GPU now, if one more may begin on it
    places: str = ""  # how many of its runs a shared GPU has

    @property
    def name(self) -> str:
        return CPU if self.gpu is None else self.gpu.key

    def __str__(self) -> str:
        return "the CPU" if self.gpu is None else f"GPU {self.gpu.number}"


@dataclass(frozen=True)
class News:
    """The report of the runner about the queue: its process id, the number of GPUs, why runs wait, by id (`delayed`:
    although their devices are free), and the numbers of counted failures by group.
    """

    pid: int | None = None
    gpus: int | None = None
    devices: Sequence[Device] = ()  # of `as_news`
    why: Mapping[str, str] = field(default_factory=dict)
    delayed: Sequence[str] = ()
    failures: Mapping[str, int] = field(default_factory=dict)


def news() -> News:
    return typed.read_usable(queue_folder() / NEWS, News)


def set_failures(group: str, count: int) -> None:
    """The caller must hold the lock of the queue."""
    now = news()
    if now.failures.get(group, 0) != count:
        after = {key: value for key, value in {**now.failures, group: count}.items() if value}
        write_news(replace(now, failures=after))


# ---- the environment in which a run starts ---------------------------------------------------------


def environment_file(name: str) -> Path:
    return queue_folder() / f".{name}.environment"


def environment_to_keep() -> dict[str, str]:
    """The environment of this process without the variables of its terminal and of gputui itself."""
    return {key: value for key, value in os.environ.items() if key not in (*_LEFT_OUT, *_INTERNAL)}


def environment_of(name: str) -> tuple[dict[str, str], str | None]:
    """The environment and the folder at the time of queueing, in which the queued run `name` starts. If their file is
    missing, the environment is that of this process; the folder is None if it does not exist any more.
    """
    kept = {key: value for key, value in read_object(environment_file(name)).value.items() if isinstance(value, str)}
    if not kept:
        return dict(os.environ), None
    if "GPUTUI_HOME" in os.environ:
        kept["GPUTUI_HOME"] = str(home())
    folder = kept.get("PWD")
    return kept, folder if folder and os.path.isdir(folder) else None


# ---- what a user does ----------------------------------------------------------------------------


def entry_of(run: Run, after: str | None = None, code: str = "") -> Entry:
    """The entry of a run whose folder exists, without place and time. RunError if the memory it needs is not known."""
    options = typed.read_usable(run.file("options.json"), LaunchOptions)
    needs = needs_of(options.device.visible)
    entry = Entry(
        run.id,
        0.0,
        most_tries=options.run.tries or 1,
        gives_way=options.run.give_way,
        per_gpu=(options.run.per_gpu or 1) if needs.startswith("free:") else 1,
        group=titles.preset_of(run),
        after=after,
        needs=needs,
        code=code,
    )
    if entry.per_gpu > 1:
        from ..job import this_machine  # only for a run that shares its GPU with others of the queue
        from ..scaling import rounds  # only for such a run

        gpus = [gpu.name for gpu in this_machine.read().gpus]
        return replace(entry, prediction=rounds.measured(run, entry.per_gpu, gpus))
    if needs.startswith("fits:"):
        from ..leases import gpu_use  # only for a run that shares a GPU

        need = gpu_use.memory_need(options_json.read(run.path))
        return replace(entry, bytes=need.bytes, prediction=need.prediction)
    return entry


def add_entry(entry: Entry, place: float | None = None) -> Entry:
    """Put it at `place` or at the end, and start the runner. RunError if it is queued, or without the lock."""
    entry = _with_gpus_left(entry)
    with locked():
        entry = append(entry, place)
        variables = environment_to_keep()
        with contextlib.suppress(OSError):
            variables["PWD"] = os.getcwd()
        path = environment_file(entry.run)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape") as stream:
            json.dump(variables, stream)
    ensure_runner()
    return entry


def _with_gpus_left(entry: Entry) -> Entry:
    """Return the entry with the GPUs that CUDA_VISIBLE_DEVICES, if set, and TensorFlow leave to this process."""
    choice, is_set = gpu_choice.parse(entry.needs), VISIBLE in os.environ
    if choice is None and not (is_set and entry.needs == "all"):
        return entry
    from ..job import machine_gpus, this_machine  # only for a process that adds an entry

    parts = this_machine.read().parts
    if choice is not None:
        able = machine_gpus.used_by_tensorflow(list(parts))
        return replace(entry, among=tuple(gpu.key for gpu in able) if is_set or len(able) < len(parts) else ())
    if any(gpu.instance is not None for gpu in parts):
        return entry
    return replace(entry, needs=",".join(str(gpu.index) for gpu in parts) or "cpu")


def append(entry: Entry, place: float | None = None) -> Entry:
    """Write an entry, by default as the last; the caller holds the lock. RunError if its id is in the queue already."""
    if file_of(entry.run).exists():
        raise RunError(f"{entry.name} is in the queue already")
    last = max((other.place for other in all_entries()), default=0.0)
    entry = replace(entry, place=last + 1 if place is None else place, queued_at=time.time())
    write(entry)
    return entry


def needs_of(visible: str | Sequence[int | str] | None) -> str:
    """The field `needs` of an entry for a value of device.visible; `all` for None."""
    if visible == "none":
        return "cpu"
    return visible or "all" if visible is None or isinstance(visible, str) else ",".join(map(str, visible))


def write_news(content: News) -> None:
    write_atomically(queue_folder() / NEWS, json.dumps(asdict(content), indent=1) + "\n", durable=False)


# ---- the runner ------------------------------------------------------------------------------------


def ensure_runner() -> None:
    """Start the runner if the queue has entries and none runs. A failure is not reported."""
    folder = queue_folder()
    if slurm.job_of(os.environ) or locks.held(folder / RUNNER_LOCK) or not listing().entries:
        return
    with contextlib.suppress(OSError, locks.Taken), locks.take(folder / RUNNER_LOCK) as lock:
        if not lock.works:
            return
        process = child_process.start_session(
            folder / LOG,
            "gputui.engine.queue",
            str(lock.fd),
            cwd="/",
            env=environment_to_keep() | {"GPUTUI_HOME": str(home())},
            pass_fds=[lock.fd],
        )
        _runners[:] = [*(runner for runner in _runners if runner.poll() is None), process]


_runners: list[subprocess.Popen[bytes]] = []  # those that this process has started: they are no zombies after their end


def take_runner_lock(descriptor: int | None) -> Lock | None:
    """None if another process is the runner of this home. `descriptor` is that of an inherited lock."""
    places.make(queue_folder(), exist_ok=True)
    try:
        return locks.take(queue_folder() / RUNNER_LOCK) if descriptor is None else locks.inherited(descriptor)
    except locks.Taken:
        return None
