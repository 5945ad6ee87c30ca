"""The present state of the GPUs and the host without a run, and who uses the GPUs. Asking the driver may take long or
hang and has a thread of its own (engine/telemetry/sampler.py).
Deferred imports: NVML and psutil are loaded in the thread that reads."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue

from ...engine.gpu import GpuProcess
from ...engine.leases.gpu_use import GpuUse, IdleNotes, uses_of
from ...engine.runs import Run
from ...engine.runs.events import Event
from ...engine.runs.parsing import dated
from .queue_places import newest_runs
from .run.gpu_reading import FREE, ShownGpu, numbers
from .run.snapshot import Snapshot, Store

UNKNOWN = "not visible"


@dataclass(frozen=True)
class Line:
    """A line about the users of GPUs: a process, or a user above the user's processes (then `process` is None, and
    `count` their number), with the numbers of the used GPUs and the memory on all of them."""

    key: str
    text: str
    process: GpuProcess | None = None
    gpus: tuple[int, ...] = ()
    memory_bytes: float | None = None
    count: int = 1


def users_of(gpus: Sequence[ShownGpu]) -> list[Line]:
    """Return the users, with their processes that use a GPU below each; last the processes of users not known."""
    by_pid: dict[int, list[tuple[int, GpuProcess]]] = {}
    for gpu in gpus:
        for process in gpu.processes or ():
            by_pid.setdefault(process.pid, []).append((gpu.index, process))
    by_user: dict[str, list[Line]] = {}
    for pid, on in by_pid.items():
        process, memory = _together([each for _, each in on]), _sum(each.memory_used_bytes for _, each in on)
        text = process.hidden or process.program or UNKNOWN
        line = Line(f"process {pid}", text, process, tuple(index for index, _ in on), memory)
        by_user.setdefault(process.user or UNKNOWN, []).append(line)
    lines: list[Line] = []
    for user, below in sorted(by_user.items(), key=lambda item: (item[0] == UNKNOWN, item[0])):
        used = tuple(sorted({index for line in below for index in line.gpus}))
        memory = _sum(line.memory_bytes for line in below)
        lines += [Line(f"user {user}", user, None, used, memory, len(below)), *below]
    return lines


def not_known(gpus: Sequence[ShownGpu]) -> str:
    """Name the GPUs whose processes the driver does not list, with the reason; empty if there are none."""
    reasons: dict[str, list[int]] = {}
    for gpu in gpus:
        if gpu.processes is None:
            reasons.setdefault(gpu.missing or gpu.why("processes"), []).append(gpu.index)
    return "; ".join(f"GPU {numbers(indices)}: {why}" for why, indices in reasons.items())


def _together(processes: Sequence[GpuProcess]) -> GpuProcess:
    # Use and idle time are None if one of the GPUs does not report them.
    if any(process.use is None or process.idle_seconds is None for process in processes):
        return replace(processes[0], use=None, idle_seconds=None)
    latest = min(processes, key=lambda process: (process.idle_seconds or 0, process.idle_at_least))
    return replace(latest, use=max(process.use or 0 for process in processes))


def _sum(values: Iterator[float | None]) -> float | None:
    present = [value for value in values if value is not None]
    return sum(present) if present else None


# ---- the machine ----------------------------------------------------------------------------------


READ_SECONDS = 1.0
TAKE_SECONDS = 0.1


class MachineReader:
    """Reads the machine for one viewer. `run` is a run that is running on this machine, None if there is none.
    `stuck_seconds` is for how many seconds the driver has not answered."""

    def __init__(self) -> None:
        self.run: Run | None = None
        self.stuck_seconds = 0.0
        self._read_events: SimpleQueue[tuple[float, Event]] = SimpleQueue()

    def follow(self, leaving: threading.Event) -> Iterator[Snapshot]:
        """Yield snapshots until `leaving` is set; at the end the driver is released, unless it does not answer."""
        from ...engine.telemetry.host import Host
        from ...engine.telemetry.sampler import GpuReader

        # A run on another machine has no trainer here.
        self.run = next((run for run in newest_runs() if run.liveness.trainer), None)
        trainer = self.run.process("trainer") if self.run else None
        pid = trainer.pid if trainer else None
        # Reading the traffic keeps the driver busy: it is read only if no training could be delayed.
        reader = GpuReader(self._put, READ_SECONDS, pcie=pid is None, own_pid=pid, processes=True)
        reader.start()
        host, store, notes, due = Host(pid or NOBODY), Store(), IdleNotes(), 0.0
        try:
            while not leaving.wait(TAKE_SECONDS):
                if time.monotonic() >= due:
                    due = time.monotonic() + READ_SECONDS
                    self._put(host.read())
                self.stuck_seconds = reader.stuck_seconds
                events = []
                while not self._read_events.empty():
                    t, event = self._read_events.get()
                    events.append(dated(event, t))
                if events:
                    store.feed(events)
                    now = store.snapshot()
                    yield replace(now, gpus=tuple(_with_uses(gpu, notes.of(uses_of(gpu))) for gpu in now.gpus))
        finally:
            reader.stop()

    def _put(self, event: Event) -> None:
        self._read_events.put((time.time(), event))


NOBODY = -1  # a process id that no process has


def _with_uses(gpu: ShownGpu, uses: Sequence[GpuUse]) -> ShownGpu:
    """Return the GPU with its lease, and with the longer of the idle times seen here and noted earlier."""
    words = "; ".join(f"{use.number} {_text(use)}" if gpu.instances else _text(use) for use in uses)
    idle = {process.pid: process.idle_seconds or 0.0 for use in uses for process in use.processes or ()}
    processes = gpu.processes and tuple(
        replace(process, idle_seconds=max(process.idle_seconds, idle.get(process.pid, 0.0)))
        if process.idle_seconds is not None
        else process
        for process in gpu.processes
    )
    return replace(gpu, lease=words, processes=processes)


def _text(use: GpuUse) -> str:
    # `stuck`: its memory is used although the run has ended.
    holder = use.holder
    if holder is not None and not holder.stuck:
        return str(holder)
    stuck = holder is not None and not use.computing and bool(use.why_not_free())
    return f"stuck: {holder.stuck}" if holder is not None and stuck else use.why_not_free() or FREE


def overview(gpus: Sequence[ShownGpu]) -> str:
    alike: dict[str, list[int]] = {}
    for gpu in gpus:
        if gpu.lease and not gpu.missing:
            alike.setdefault(gpu.lease, []).append(gpu.index)
    return "; ".join(f"GPU {numbers(indices)}: {text}" for text, indices in alike.items())
