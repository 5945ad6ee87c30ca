"""Which GPUs are free, who uses the others, and the release of leases. A GPU is free if no process computes on it, less
than 1 GiB of its memory is used, it was idle in each reading of idle_seconds (20 s by default), it works, and nobody
has leased it. If the driver does not report the processes of others (in a container, or in WSL), only the other
conditions decide. A GPU with a display (processes draw on it, or Windows does, in WSL) may be in use for a quarter of
its memory and 30 % of the time.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace

from ..files import typed
from ..files.reading import read_object
from ..gpu import Gpu, GpuProcess, extended
from ..system.child_process import BackgroundCall, BackgroundCalls
from ..system.descendants import descends
from ..system.identity import Place, Process
from ..telemetry import chips
from ..telemetry.nvml.connection import PATIENCE_SECONDS, Nvml
from ..telemetry.nvml.reasons import NvmlUnavailable
from ..units import share, size
from . import lease
from .lease import Holder, Lease, NotFree

IDLE_SECONDS = 20.0  # for which a GPU must have been idle: a program may pause between two trainings
IDLE_VARIABLE = "GPUTUI_IDLE_SECONDS"  # environment variable: another number of seconds
LOOK_SECONDS = 2.0  # between two looks
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
        if self.missing:
            return self.missing
        if self.holder is not None and self.leased:
            return f"used by {self.holder}"
        if self.free_bytes < needs_bytes:
            by = f" ({self.processes[0]})" if self.processes else ""
            return f"{size(self.free_bytes)} are free of the {size(needs_bytes)} needed{by}"
        return ""


def read() -> list[GpuUse]:
    """Return every GPU of the machine as it is now. Raises NotFree if NVML cannot be read."""

    def readings() -> list[Gpu]:
        with contextlib.closing(Nvml(processes=True)) as nvml:
            return nvml.read()

    return _uses(lambda: BackgroundCall(readings).result(PATIENCE_SECONDS))


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
    return [extended(GpuUse, part, holder=lease.holder(part.key)) for part in parts]


def idle_seconds() -> float:
    """Return for how many seconds a GPU must have been idle: the value of GPUTUI_IDLE_SECONDS (at least 0), or 20."""
    try:
        return max(0.0, float(os.environ.get(IDLE_VARIABLE, IDLE_SECONDS)))
    except ValueError:
        return IDLE_SECONDS


# ---- giving back ----------------------------------------------------------------------------------

GIVE_BACK_SECONDS = 10.0  # that a driver may take to free the memory of a process that has ended
LEFT_BYTES = 256 * 1024**2  # more than before the lease, which do not count


def give_back(leases: Sequence[Lease]) -> list[str]:
    """Release the leases of a run whose processes have ended, each as soon as the GPU's memory is free. After 10 s it
    is released as `stuck`: a line for each is returned.
    """
    for each in leases:
        if each.name == lease.CPU:
            each.release()
    left = {each.name: each for each in leases if each.name != lease.CPU}
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
    # The memory of a shared GPU is also that of the other runs.
    if use is None or use.memory_used_bytes is None or of.used_bytes is None or of.is_shared_now():
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
            self._notes, self._read_at = _read(), now
        before, names = self._notes, dict[int, str]()
        self._notes = {}
        for pid, places in _places(gpus).items():
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
            lease.write_record(_RECORD, Place.here().as_fields() | {"notes": plain})
        idle = {pid: now - self._notes[name].idle_since for pid, name in names.items()}
        return [
            replace(gpu, processes=gpu.processes and tuple(
                replace(process, idle_seconds=idle.get(process.pid)) for process in gpu.processes
            ))
            for gpu in gpus
        ]  # fmt: skip


def _places(gpus: Sequence[GpuUse]) -> dict[int, list[tuple[GpuUse, GpuProcess]]]:
    places: dict[int, list[tuple[GpuUse, GpuProcess]]] = {}
    for gpu in gpus:
        for process in gpu.processes or ():
            places.setdefault(process.pid, []).append((gpu, process))
    return places


def _is_idle(gpu: GpuUse, process: GpuProcess) -> bool | None:
    # None if it is not known.
    if process.use is not None:
        return process.use == 0
    return None if gpu.busy is None else gpu.busy <= BUSY


def _read() -> dict[str, _Note]:
    """By the names of the processes, which are valid in the place of the file."""
    with contextlib.suppress(OSError, typed.Damaged):
        path = lease.record_file(_RECORD)
        if lease.belongs_to(path, os.geteuid()):
            content = read_object(path).value
            if (place := Place.read(content)) is not None and place.is_here:
                return typed.convert(content.get("notes", {}), dict[str, _Note])
    return {}
