"""Which GPUs are free, what a start leases, and its release. A GPU is free if no process computes on it, less
than 1 GiB of its memory is used, it was idle in each reading of idle_seconds (20 s by default), it works, and nobody
has leased it. If the driver does not report the processes of others (in a container, or in WSL), only the other
conditions decide. A GPU with a display (processes draw on it, or Windows does, in WSL) may be in use for a quarter of
its memory and 30 % of the time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from .. import plan, runs
from ..files import typed
from ..files.places import TRIALS, proofs_folder
from ..files.reading import read_object
from ..files.values import plain
from ..gpu import Gpu, GpuProcess, extended
from ..job import this_machine
from ..job.machine_gpus import CONTEXT_BYTES, Machine, TooSmall, candidates, part_of_each, training_gpus, visible_gpus
from ..options import Options
from ..options.gpu_choice import GpuChoice
from ..runs import Run, RunError
from ..runs.launched_with import trained_with
from ..system import locks
from ..system.child_process import BackgroundCalls
from ..system.descendants import descends
from ..system.identity import Place, Process
from ..system.locks import Lock
from ..telemetry import chips
from ..telemetry.nvml import connection
from ..telemetry.nvml.connection import PATIENCE_SECONDS, Nvml
from ..telemetry.nvml.reasons import NvmlUnavailable
from ..units import share, size
from . import records
from .records import CPU, FOLDER, Holder, NotFree, holder, key_of

IDLE_SECONDS = 20.0  # for which a GPU must have been idle: a program may pause between two trainings
IDLE_VARIABLE = "GPUTUI_IDLE_SECONDS"  # environment variable: another number of seconds
LOOK_SECONDS = 2.0  # between two looks
_CHOOSING_ATTEMPTS = 1000  # of 10 ms: choosing takes some milliseconds
SLOW_SECONDS = 10.0  # between two looks that ask again what the driver has refused
BUSY, DISPLAY_BUSY = 0.02, 0.3  # share of the time in which a free GPU may be in use; with a display
DRIVER_BYTES = 1024**3  # a driver, and a display without a desktop, use less
DISPLAY_SHARE = 0.25  # of the memory, which a desktop may use


@dataclass(frozen=True)
class GpuUse(Gpu):
    """A GPU, or a MIG instance. Its processes are None if the driver does not report them."""

    holder: Holder | None = None  # the run or command that has leased it, or whose memory is on it after its end

    @property
    def leased(self) -> bool:
        """True if a process holds the GPU's lease now; False also if the GPU is only left stuck."""
        return self.holder is not None and not self.holder.stuck

    def why_not_free(self) -> str:
        """Return the reason why a run cannot have this GPU for itself now; empty if the GPU is free."""
        if self.missing:
            return self.missing
        if self.holder is not None and self.leased:
            return f"used by {self.holder}"
        if users := self.computing:
            more = f" and {len(users) - 1} more" if len(users) > 1 else ""
            return f"used by {users[0]}{more}"
        if (self.memory_used_bytes or 0) >= self.limit_bytes:
            stuck = f"stuck: {self.holder.stuck}" if self.holder is not None else "by processes that are not visible"
            limit = f" (limit with a display: {size(self.limit_bytes)})" if self.has_display else ""
            return f"{size(self.memory_used_bytes)} of its memory are in use{limit}, {stuck}"
        if self.busy is not None and self.busy > self.limit_busy:
            limit = f" (limit with a display: {share(self.limit_busy)})" if self.has_display else ""
            return f"busy for {share(self.busy)} of the time{limit}"
        return ""

    @property
    def computing(self) -> tuple[GpuProcess, ...]:
        return tuple(process for process in self.processes or () if process.computes)

    @property
    def has_display(self) -> bool:
        return chips.is_wsl() or any("G" in (process.type or "") for process in self.processes or ())

    @property
    def limit_bytes(self) -> int:
        """The memory of which a free GPU has less in use."""
        desktop = int(DISPLAY_SHARE * (self.memory_total_bytes or 0)) if self.has_display else 0
        return max(DRIVER_BYTES, desktop)

    @property
    def limit_busy(self) -> float:
        return DISPLAY_BUSY if self.has_display else BUSY

    def why_not_sharing(self, per_gpu: int) -> str:
        """Empty if a queued run among `per_gpu` can use it: it is free, or fewer such runs of this home have it."""
        if self.missing or self.holder is None or not self.holder.can_be_joined(per_gpu):
            return self.why_not_free()
        return f"used by {self.strangers[0]}" if self.strangers else ""

    @property
    def strangers(self) -> tuple[GpuProcess, ...]:
        """The processes that compute on the GPU, without those of the runs that share it."""
        sharers = [each.pid for each in self.holder.sharers] if self.holder is not None else []
        return tuple(user for user in self.computing if not (sharers and descends(user.pid, sharers)))

    def why_not_fitting(self, needs_bytes: int) -> str:
        """Why a run that needs so much memory cannot share this GPU now; empty if it can."""
        if self.missing or self.leased:
            return self.why_not_free()
        if self.free_bytes < needs_bytes:
            by = f" ({self.processes[0]})" if self.processes else ""
            return f"{size(self.free_bytes)} are free of the {size(needs_bytes)} needed{by}"
        return ""


