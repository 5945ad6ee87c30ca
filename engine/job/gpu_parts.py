"""The part of a GPU that each of several trainings on it gets: memory and threads; and which options prevent this."""

from __future__ import annotations

from typing import Any

from ..options import Options
from ..units import size
from .machine_gpus import Machine, training_gpus

USABLE = 0.95  # share of a GPU's memory; the driver and the display take some
CONTEXT_BYTES = 768 * 1024**2  # CUDA and cuDNN themselves, which TensorFlow's count leaves out
MIB = 1024**2
LEAST_MEMORY_MB = 64  # that device.memory_limit_mb takes


class TooSmall(Exception):
    """A part of the GPU would be too small to train on. The text has its sizes."""


def of_each(options: Options, here: Machine, count: int) -> dict[str, Any]:
    """Return the settings of the group `device` with which each of `count` trainings shares one device: its threads
    and, on a GPU, its memory. Empty for one training. Values that the options set themselves are kept.

    Raises TooSmall if the GPU's memory is not enough for so many.
    """
    if count == 1:
        return {}
    device, threads = options.device, max(1, (here.cpus or 1) // count)
    changes: dict[str, Any] = {
        name: threads for name in ("intra_op_threads", "inter_op_threads") if getattr(device, name) == "auto"
    }
    gpus = training_gpus(options, here)
    total = gpus[0].memory_total_bytes if gpus else None
    if total is None:
        return changes
    limit, given = int((USABLE * total / count - CONTEXT_BYTES) / MIB), device.memory_limit_mb
    if given is not None and given * MIB * count > total:
        raise TooSmall(f"{count} x {size(given * MIB)} (device.memory_limit_mb) are more than {gpus[0]} has")
    if given is None and limit < LEAST_MEMORY_MB:
        raise TooSmall(f"{count} trainings leave each less than {size(LEAST_MEMORY_MB * MIB)} of {gpus[0]}")
    return changes if given is not None else changes | {"memory_limit_mb": limit}


def conflict(options: Options, on_cpu: bool) -> tuple[str, str, str] | None:
    """Return why trainings with these options cannot share one device: the option, the reason, and the setting that
    mends it. None if they can.
    """
    device = options.device
    if options.strategy.kind not in ("single", "one_device"):
        return "strategy.kind", f"trainings share one device, not with {options.strategy.kind}", "strategy.kind=single"
    if device.logical_devices > 1:
        return "device.logical_devices", "trainings share one whole device", "device.logical_devices=1"
    if on_cpu:
        return None
    limits = "the memory of each training on a GPU is limited, which"
    if device.allocator != "default":
        return "device.allocator", f"{limits} cuda_malloc_async cannot do", "device.allocator=default"
    if device.memory_growth is True:
        return "device.memory_growth", f"{limits} TensorFlow cannot combine with growth", "device.memory_growth=auto"
    return None
