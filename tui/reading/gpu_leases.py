"""The leases of the GPUs of the last readings, in words: a line for each GPU, and a line for all GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ...engine.files.values import whole
from ...engine.leases import lease
from ...engine.leases.free_gpus import GpuUse, GpuUser
from .run.gpu_reading import FREE, Gpu, numbers


def with_leases(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return the GPUs with their leases as they are now. Reads some small files for each GPU, so it is to be called in
    a thread.
    """
    return tuple(replace(gpu, lease=_text(gpu)) for gpu in gpus)


def _text(gpu: Gpu) -> str:
    """Return who has leased the GPU, for what and since when. Without a lease: that it is free, stuck, or in use."""
    holder = lease.holder(gpu.uuid or str(gpu.index))
    if holder is not None and not holder.stuck:
        return str(holder)
    users = gpu.processes
    use = GpuUse(
        gpu.index,
        gpu.uuid,
        gpu.name or "GPU",
        whole(gpu.memory_used_bytes),
        whole(gpu.memory_total_bytes),
        gpu.busy,
        None if users is None else tuple(GpuUser(each.pid, each.user, each.name, each.started) for each in users),
        holder,
    )
    stuck = holder is not None and not use.users and bool(use.why_not_free())
    return f"stuck: {holder.stuck}" if holder is not None and stuck else use.why_not_free() or FREE


def overview(gpus: Sequence[Gpu]) -> str:
    """Return the leases of all GPUs in one line. GPUs with the same lease are named together."""
    alike: dict[str, list[int]] = {}
    for gpu in gpus:
        if gpu.lease and not gpu.missing:
            alike.setdefault(gpu.lease, []).append(gpu.index)
    return "; ".join(f"GPU {numbers(indices)}: {text}" for text, indices in alike.items())