def read() -> list[GpuUse]:
    """Return every GPU of the machine as it is now. Raises NotFree if NVML cannot be read."""
    return _uses(lambda: connection.readings(processes=True))


def _uses(readings: Callable[[], Sequence[Gpu]]) -> list[GpuUse]:
    try:
        return [use for gpu in readings() for use in uses_of(gpu)]
    except (NvmlUnavailable, TimeoutError) as fault:
        raise NotFree(f"the GPUs cannot be read: {fault}") from None


class GpuWatch:
    """Reads through one connection to NVML, as opening it costs more; while it is open, nobody can reset a GPU."""

    def __init__(self) -> None:
        self._calls = BackgroundCalls()  # one thread must open, read and close
        self._nvml: Nvml | None = None
        self._slow_due = 0.0

    def read(self) -> list[GpuUse]:
        """Return every GPU of the machine as it is now. Raises NotFree if NVML cannot be read."""
        return _uses(lambda: self._calls.result(self._readings, PATIENCE_SECONDS))

    def glance(self) -> dict[str, dict[str, Any]]:
        """Return load and used memory of each whole GPU, by its UUID. Raises TimeoutError."""
        devices = self._nvml.devices if self._nvml is not None else []
        read = lambda: {device.facts.uuid or "": device.glance() for device in devices}  # noqa: E731
        return self._calls.result(read, PATIENCE_SECONDS)

    def close(self) -> None:
        if self._nvml is not None:
            with contextlib.suppress(TimeoutError):
                self._calls.result(self._close, PATIENCE_SECONDS)

    def _readings(self) -> list[Gpu]:
        if self._nvml is None:
            self._nvml, self._slow_due = Nvml(processes=True), 0.0
        if is_slow := time.monotonic() >= self._slow_due:
            self._slow_due = time.monotonic() + SLOW_SECONDS
        readings = self._nvml.read(is_slow)
        if not readings:  # a driver without a GPU may get one
            self._close()
        return readings

    def _close(self) -> None:
        if self._nvml is not None:
            self._nvml.close()
            self._nvml = None


def uses_of(gpu: Gpu) -> list[GpuUse]:
    """The GPU or its MIG instances, with their leases; one in MIG mode without an instance cannot be used."""
    parts = gpu.parts or (replace(gpu, missing=gpu.missing or "in MIG mode without an instance"),)
    return [extended(GpuUse, part, holder=holder(part.key)) for part in parts]


def idle_seconds() -> float:
    """Return for how many seconds a GPU must have been idle: the value of GPUTUI_IDLE_SECONDS (at least 0), or 20."""
    try:
        return max(0.0, float(os.environ.get(IDLE_VARIABLE, IDLE_SECONDS)))
    except ValueError:
        return IDLE_SECONDS


# ---- the devices of a start -------------------------------------------------------------------------


WAIT_SECONDS = 5.0  # between two attempts of a start that waits


