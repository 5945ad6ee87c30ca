"""A machine's GPUs, and which of them CUDA shows, as plain data, which another process may have read."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..runs.run_cluster import Cluster
from ..telemetry import resource_limits
from . import allocation, slurm
from . import cluster as clusters
from . import slurm as jobs
from .allocation import Allocation
from .slurm import Left
from .slurm import Remark as JobRemark
from .visible_devices import VARIABLE, Device, find, hides_all, named, visible

NOT_LISTED_BYTES = 1024**3  # more than the driver itself uses


@dataclass(frozen=True)
class Instance:
    """A part of a GPU that works as a GPU of its own (a MIG instance). A value is None if it is not known."""

    uuid: str
    memory_total_bytes: int | None
    memory_used_bytes: int | None = None


@dataclass(frozen=True)
class Gpu:
    """One GPU; `index` is its place (from 0) in PCI order. A value is None if the driver does not report it.

    `mig` is True in MIG mode: then only its `instances` can compute. `lost` is the reason why the GPU no longer
    answers, else empty. `prohibited` is True if its compute mode allows no process. `memory_used_bytes`, `holders` and
    `sole_holder` are values of this moment: `holders` are the processes that compute on the GPU, and `sole_holder` is
    the process that uses it alone in exclusive mode, else empty. `instance` is the UUID of a MIG instance if this
    stands for the instance, with its memory.
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
    lost: str = ""
    prohibited: bool = False
    memory_used_bytes: int | None = None
    holders: tuple[str, ...] = ()
    sole_holder: str = ""
    instance: str = ""

    @property
    def is_taken(self) -> bool:
        """True if other processes use a considerable part of its memory (as `is_taken` defines it); False in MIG
        mode.
        """
        return not self.mig and is_taken(self.memory_used_bytes, self.memory_total_bytes)

    def __str__(self) -> str:
        return f"GPU {self.index}" + (f" ({self.name})" if self.name else "")


@dataclass(frozen=True)
class Fault:
    """The reason why a training cannot use the GPUs of this machine.

    `level` is error or warning, `about` the subject, `what` the reason, and `remedy` what to do about it.
    """

    level: str
    about: str
    what: str
    remedy: str


@dataclass(frozen=True)
class Answers:
    """The answers of NVML: the GPUs, the driver's version, and the newest CUDA version that it supports (`cuda`).

    `reason`, `missing` and `fault` are `no_gpu_reason`, `missing` and `fault` of Machine.
    """

    gpus: tuple[Gpu, ...] = ()
    reason: str = ""
    missing: str = ""
    cuda: tuple[int, int] | None = None
    driver: str = ""
    fault: Fault | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Answers:
        """Return the answers that another process has written as JSON; `fields` is the JSON object."""
        gpus = tuple(_gpu(gpu) for gpu in fields["gpus"])
        cuda, fault = fields["cuda"], fields["fault"]
        return cls(
            gpus,
            fields["reason"],
            fields["missing"],
            (cuda[0], cuda[1]) if cuda else None,
            fields["driver"],
            Fault(**fault) if fault else None,
        )


def is_taken(used: int | None, total: int | None) -> bool:
    """Return True if the used memory is at least 1 GiB and more than a tenth of the total, both in bytes.

    A driver alone uses less. False if one of them is not known.
    """
    return used is not None and bool(total) and used >= NOT_LISTED_BYTES and used > 0.1 * (total or 0)


def _gpu(fields: Mapping[str, Any]) -> Gpu:
    capability = fields["compute_capability"]
    return Gpu(
        **{
            **fields,
            "compute_capability": (capability[0], capability[1]) if capability else None,
            "instances": tuple(Instance(**instance) for instance in fields["instances"]),
            "holders": tuple(fields["holders"]),
        }
    )


