"""The leases of the GPUs of the last readings, in words: a line for each GPU, and a line for all GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...engine.files.values import whole
from ...engine.leases import lease
from ...engine.leases.free_gpus import GpuUse, GpuUser, IdleNotes
from .run.gpu_reading import FREE, Gpu, GpuProcess, Instance, numbers


def with_leases(gpus: Sequence[Gpu], notes: IdleNotes) -> tuple[Gpu, ...]:
    """Return the GPUs with their leases, and with the longer of the idle times seen here and noted earlier. In a
    thread."""
    uses = iter(notes.of([use for gpu in gpus for use in _uses(gpu)]))
    return tuple(_with_uses(gpu, [next(uses) for _ in _uses(gpu)]) for gpu in gpus)


def _with_uses(gpu: Gpu, uses: Sequence[GpuUse]) -> Gpu:
    words = "; ".join(f"{use.number} {_text(use)}" if gpu.mig else _text(use) for use in uses)
    idle = {user.pid: user.idle_seconds or 0.0 for use in uses for user in use.users or ()}
    processes = gpu.processes and tuple(
        replace(process, idle_seconds=max(process.idle_seconds, idle.get(process.pid, 0.0)))
        if process.idle_seconds is not None
        else process
        for process in gpu.processes
    )
    return replace(gpu, lease=words, processes=processes)


def _uses(gpu: Gpu) -> list[GpuUse]:
    if not gpu.mig:
        return [_use(gpu, gpu, gpu.busy)]
    return [replace(_use(gpu, instance, None), instance=place) for place, instance in enumerate(gpu.mig)]


def _use(gpu: Gpu, part: Gpu | Instance, busy: float | None) -> GpuUse:
    return GpuUse(
        gpu.index,
        part.uuid,
        gpu.name or "GPU",
        whole(part.memory_used_bytes),
        whole(part.memory_total_bytes),
        busy,
        None if part.processes is None else tuple(map(_user, part.processes)),
        lease.holder(part.uuid or str(gpu.index)),
    )


def _user(process: GpuProcess) -> GpuUser:
    return GpuUser(
        process.pid,
        process.user,
        process.name,
        process.started,
        whole(process.memory_used_bytes),
        process.use,
        process.cpu_seconds,
        type=process.type,
    )


def _text(use: GpuUse) -> str:
    # `stuck`: its memory is used although the run has ended.
    holder = use.holder
    if holder is not None and not holder.stuck:
        return str(holder)
    stuck = holder is not None and not use.computing and bool(use.why_not_free())
    return f"stuck: {holder.stuck}" if holder is not None and stuck else use.why_not_free() or FREE


def overview(gpus: Sequence[Gpu]) -> str:
    alike: dict[str, list[int]] = {}
    for gpu in gpus:
        if gpu.lease and not gpu.missing:
            alike.setdefault(gpu.lease, []).append(gpu.index)
    return "; ".join(f"GPU {numbers(indices)}: {text}" for text, indices in alike.items())