@dataclass(frozen=True)
class Devices:
    """The leased devices of a start. An exception in their context releases them; else the engine must get them."""

    options: Options  # for the trainer: the chosen GPUs replace `free:N`
    leases: Sequence[Lease]

    @property
    def fds(self) -> list[int]:
        return [lease.lock.fd for lease in self.leases]

    @property
    def environment(self) -> dict[str, str]:
        """The variable that names the leases to a process that inherits `fds`."""
        names = ",".join(f"{lease.lock.fd} {lease.key}" for lease in self.leases)
        return {locks.LEASED: names} if names else {}

    def hand_over(self, pid: int, run: str) -> None:
        """Leave the leases to the process `pid`, which has inherited them, for the run in the folder `run`."""
        for each in self.leases:
            each.write(str(each.fields.get("what", "")), run, pid)
            each.lock.release()  # the other process has inherited it

    def __enter__(self) -> Devices:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self.release()

    def release(self) -> None:
        for each in self.leases:
            each.release()


def wish_of(options: Options, machine: Machine) -> Wish | None:
    """None if the options name their devices. NotMeasuredError if it is not known how much memory `fits:N` needs."""
    choice = options.device.choice
    return Wish.of(choice, machine, memory_need(options) if choice.shared else None) if choice else None


def names_of(options: Options, machine: Machine, all_visible: bool = False) -> list[str]:
    """The keys of the GPUs that train, or of all visible ones, or CPU without one."""
    gpus = visible_gpus(options, machine) if all_visible else training_gpus(options, machine)
    return [gpu.key for gpu in gpus] or [CPU]


def lease_devices(
    options: Options,
    what: str,
    tell: Callable[[str], None] = lambda _text: None,
    *,
    among: Collection[str] | None = None,
    all_visible: bool = False,
) -> Devices:
    """Choose and lease the devices of a start. Devices that the options name are used even if others have leased them,
    but by a queued run (`among` which the queue has watched). NotFree if too few are free, RunError if its part of a
    GPU is too small.
    """
    machine = this_machine.read()
    if (wish := wish_of(options, machine)) is None:
        used = {gpu.key: gpu.memory_used_bytes for gpu in (*machine.gpus, *machine.parts)}
        names, taken = names_of(options, machine, all_visible), list[Lease]()
        if among is not None:
            return Devices(options, take(names, what, used))
        for name in names:
            with contextlib.suppress(NotFree, OSError):
                taken += take([name], what, used)
        return Devices(options, taken)
    if among is not None:
        wish = replace(wish, names=tuple(name for name in wish.names if name in among), per_gpu=options.run.per_gpu)
    if wish.prediction:
        tell(f"needs {MemoryNeed(wish.needs_bytes, wish.prediction)}")
    gpus, leases = choose(wish, what, tell, idle_known=among is not None)
    keys = {gpu.key for gpu in gpus}
    chosen: list[int | str] = [part.key for part in machine.parts if part.key in keys]
    placed = options.with_values({"device.visible": chosen})
    try:
        part = part_of_each(placed, machine, wish.per_gpu)
    except TooSmall as fault:
        for each in leases:
            each.release()
        raise RunError(f"{fault}: set run.per_gpu to less than {wish.per_gpu}") from None
    return Devices(replace(placed, device=replace(placed.device, **part)), leases)


def in_use(options: Options, machine: Machine) -> str:
    """Who uses the GPUs that the options name, in one line; empty for the CPU and a choice, or without NVML."""
    names = names_of(options, machine)
    if options.device.choice or names == [CPU]:
        return ""
    try:
        gpus: Sequence[GpuUse] = read()
    except NotFree:
        return ""
    reasons = (f"GPU {gpu.number}: {why}" for gpu in gpus if gpu.key in names and (why := gpu.why_not_free()))
    return "; ".join(reasons)


def wait(
    why_not: Callable[[], str], tell: Callable[[str], None], given_up: Callable[[], bool], seconds: float = WAIT_SECONDS
) -> None:
    """Wait while `why_not()` gives a reason, asked every `seconds`, or until `given_up()`. `tell` gets each new one."""
    last = ""
    while not given_up() and (reason := why_not()):
        if reason != last:
            tell(f"waiting: {reason}")
            last = reason
        until = time.monotonic() + seconds
        while not given_up() and time.monotonic() < until:
            time.sleep(0.1)