@dataclass(frozen=True)
class Machine:
    """The GPUs, processors and memory that this process may use, and its job. Texts are empty if there is nothing to
    report.

    `no_gpu_reason` is the reason why `gpus` is empty. `job` are remarks on the job of this process. `missing` is the
    reason why NVML cannot be read although CUDA may be able to use GPUs: then nothing is known of the GPUs, even if
    `gpus` is empty. `fault` is what is wrong with the driver of a machine that has GPUs. `driver` is the driver's
    version, `cuda` the newest CUDA that it supports. `visible_devices` is CUDA_VISIBLE_DEVICES, None if it is not set.
    `allocation` are the GPUs of this job, None if all may be used. `job_id` is the Slurm job, `job_ends` its end
    according to the environment. `cluster` is the cluster that the environment names, and `cluster_fault` the reason
    why it cannot be used.
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
    job_id: str = ""
    job_ends: Left | None = None
    cluster: Cluster | None = None
    cluster_fault: str = ""
    fault: Fault | None = None

    @classmethod
    def of(cls, answers: Answers) -> Machine:
        """Return the machine with the GPUs in `answers`. All other values are read from this process' environment and
        limits.
        """
        cluster, cluster_fault = clusters.read_or_reason(os.environ)
        return cls(
            answers.gpus,
            answers.reason,
            resource_limits.usable_cpus(),
            resource_limits.memory().total,
            jobs.read(os.environ),
            answers.missing,
            answers.cuda,
            os.environ.get(VARIABLE),
            allocation.read(os.environ, len(answers.gpus)),
            answers.driver,
            slurm.job_of(os.environ),
            slurm.left_by_variables(os.environ),
            cluster,
            cluster_fault,
            answers.fault,
        )

    @property
    def devices(self) -> list[Device]:
        """The GPUs as `Device`, which the rules in visible_devices.py use."""
        return [device_of(gpu) for gpu in self.gpus]

    @property
    def shown(self) -> tuple[Gpu, ...]:
        """The GPUs that CUDA shows to this process, in CUDA's order; see `shown_of`."""
        return self.shown_by(self.visible_devices)

    @property
    def parts(self) -> tuple[Gpu, ...]:
        """The GPUs and MIG instances that this process may use, of which CUDA shows only one instance at a time."""
        by_index = {gpu.index: gpu for gpu in self.gpus}
        return tuple(_part(by_index[each.index], each.instance) for each in named(self.visible_devices, self.devices))

    def shown_by(self, value: str | None) -> tuple[Gpu, ...]:
        """Return the GPUs that CUDA would show with this value of CUDA_VISIBLE_DEVICES, in CUDA's order."""
        return shown_of(self.gpus, value)

    @property
    def on_cpu_by_variable(self) -> bool:
        """True if CUDA_VISIBLE_DEVICES hides all GPUs on purpose."""
        return hides_all(self.visible_devices)

    def finds(self, name: str | int) -> bool:
        """Return True if exactly one GPU or MIG instance has this name."""
        return find(str(name), self.devices) is not None


def shown_of(gpus: Sequence[Gpu], value: str | None) -> tuple[Gpu, ...]:
    """Return the GPUs that CUDA shows with this value of CUDA_VISIBLE_DEVICES, in CUDA's order.

    A MIG instance is returned as the GPU that it is a part of, with the memory of the instance.
    """
    by_index = {gpu.index: gpu for gpu in gpus}
    shown = visible(value, [device_of(gpu) for gpu in gpus])
    return tuple(_part(by_index[device.index], device.instance) for device in shown)


def device_of(gpu: Gpu) -> Device:
    """Return the GPU as `Device`, which the rules in visible_devices.py use."""
    return Device(gpu.index, gpu.uuid, tuple(instance.uuid for instance in gpu.instances) if gpu.mig else None)


def _part(gpu: Gpu, instance: int | None) -> Gpu:
    if instance is None:
        return gpu
    part = gpu.instances[instance]
    return replace(
        gpu,
        instance=part.uuid,
        memory_total_bytes=part.memory_total_bytes,
        memory_used_bytes=part.memory_used_bytes,
    )
