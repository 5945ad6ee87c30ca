"""What this machine has, as far as options depend on it: GPUs by NVML, CPUs, memory. No TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from . import job as jobs
from . import limits
from .background_call import BackgroundCall
from .job import Remark as JobRemark
from .nvml import NO_GPU, Nvml, NvmlUnavailable
from .visible import VARIABLE, Device, visible

PATIENCE_SECONDS = 10.0  # some drivers take seconds to wake up; one that hangs must not make gputui hang


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
    by_index = {gpu.index: gpu for gpu in gpus}
    shown = visible(os.environ.get(VARIABLE), [_device(gpu) for gpu in gpus])
    return tuple(_part(by_index[one.index], one.instance) for one in shown)


def _device(gpu: Gpu) -> Device:
    return Device(gpu.index, gpu.uuid, tuple(one.uuid for one in gpu.instances) if gpu.mig else None)


def _part(gpu: Gpu, instance: int | None) -> Gpu:
    return gpu if instance is None else replace(gpu, memory_total_bytes=gpu.instances[instance].memory_total_bytes)


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