def why_not(options: Options, machine: Machine) -> str:
    """Which devices a start lacks now, and who has them; empty if it could start. NotFree if the GPUs or the memory
    needed cannot be determined.
    """
    wish = wish_of(options, machine)
    if wish is not None:
        return wish.missing(read())
    if names_of(options, machine) == [CPU]:
        who = holder(CPU)
        return f"the CPU is used by {who}" if who is not None else ""
    return in_use(options, machine)


# ---- leases ---------------------------------------------------------------------------------------


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
        return key_of(self.name, self.slot)

    def write(self, what: str, run: str = "", pid: int | None = None) -> None:
        """Record as holder the process `pid`, by default this one."""
        process = Process.of(pid or os.getpid())
        about = {"what": what, "run": run, "since": time.time(), "used_bytes": self.used_bytes, "per_gpu": self.per_gpu}
        self.fields = about | process.as_fields() | Place.here().as_fields()
        records.write_record(self.key, self.fields)

    def release(self, stuck: str = "") -> None:
        """Give the device back; `stuck` is recorded as the reason why others still cannot use it."""
        if stuck:  # also of a slot: the whole GPU is stuck
            records.write_record(self.name, self.fields | {"stuck": stuck})
        if self.slot or not stuck:
            records.remove_record(self.key)
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
            device = "the CPU" if name == CPU else name
            if isinstance(fault, OSError):
                raise NotFree(f"{device} cannot be leased: {fault.strerror}: {fault.filename}") from None
            raise NotFree(f"{device} is used by {holder(name) or 'another process'}") from None
    for lease in taken:
        lease.write(what)
    return taken


def _taken(name: str, per_gpu: int, used_bytes: int | None) -> Lease:
    """The lease of the device, or with `per_gpu` that of its first free slot. Raises Taken or OSError."""
    # A process locks its own lease first and then looks at the others, so that one of two at least sees the other.
    slot = 0
    if per_gpu > 1:
        free = set(range(1, per_gpu + 1)).difference(records.held_slots(name))
        if not free:
            raise locks.Taken
        slot = min(free)
    lock = locks.take(records.lock_file(name, slot), records.LOOK_ATTEMPTS, of_all_users=True)
    others = [held for held in records.held_slots(name) if held != slot]
    who = records.holder_of(name, others) if others else None
    if who is not None and not (slot and who.can_be_joined(per_gpu)):
        lock.release()
        raise locks.Taken
    if slot:
        records.remove_record(name)  # it says that the GPU was stuck
    return Lease(name, lock, used_bytes if who is None else who.used_bytes, slot=slot, per_gpu=per_gpu)


@contextlib.contextmanager
def choosing() -> Iterator[None]:
    """A context that holds the lock under which devices are read, chosen and leased. Only one process of the machine
    can hold it. Raises NotFree if others hold it for ten seconds, or if the folder of the leases cannot be used.
    """
    try:
        lock = locks.take(records.folder() / records.CHOOSING, _CHOOSING_ATTEMPTS, of_all_users=True)
    except locks.Taken:
        raise NotFree("another process has been choosing GPUs for 10 s; try again") from None
    except OSError as fault:
        raise NotFree(f"GPUs cannot be leased: {fault.strerror}: {fault.filename}; {FOLDER} names a folder") from None
    with lock:
        yield


def inherited(variable: str | None) -> list[Lease]:
    """The leases that LEASED names, which children do not inherit. One that cannot be taken over is left out."""
    leases = []
    for entry in (variable or "").split(","):
        number, _, key = entry.partition(" ")
        with contextlib.suppress(ValueError, locks.Taken, OSError):
            name, _, slot = key.partition(records.SLOT)
            fields = dict(typed.read_entries(records.record_file(key), records.HolderRecord).value)
            used_bytes, per_gpu = fields.get("used_bytes"), fields.get("per_gpu") or 1
            leases.append(Lease(name, locks.inherited(int(number)), used_bytes, fields, int(slot or 0), per_gpu))
    return leases


