"""What this machine has, as far as options depend on it: GPUs by NVML, CPUs, memory. No TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from . import job as jobs
from . import limits
from .background_call import BackgroundCall
from .job import Remark as JobRemark
from .nvml import NO_GPU, Nvml, NvmlUnavailable

PATIENCE_SECONDS = 10.0  # some drivers take seconds to wake up; one that hangs must hang nobody else


@dataclass(frozen=True)
class Instance:
    """A partition of a GPU (MIG)."""

    uuid: str
    memory_total_bytes: int | None


@dataclass(frozen=True)
class Gpu:
    """One GPU in PCI order; what the driver does not tell is None.

    `mig` says that it is in MIG mode: only its `instances` can compute.
    """

    index: int
    uuid: str | None
    name: str | None
    compute_capability: tuple[int, int] | None
    memory_total_bytes: int | None
    mig: bool = False
    instances: tuple[Instance, ...] = ()


@dataclass(frozen=True)
class Machine:
    """`no_gpu_reason` says why `gpus` is empty; `job` is what is to be said of the job that this process belongs to."""

    gpus: tuple[Gpu, ...]
    no_gpu_reason: str
    cpus: int
    memory_bytes: int
    job: tuple[JobRemark, ...] = ()


def read() -> Machine:
    """The machine as it is now."""
    gpus, reason = _gpus()
    return Machine(gpus, reason, len(os.sched_getaffinity(0)), limits.memory().total, jobs.read(os.environ))


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order, which is CUDA's.

    In the place of a MIG instance stands the GPU that it is a part of, with the instance's memory.
    """
    gpus, _ = _gpus()
    chosen = os.environ.get("CUDA_VISIBLE_DEVICES")
    if chosen is None:
        return tuple(part for gpu in gpus if (part := _computing(gpu)))
    return tuple(_named([name.strip() for name in chosen.split(",")], gpus))


def _named(names: Sequence[str], gpus: Sequence[Gpu]) -> Iterator[Gpu]:
    """Up to the first name that is none, as CUDA does (CUDA C++ Programming Guide, "CUDA Environment Variables")."""
    for name in names:
        gpu = next((gpu for gpu in gpus if name == str(gpu.index)), None)
        found = _computing(gpu) if gpu else _by_uuid(name, gpus)
        if found is None:
            return
        yield found


def _by_uuid(name: str, gpus: Sequence[Gpu]) -> Gpu | None:
    """By the UUID of a GPU or of an instance, as many characters as are needed; MIG-GPU-uuid/1/0 by older drivers."""
    if not name.startswith(("GPU-", "MIG-")):
        return None
    older = name.removeprefix("MIG-").split("/")[0]
    whole = [_computing(gpu) for gpu in gpus if gpu.uuid and gpu.uuid.startswith(older)]
    parts = [_part(gpu, part) for gpu in gpus for part in gpu.instances if part.uuid.startswith(name)]
    found = whole + parts
    return found[0] if len(found) == 1 else None


def _computing(gpu: Gpu) -> Gpu | None:
    """In MIG mode CUDA takes the first instance where none is named."""
    if gpu.mig:
        return _part(gpu, gpu.instances[0]) if gpu.instances else None
    return gpu


def _part(gpu: Gpu, instance: Instance) -> Gpu:
    return replace(gpu, memory_total_bytes=instance.memory_total_bytes)


def _gpus() -> tuple[tuple[Gpu, ...], str]:
    try:
        found = BackgroundCall(_identities).result(PATIENCE_SECONDS)
    except NvmlUnavailable as reason:
        return (), str(reason)
    except TimeoutError as late:
        return (), f"the NVIDIA driver hangs: {late}"
    return found, "" if found else NO_GPU


def _identities() -> tuple[Gpu, ...]:
    nvml = Nvml()
    try:
        return tuple(_gpu(identity) for identity in nvml.identities())
    finally:
        nvml.close()


def _gpu(identity: Mapping[str, Any]) -> Gpu:
    instances = identity.get("mig")
    return Gpu(
        index=identity["index"],
        uuid=identity.get("uuid"),
        name=identity.get("name"),
        compute_capability=identity.get("compute_capability"),
        memory_total_bytes=identity.get("memory_total_bytes"),
        mig=instances is not None,
        instances=tuple(Instance(one["uuid"], one["memory_total_bytes"]) for one in instances or ()),
    )
