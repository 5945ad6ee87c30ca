"""What this machine has, as far as options depend on it: GPUs by NVML, CPUs, memory. No TensorFlow."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..system import installed
from . import allocation, chips, limits, nodes
from . import job as jobs
from .allocation import Allocation
from .background_call import BackgroundCall
from .job import Remark as JobRemark
from .nvml import NO_GPU, Nvml, NvmlUnavailable
from .reasons import Code
from .visible import VARIABLE, Device, find, visible

PATIENCE_SECONDS = 10.0  # some drivers take seconds to wake up; one that hangs must not make gputui hang
WITHOUT_CUDA = (Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH)  # then CUDA cannot work either


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
    multiprocessors: int | None = None
    pci_bus_id: str | None = None


@dataclass(frozen=True)
class Machine:
    """`no_gpu_reason` says why `gpus` is empty; `job` are remarks on the job that this process belongs to.

    `missing` says why NVML cannot be read although there may be GPUs that CUDA can use: then nothing is known of them,
    and nothing may be concluded from `gpus` being empty. `driver` is the driver's version, `cuda` the newest
    CUDA that it supports. `visible_devices` is CUDA_VISIBLE_DEVICES, `allocation` the GPUs of this job.
    """

    gpus: tuple[Gpu, ...]
    no_gpu_reason: str
    cpus: int
    memory_bytes: int
    job: tuple[JobRemark, ...] = ()
    missing: str = ""
    cuda: tuple[int, int] | None = None
    visible_devices: str | None = None
    allocation: Allocation | None = None
    driver: str = ""

    @property
    def devices(self) -> list[Device]:
        """The GPUs in the form that the rules for their names take."""
        return [_device(gpu) for gpu in self.gpus]

    @property
    def shown(self) -> tuple[Gpu, ...]:
        """The GPUs that CUDA shows to this process, in CUDA's order; see `visible_gpus`."""
        return self.shown_by(self.visible_devices)

    def shown_by(self, value: str | None) -> tuple[Gpu, ...]:
        """Those that it would show with this value of CUDA_VISIBLE_DEVICES."""
        return _shown(self.gpus, value)

    def finds(self, name: str | int) -> bool:
        """Whether a GPU or a MIG instance has this name."""
        return find(str(name), self.devices) is not None


def read() -> Machine:
    """The machine as it is now."""
    found = _answers()
    return Machine(
        found.gpus,
        found.reason,
        limits.usable_cpus(),
        limits.memory().total,
        jobs.read(os.environ),
        found.missing,
        found.cuda,
        os.environ.get(VARIABLE),
        allocation.read(os.environ, len(found.gpus)),
        found.driver,
    )


def visible_gpus() -> tuple[Gpu, ...]:
    """The GPUs that CUDA_VISIBLE_DEVICES leaves, in its order, which is CUDA's.

    In the place of a MIG instance stands the GPU that it is a part of, with the instance's memory.
    """
    return _shown(_answers().gpus, os.environ.get(VARIABLE))


def used_by_tensorflow(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Of the GPUs that CUDA shows, those that TensorFlow does not leave out as too small or too old.

    As in gpu_device.cc, GetValidDeviceIds: a display card is not used beside a larger GPU.
    """
    least = chips.least_multiprocessors(gpu.multiprocessors for gpu in gpus)
    oldest = min(installed.capabilities(), default=(0, 0))
    return [
        gpu
        for gpu in gpus
        if (gpu.multiprocessors is None or gpu.multiprocessors >= least)
        and (gpu.compute_capability is None or tuple(gpu.compute_capability) >= oldest)
    ]


def memory_free_bytes(index: int) -> int | None:
    """The free memory of a GPU at this moment; None where the driver does not report it."""
    try:
        (reading,) = BackgroundCall(lambda: _readings(index)).result(PATIENCE_SECONDS)
        free = reading["memory_total_bytes"] - reading["memory_used_bytes"] - reading.get("memory_reserved_bytes", 0)
    except (NvmlUnavailable, TimeoutError, ValueError, KeyError, TypeError):
        return None
    return max(0, int(free))


def _readings(index: int) -> list[dict[str, Any]]:
    nvml = Nvml()
    try:
        return [reading for reading in nvml.read() if reading["index"] == index]
    finally:
        nvml.close()


def _shown(gpus: tuple[Gpu, ...], value: str | None) -> tuple[Gpu, ...]:
    by_index = {gpu.index: gpu for gpu in gpus}
    shown = visible(value, [_device(gpu) for gpu in gpus])
    return tuple(_part(by_index[one.index], one.instance) for one in shown)


def _device(gpu: Gpu) -> Device:
    return Device(gpu.index, gpu.uuid, tuple(one.uuid for one in gpu.instances) if gpu.mig else None)


def _part(gpu: Gpu, instance: int | None) -> Gpu:
    return gpu if instance is None else replace(gpu, memory_total_bytes=gpu.instances[instance].memory_total_bytes)


@dataclass(frozen=True)
class _Answers:
    """The answers of NVML; `reason` and `missing` as in Machine."""

    gpus: tuple[Gpu, ...] = ()
    reason: str = ""
    missing: str = ""
    cuda: tuple[int, int] | None = None
    driver: str = ""


def _answers() -> _Answers:
    try:
        return BackgroundCall(_ask).result(PATIENCE_SECONDS)
    except NvmlUnavailable as fault:
        unknown = fault.code not in WITHOUT_CUDA and nodes.there()
        return _Answers(reason=str(fault), missing=str(fault) if unknown else "")
    except TimeoutError as late:
        reason = f"the NVIDIA driver hangs: {late}"
        return _Answers(reason=reason, missing=reason)


def _ask() -> _Answers:
    nvml = Nvml()
    try:
        gpus = tuple(_gpu(identity) for identity in nvml.identities())
        return _Answers(gpus, "" if gpus else NO_GPU, "", nvml.cuda(), nvml.driver())
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
        multiprocessors=identity.get("multiprocessors"),
        pci_bus_id=identity.get("pci_bus_id"),
    )