# ---- choosing -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Wish:
    """The GPUs that a start needs."""

    choice: GpuChoice  # the value of device.visible
    needs_bytes: int  # of memory on each GPU for `fits:N`, else 0
    names: tuple[str, ...]  # UUIDs or indices of the GPUs among which to choose
    prediction: str = ""  # from what `needs_bytes` is predicted; empty if it was measured
    per_gpu: int = 1  # runs among which a queued run shares its GPU

    @classmethod
    def of(cls, choice: GpuChoice, machine: Machine, need: MemoryNeed | None = None) -> Wish:
        names = tuple(gpu.key for gpu in candidates(choice, machine))
        return cls(choice, 0, names) if need is None else cls(choice, need.bytes, names, need.prediction)

    def why_not(self, gpu: GpuUse) -> str:
        """Return the reason why the start cannot use the GPU now; empty if it can."""
        return gpu.why_not_fitting(self.needs_bytes) if self.choice.shared else gpu.why_not_sharing(self.per_gpu)

    def fitting(self, gpus: Sequence[GpuUse]) -> list[GpuUse]:
        """The GPUs that the start could use now; for `fits:N` those with the least free memory first."""
        able = [gpu for gpu in gpus if gpu.key in self.names and not self.why_not(gpu)]
        return sorted(able, key=lambda gpu: gpu.free_bytes) if self.choice.shared else able

    def missing(self, gpus: Sequence[GpuUse]) -> str:
        """Return in one line which GPUs are missing and who has them; empty if enough GPUs can be used now."""
        able = self.fitting(gpus)
        if len(able) >= self.choice.count:
            return ""
        asked = (gpu for gpu in gpus if gpu.key in self.names)
        reasons = [f"GPU {gpu.number}: {why}" for gpu in asked if (why := self.why_not(gpu))]
        needs = f" with {size(self.needs_bytes)} free" if self.choice.shared else ""
        needs += f" ({self.prediction})" if self.prediction else ""
        what = f"needs {self.choice.kind}{needs}"
        return f"{what}, and {len(able)} can be had: {'; '.join(reasons)}" if able else f"{what}; {'; '.join(reasons)}"


def choose(
    wish: Wish, what: str, tell: Callable[[str], None] = lambda _text: None, idle_known: bool = False
) -> tuple[list[GpuUse], list[Lease]]:
    """Watch the GPUs for idle_seconds (unless `idle_known`, or for `fits:N`), then read, choose and lease them under
    one lock, so that two starts never get the same GPU. NotFree if too few. `what` is for other users.
    """
    idle = set(wish.names)

    def able() -> list[GpuUse]:
        """Those that can be used now, and could at each look before. NotFree if they are too few."""
        gpus = read()
        usable = [gpu for gpu in wish.fitting(gpus) if gpu.key in idle]
        if len(usable) < wish.choice.count:
            before = f"needs {wish.choice.kind}; GPUs that are free now were in use a moment ago"
            raise NotFree(wish.missing(gpus) or before)
        idle.intersection_update(gpu.key for gpu in usable)
        return usable

    if not (wish.choice.shared or idle_known):
        seconds = idle_seconds()
        until, gpus = time.monotonic() + seconds, able()
        if seconds:
            which, stays = ", ".join(gpu.number for gpu in gpus), "stays" if len(gpus) == 1 else "stay"
            tell(f"looking for {seconds:.0f} s whether GPU {which} {stays} idle")
        while (left := until - time.monotonic()) > 0:
            time.sleep(min(left, LOOK_SECONDS))
            able()
    with choosing():
        chosen = able()[: wish.choice.count]
        used = {gpu.key: gpu.memory_used_bytes for gpu in chosen}
        return chosen, take(used, what, used, wish.per_gpu)


# ---- the memory that a run needs ----------------------------------------------------------------

MARGIN = 1.1  # memory differs from run to run, and cuDNN may choose other algorithms
MOST_RUNS = 500  # runs that are read, the newest first; and as many trials
BATCH = "input.batch_size"  # of one replica
# Settings that do not change what a step takes of a GPU's memory. A trial has its own values of those of `train`.
_OTHER = ("device.visible", "train.epochs", "train.steps_per_epoch", "train.decay_steps", "train.seed",
          "train.learning_rate", "strategy.devices")  # fmt: skip
