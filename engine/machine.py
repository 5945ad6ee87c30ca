"""What this machine has, as far as options depend on it: GPUs by NVML, CPUs, memory. No TensorFlow."""

from __future__ import annotations

import os
from dataclasses import dataclass

import psutil

from .telemetry.nvml import NO_GPU, Nvml, NvmlUnavailable
from .telemetry.patience import Asked

PATIENCE_SECONDS = 10.0  # some drivers take seconds to wake up; one that hangs must hang nobody else


@dataclass(frozen=True)
class Gpu:
    """One GPU in PCI order; what the driver does not tell is None."""

    index: int
    uuid: str | None
    name: str | None
    compute_capability: tuple[int, int] | None
    memory_total_bytes: int | None


@dataclass(frozen=True)
class Machine:
    """`no_gpu_reason` says why `gpus` is empty."""

    gpus: tuple[Gpu, ...]
    no_gpu_reason: str
    cpus: int
    memory_bytes: int


def read() -> Machine:
    """The machine as it is now."""
    gpus, reason = _gpus()
    return Machine(gpus, reason, len(os.sched_getaffinity(0)), psutil.virtual_memory().total)


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order."""
    gpus, _ = _gpus()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return gpus
    names = [name.strip() for name in chosen.split(",")]
    return tuple(gpu for name in names for gpu in gpus if name == str(gpu.index) or name == gpu.uuid)


def _gpus() -> tuple[tuple[Gpu, ...], str]:
    try:
        found = Asked(_identities).answer(PATIENCE_SECONDS)
    except NvmlUnavailable as reason:
        return (), str(reason)
    except TimeoutError as late:
        return (), f"the NVIDIA driver hangs: {late}"
    return found, "" if found else NO_GPU


def _identities() -> tuple[Gpu, ...]:
    nvml = Nvml()
    try:
        return tuple(
            Gpu(
                index=identity["index"],
                uuid=identity.get("uuid"),
                name=identity.get("name"),
                compute_capability=identity.get("compute_capability"),
                memory_total_bytes=identity.get("memory_total_bytes"),
            )
            for identity in nvml.identities()
        )
    finally:
        nvml.close()
