"""The leases of the GPUs of the last readings, in words: a line for each GPU, and a line for all GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...engine.files.values import whole
from ...engine.leases import lease
from ...engine.leases.free_gpus import GpuUse, GpuUser
from ...engine.leases.idle_notes import IdleNotes
from .run.gpu_reading import FREE, Gpu, GpuProcess, numbers


def with_leases(gpus: Sequence[Gpu], notes: IdleNotes) -> tuple[Gpu, ...]:
    """Return the GPUs with their leases as they are now, and with the time for which processes have been idle by the
    notes of earlier looks, if that is longer than the screen has seen. Reads some small files for each GPU, so it is to
    be called in a thread.
    """
    uses = notes.of([_use(gpu) for gpu in gpus])
    return tuple(
        replace(gpu, lease=_text(use), processes=_noted(gpu.processes, use))
        for gpu, use in zip(gpus, uses, strict=True)
    )


def _noted(processes: tuple[GpuProcess, ...] | None, use: GpuUse) -> tuple[GpuProcess, ...] | None:
    idle = {user.pid: user.idle_seconds or 0.0 for user in use.users or ()}
    return processes and tuple(
        replace(process, idle_seconds=max(process.idle_seconds, idle.get(process.pid, 0.0)))
        if process.idle_seconds is not None
        else process
        for process in processes
    )


def _use(gpu: Gpu) -> GpuUse:
    users = gpu.processes
    return GpuUse(
        gpu.index,
        gpu.uuid,
        gpu.name or "GPU",
        whole(gpu.memory_used_bytes),
        whole(gpu.memory_total_bytes),
        gpu.busy,
        None if users is None else tuple(map(_user, users)),
        lease.holder(gpu.uuid or str(gpu.index)),
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
    )


def _text(use: GpuUse) -> str:
    """Return who has leased the GPU, for what and since when. Without a lease: that it is free, stuck, or in use."""
    holder = use.holder
    if holder is not None and not holder.stuck:
        return str(holder)
    stuck = holder is not None and not use.users and bool(use.why_not_free())
    return f"stuck: {holder.stuck}" if holder is not None and stuck else use.why_not_free() or FREE


def overview(gpus: Sequence[Gpu]) -> str:
    """Return the leases of all GPUs in one line. GPUs with the same lease are named together."""
    alike: dict[str, list[int]] = {}
    for gpu in gpus:
        if gpu.lease and not gpu.missing:
            alike.setdefault(gpu.lease, []).append(gpu.index)
    return "; ".join(f"GPU {numbers(indices)}: {text}" for text, indices in alike.items())