_WITH_PEAK = ("ok", "stopped", "timeout")  # outcomes: a run that has ended early may have needed more later
NOT_MEASURED = (
    "fits: no run with these settings has measured yet how much GPU memory they need\n"
    "gputui fit-batch --dry-run --set device.visible=free:1, with the same --preset and --set, measures it by two "
    "short trials"
)


class NotMeasuredError(NotFree):
    """The memory that a run needs is not known, as neither earlier runs nor trials have measured enough of it."""


@dataclass(frozen=True)
class MemoryNeed:
    """The bytes that a run needs on each GPU."""

    bytes: int
    prediction: str = ""  # from what they are predicted, in words; empty if they were measured

    def __str__(self) -> str:
        return ", ".join(filter(None, (f"{size(self.bytes)} on each GPU", self.prediction)))


def memory_need(options: Options) -> MemoryNeed:
    """The peak of an earlier run or trial with the same settings, or the prediction from two other batch sizes, plus 10
    % and 768 MiB. The newest 500 runs and 500 trials are read. NotMeasuredError if they have measured too little.
    """
    values, peaks = step_settings(options.values()), dict[int, int]()
    batch = options.input.batch_size
    trials = (Run(path) for proof in _newest(proofs_folder()) for path in _newest(proof / TRIALS))
    for run in chain(runs.all_runs()[:MOST_RUNS], islice(trials, MOST_RUNS)):
        earlier = step_settings(trained_with(run))
        of_run = earlier.get(BATCH)
        if not isinstance(of_run, int) or of_run in peaks:
            continue
        if all(earlier.get(key, value) == value for key, value in values.items() if key != BATCH):
            result = run.result or {}
            peak = result.get("peak_memory_bytes") if result.get("outcome") in _WITH_PEAK else None
            if peak and of_run == batch:
                return MemoryNeed(_with_margin(peak))
            if peak:
                peaks[of_run] = peak
    line = plan.through(list(peaks.items()))
    if line is None:
        raise NotMeasuredError(NOT_MEASURED)
    *most, last = map(str, sorted(peaks))
    return MemoryNeed(_with_margin(line.at(batch)), f"predicted from batch sizes {', '.join(most)} and {last}")


def _with_margin(peak_bytes: float) -> int:
    return round(max(0.0, peak_bytes) * MARGIN) + CONTEXT_BYTES


def _newest(folder: Path) -> list[Path]:
    # The paths with the greatest names (a date or a number) first.
    try:
        return [folder / name for name in sorted(os.listdir(folder), reverse=True) if not name.startswith(".")]
    except OSError:
        return []


def step_settings(values: Mapping[str, Any]) -> dict[str, object]:
    """Return those of the options, by `group.name`, that change what a step takes of a GPU."""
    return {key: plain(value) for key, value in values.items() if not key.startswith("run.") and key not in _OTHER}


# ---- giving back ----------------------------------------------------------------------------------

GIVE_BACK_SECONDS = 10.0  # that a driver may take to free the memory of a process that has ended
LEFT_BYTES = 256 * 1024**2  # more than before the lease, which do not count


def give_back(leases: Sequence[Lease]) -> list[str]:
    """Release the leases of a run whose processes have ended, each as soon as the GPU's memory is free. After 10 s it
    is released as `stuck`: a line for each is returned.
    """
    for each in leases:
        if each.name == CPU:
            each.release()
    left = {each.name: each for each in leases if each.name != CPU}
    until, uses = time.monotonic() + GIVE_BACK_SECONDS, dict[str, GpuUse]()
    while left:
        try:
            uses = {use.key: use for use in read()}
        except NotFree:  # it is not known whether they are free
            uses = {}
        for name in [name for name, each in left.items() if _is_back(each, uses.get(name))]:
            left.pop(name).release()
        if not left or time.monotonic() >= until:
            break
        time.sleep(min(0.5, LOOK_SECONDS))
    lines = []
    for name, each in left.items():
        use = uses[name]
        who = f", by {use.computing[0]}" if use.computing else ""
        reason = f"its run has ended, and {size(use.memory_used_bytes)} of its memory are still in use{who}"
        each.release(stuck=reason)
        lines.append(f"GPU {use.number} is stuck: {reason}")
    return lines


