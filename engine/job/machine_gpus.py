"""A machine's GPUs, which another process may have read, and which of them train, according to the options."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..finding import Finding, error
from ..gpu import Gpu
from ..interpreter import installed
from ..options import Options
from ..options.gpu_choice import GpuChoice
from ..plan import SEVERAL_REPLICAS
from ..runs.run_cluster import Cluster
from ..telemetry import chips, resource_limits
from ..units import size
from . import cluster as clusters
from . import slurm
from . import slurm as jobs
from .slurm import Left
from .visible_devices import VARIABLE, Allocation, allocation_from, find, hides_all, named, visible


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
    fault: Finding | None = None

    @classmethod
    def read(cls, fields: Mapping[str, Any]) -> Answers:
        """Return the answers that another process has written as JSON; `fields` is the JSON object."""
        gpus = tuple(map(Gpu.from_json, fields["gpus"]))
        cuda, fault = fields["cuda"], fields["fault"]
        return cls(
            gpus,
            fields["reason"],
            fields["missing"],
            (cuda[0], cuda[1]) if cuda else None,
            fields["driver"],
            Finding(**fault | {"options": ()}) if fault else None,
        )


@dataclass(frozen=True)
class Machine:
    """The GPUs, processors and memory that this process may use, and its job. Texts are empty if there is nothing to
    report.

    `no_gpu_reason` is the reason why `gpus` is empty. `job` are findings about its job. `missing` is the
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
    job: tuple[Finding, ...] = ()
    missing: str = ""
    cuda: tuple[int, int] | None = None
    visible_devices: str | None = None
    allocation: Allocation | None = None
    driver: str = ""
    job_id: str = ""
    job_ends: Left | None = None
    cluster: Cluster | None = None
    cluster_fault: Finding | None = None
    fault: Finding | None = None

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
            allocation_from(os.environ, len(answers.gpus)),
            answers.driver,
            slurm.job_of(os.environ),
            slurm.left_by_variables(os.environ),
            cluster,
            cluster_fault,
            answers.fault,
        )

    @property
    def shown(self) -> tuple[Gpu, ...]:
        """The GPUs that CUDA shows to this process, in CUDA's order."""
        return self.shown_by(self.visible_devices)

    @property
    def parts(self) -> tuple[Gpu, ...]:
        """The GPUs and MIG instances that this process may use, of which CUDA shows only one instance at a time."""
        return tuple(named(self.visible_devices, self.gpus))

    def shown_by(self, value: str | None) -> tuple[Gpu, ...]:
        """Return the GPUs that CUDA would show with this value of CUDA_VISIBLE_DEVICES, in CUDA's order."""
        return tuple(visible(value, self.gpus))

    @property
    def on_cpu_by_variable(self) -> bool:
        """True if CUDA_VISIBLE_DEVICES hides all GPUs on purpose."""
        return hides_all(self.visible_devices)

    def finds(self, name: str | int) -> bool:
        """Return True if exactly one GPU or MIG instance has this name."""
        return find(str(name), self.gpus) is not None


# ---- which train -------------------------------------------------------------------------------


def used_by_tensorflow(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return those of `gpus`, the GPUs that CUDA shows, that TensorFlow uses.

    It ignores GPUs that are older than all for which it was built, and GPUs with few multiprocessors, such as a display
    card, if there is a larger one (gpu_device.cc, GetValidDeviceIds).
    """
    least = chips.least_multiprocessors(gpu.multiprocessors for gpu in gpus)
    oldest = min(installed.capabilities(), default=(0, 0))
    return [
        gpu
        for gpu in gpus
        if (gpu.multiprocessors is None or gpu.multiprocessors >= least)
        and (gpu.compute_capability is None or tuple(gpu.compute_capability) >= oldest)
    ]


def visible_gpus(options: Options, machine: Machine) -> list[Gpu]:
    """Return the GPUs that TensorFlow sees and uses, in its order; empty if device.visible is none.

    If device.visible leaves the choice to gputui (`free:2`), return the first candidates, at most that number. The GPUs
    are chosen only when the run starts.
    """
    visible = options.device.visible
    if visible == "none":
        return []
    if choice := options.device.choice:
        return candidates(choice, machine)[: choice.count]
    shown = machine.shown if visible == "all" else machine.shown_by(",".join(map(str, visible)))
    return used_by_tensorflow(shown)


def candidates(choice: GpuChoice, machine: Machine) -> list[Gpu]:
    """Return the GPUs and MIG instances from which the choice is made: those that this process may use, of the kind of
    the choice, working, and allocated to this job.

    A choice of several GPUs has no instances, as CUDA shows one instance to a process.
    """
    given = machine.allocation
    allowed = (
        gpu
        for gpu in machine.parts
        if given is None or given.allows(gpu.index if gpu.instance is None else gpu.key, machine.gpus)
    )
    usable = (gpu for gpu in used_by_tensorflow(list(allowed)) if not (gpu.lost or gpu.prohibited))
    usable = (gpu for gpu in usable if choice.count == 1 or gpu.instance is None)
    return [gpu for gpu in usable if choice.allows(gpu.name, gpu.memory_total_bytes)]


def training_gpus(options: Options, machine: Machine) -> list[Gpu]:
    """Return the visible GPUs on which a replica of the model trains, each once. With the strategies `single` and
    `one_device` it is one GPU.
    """
    gpus = visible_gpus(options, machine)
    return [gpus[position] for position in dict.fromkeys(positions(options, len(gpus))) if position < len(gpus)]


def positions(options: Options, gpus: int) -> list[int]:
    """Return for each replica the position (from 0) of its GPU among the `gpus` visible GPUs.

    A position in strategy.devices that does not exist is returned, too.
    """
    strategy, parts = options.strategy, options.device.logical_devices
    chosen = range(gpus * parts) if strategy.devices == "all" or strategy.kind == "single" else strategy.devices
    gpu_of_each = [device // parts for device in chosen]
    return gpu_of_each if strategy.kind in SEVERAL_REPLICAS else gpu_of_each[:1]


# ---- several trainings on one GPU ------------------------------------------------------------------

USABLE = 0.95  # share of a GPU's memory; the driver and the display take some
CONTEXT_BYTES = 768 * 1024**2  # CUDA and cuDNN themselves, which TensorFlow's count leaves out
MIB = 1024**2
LEAST_MEMORY_MB = 64  # that device.memory_limit_mb takes


class TooSmall(Exception):
    """A part of the GPU would be too small to train on. The text has its sizes."""


def part_of_each(options: Options, here: Machine, count: int) -> dict[str, Any]:
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


def why_not_shared(options: Options, on_cpu: bool) -> Finding | None:
    """Return why trainings with these options cannot share one device; the remedy is a setting. None if they can."""
    device = options.device
    if options.strategy.kind not in ("single", "one_device"):
        what = f"trainings share one device, not with {options.strategy.kind}"
        return error("strategy.kind", what, "strategy.kind=single")
    if device.logical_devices > 1:
        return error("device.logical_devices", "trainings share one whole device", "device.logical_devices=1")
    if on_cpu:
        return None
    limits = "the memory of each training on a GPU is limited, which"
    if device.allocator != "default":
        return error("device.allocator", f"{limits} cuda_malloc_async cannot do", "device.allocator=default")
    if device.memory_growth is True:
        what = f"{limits} TensorFlow cannot combine with growth"
        return error("device.memory_growth", what, "device.memory_growth=auto")
    return None