def _is_back(of: Lease, use: GpuUse | None) -> bool:
    if use is None or use.memory_used_bytes is None or of.used_bytes is None:
        return True
    if of.slot and records.held_slots(of.name) != [of.slot]:  # its memory is also that of other runs
        return True
    is_display = use.has_display and not use.computing and use.memory_used_bytes < use.limit_bytes
    return is_display or use.memory_used_bytes <= of.used_bytes + LEFT_BYTES


_RECORD = "idle"
NOTED_SECONDS = 60.0  # between two notes
HOW_IDLE = "at no look of gputui since then did the process use the GPU, and in between it used nearly no CPU time"
CPU_SECONDS, CPU_SHARE = 0.5, 0.003  # that an idle process may use between two notes: Python wakes up now and then


@dataclass(frozen=True)
class _Note:
    """The note on a process. The first two are in seconds since the start of the machine."""

    idle_since: float
    noted_at: float
    cpu_seconds: float  # of CPU time until then


class IdleNotes:
    """Keeps notes on which processes are idle. The file is read and written about once a minute."""

    def __init__(self) -> None:
        self._notes: dict[str, _Note] = {}
        self._read_at = float("-inf")

    def of(self, gpus: Sequence[GpuUse]) -> list[GpuUse]:
        """Return the GPUs of a reading, with `idle_seconds` of each of their processes for which it is known."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        is_due = now - self._read_at >= NOTED_SECONDS
        if is_due:
            self._notes, self._read_at = _read_notes(), now
        before, names = self._notes, dict[int, str]()
        self._notes = {}
        places_of = defaultdict[int, list[tuple[GpuUse, GpuProcess]]](list)
        for gpu in gpus:
            for process in gpu.processes or ():
                places_of[process.pid].append((gpu, process))
        for pid, places in places_of.items():
            cpu_seconds, are_idle = places[0][1].cpu_seconds, [_is_idle(*place) for place in places]
            if cpu_seconds is None or None in are_idle:
                continue
            names[pid] = f"{pid} {Process.of(pid).start_ticks}"
            note = before.get(names[pid])
            most = note.cpu_seconds + CPU_SECONDS + CPU_SHARE * (now - note.noted_at) if note else 0.0
            if note is None or cpu_seconds > most or not all(are_idle):
                note = _Note(now, now, cpu_seconds)
            elif now - note.noted_at >= NOTED_SECONDS:
                note = replace(note, noted_at=now, cpu_seconds=cpu_seconds)
            self._notes[names[pid]] = note
        works = (note.idle_since - before[name].idle_since for name, note in self._notes.items() if name in before)
        if is_due or self._notes.keys() != before.keys() or max(works, default=0.0) >= NOTED_SECONDS:
            plain = {name: asdict(note) for name, note in self._notes.items()}
            records.write_record(_RECORD, Place.here().as_fields() | {"notes": plain})
        idle = {pid: now - self._notes[name].idle_since for pid, name in names.items()}
        return [
            replace(gpu, processes=gpu.processes and tuple(
                replace(process, idle_seconds=idle.get(process.pid)) for process in gpu.processes
            ))
            for gpu in gpus
        ]  # fmt: skip


def _is_idle(gpu: GpuUse, process: GpuProcess) -> bool | None:
    # None if it is not known.
    if process.use is not None:
        return process.use == 0
    return None if gpu.busy is None else gpu.busy <= BUSY


def _read_notes() -> dict[str, _Note]:
    """By the names of the processes, which are valid in the place of the file."""
    with contextlib.suppress(OSError, typed.Damaged):
        path = records.record_file(_RECORD)
        if records.belongs_to(path, os.geteuid()):
            content = read_object(path).value
            if (place := Place.read(content)) is not None and place.is_here:
                return typed.convert(content.get("notes", {}), dict[str, _Note])
    return {}
