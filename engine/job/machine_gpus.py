"""A machine's GPUs: which CUDA shows to a process, which a launcher has allocated to it, and which train.

The rules of CUDA, with their sources:

- If the variable is not set, CUDA shows all GPUs; if it is empty, none. An identifier that fits no GPU ends the list:
  `0,-1,1` shows only GPU 0. GPUs come in the order of the list. A UUID may be shortened if it still fits only one GPU.
  A MIG instance is named by its UUID, with older drivers by `MIG-<GPU UUID>/<GPU instance>/<compute instance>` (CUDA
  Programming Guide, 5.2.1.1 CUDA_VISIBLE_DEVICES).
- If a MIG instance is shown, it is the only device: no other instance and no whole GPU is shown. If a GPU in MIG mode
  is named as a whole, its first instance is shown (NVIDIA MIG User Guide, "CUDA Device Enumeration").
- The first identifier decides between indexes, GPU UUIDs and MIG UUIDs: an identifier of another kind ends the list. If
  an identifier names a GPU for the second time, no GPU is shown at all (not documented by NVIDIA; PyTorch's
  torch/cuda/__init__.py, `_parse_visible_devices`, follows the driver in this).

Indexes are in PCI order, as NVML's are. CUDA counts so only with CUDA_DEVICE_ORDER=PCI_BUS_ID, which gputui sets for
the trainers that it starts; by CUDA's default, FASTEST_FIRST, GPU 0 is the fastest.

A job that names a GPU outside of its allocation uses somebody else's GPU, unless the launcher restricts access with
control groups. With control groups NVML shows only the job's own GPUs, numbered from 0.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

from ..finding import Finding, error
from ..gpu import VISIBLE, Gpu
from ..interpreter import installed
from ..options import Options
from ..options.gpu_choice import GpuChoice
from ..plan import SEVERAL_REPLICAS
from ..runs.run_cluster import Cluster
from ..telemetry import resource_limits
from ..units import size
from . import cluster as clusters
from . import slurm
from .slurm import Left

_NONE = ("", "-1", "NoDevFiles")  # the last is Slurm's
_INDEX = re.compile(r"\+?[0-9]+")
_OLDER_INSTANCE = "MIG-GPU-"


# ---- the allocation of a launcher ----------------------------------------------------------------

# Slurm sets them in addition to CUDA_VISIBLE_DEVICES (its manual, "Generic Resource (GRES) Scheduling"): the first
# counts as that one does, the others by the number on the machine.
_ORDINAL, _SLURM = "GPU_DEVICE_ORDINAL", ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")


@dataclass(frozen=True)
class Allocation:
    """The names of the GPUs that are allocated to this job, read from `variable`; empty for a job without GPUs."""

    variable: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        names = ",".join(self.names)
        return f"this job is allocated {f'GPU {names}' if names else 'no GPU'} ({self.variable})"

    def allows(self, name: str | int, gpus: Sequence[Gpu]) -> bool:
        """False if it is not allocated. A name that does not fit exactly one of the machine's `gpus` is not judged;
        without GPUs the names are compared, if they are of one kind (number or UUID).
        """
        if str(name) in self.names or not self.names:
            return bool(self.names)
        gpu = find(str(name), gpus)
        if gpu is None:
            return bool(gpus) or not all(given.isdigit() == str(name).isdigit() for given in self.names)
        allocated = [(given, whole) for given in self.names if (whole := find(given, gpus))]
        # A GPU that is allocated as a whole stands for all its MIG instances.
        return any(
            whole.index == gpu.index and (whole.instance == gpu.instance or not given.startswith("MIG-"))
            for given, whole in allocated
        )


def allocation_from(environment: Mapping[str, str], gpus: int) -> Allocation | None:
    """Of a process on a machine with `gpus` GPUs, None without limits; the user may have set the variable."""
    for variable in (VISIBLE, _ORDINAL):
        if (value := environment.get(variable)) is not None:
            return Allocation(variable, () if hides_all(value) else tuple(name.strip() for name in value.split(",")))
    for variable in _SLURM:
        names = list(islice(slurm.numbers(environment.get(variable, "")), gpus))
        # Else NVML shows the job's own GPUs alone.
        if all(names) and len(names) < gpus and max(map(int, names)) < gpus:
            return Allocation(variable, tuple(str(int(name)) for name in names))
    return None


@dataclass(frozen=True)
class Machine:
    """The GPUs, processors and memory that this process may use, and its job. Texts are empty if there is nothing to
    report.
    """

    gpus: tuple[Gpu, ...]
    no_gpu_reason: str  # why there are none
    cpus: int
    memory_bytes: int
    job: tuple[Finding, ...] = ()  # about several tasks of its job
    missing: str = ""  # why NVML cannot be read although CUDA may work: then nothing is known of the GPUs
    cuda: tuple[int, int] | None = None  # the newest version that the driver supports
    visible_devices: str | None = None  # CUDA_VISIBLE_DEVICES
    allocation: Allocation | None = None  # the GPUs of this job, None if all may be used
    driver: str = ""  # its version
    job_id: str = ""  # of Slurm
    job_ends: Left | None = None  # according to the environment
    cluster: Cluster | None = None  # that the environment names
    cluster_fault: Finding | None = None  # why it cannot be used
    fault: Finding | None = None  # of the driver, on a machine that has GPUs

    @classmethod
    def here(cls, gpus: tuple[Gpu, ...] = (), no_gpu_reason: str = "", **of_driver: Any) -> Machine:
        """The machine of what NVML reports (the arguments) and of this process' environment and limits."""
        cluster, cluster_fault = clusters.read_or_reason(os.environ)
        return cls(
            gpus, no_gpu_reason, resource_limits.usable_cpus(), resource_limits.memory().total, slurm.read(os.environ),
            visible_devices=os.environ.get(VISIBLE), allocation=allocation_from(os.environ, len(gpus)),
            job_id=slurm.job_of(os.environ), job_ends=slurm.left_by_variables(os.environ), cluster=cluster,
            cluster_fault=cluster_fault, **of_driver,
        )  # fmt: skip

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


def answers_from_json(answers: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of Machine.here, as another process has written them."""
    gpus, cuda, fault = tuple(map(Gpu.from_json, answers.get("gpus", ()))), answers.get("cuda"), answers.get("fault")
    fault = Finding(**fault | {"options": ()}) if fault else None
    return {**answers, "gpus": gpus, "cuda": cuda and tuple(cuda), "fault": fault}


# ---- which GPUs CUDA shows ------------------------------------------------------------------------


def visible(value: str | None, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs, or the MIG instance, that CUDA shows with this value (None: not set), in its order."""
    if value is None:
        shown = [whole for gpu in gpus if (whole := _whole(gpu))]
    else:
        shown = _named([name.strip() for name in value.split(",")], gpus)
    instances = [gpu for gpu in shown if gpu.instance is not None]
    return instances[:1] or shown


def named(value: str | None, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The GPUs and MIG instances that CUDA could show: all, or those that `value` names, of a GPU all instances."""
    if value is None:
        return [part for gpu in gpus for part in gpu.parts]
    names = [name.strip() for name in value.split(",")]
    parts = {gpu.index: gpu.parts for gpu in gpus}
    pairs = zip(names, _named(names, gpus), strict=False)
    return [part for name, shown in pairs for part in ([shown] if name.startswith("MIG-") else parts[shown.index])]


def hides_all(value: str | None) -> bool:
    """It hides all GPUs on purpose: its first name is empty, -1 or NoDevFiles."""
    return value is not None and value.split(",")[0].strip() in _NONE


def is_index(name: str) -> bool:
    return _INDEX.fullmatch(name) is not None


def stops_at(value: str, gpus: Sequence[Gpu]) -> str:
    """The first identifier that CUDA refuses on a machine with these GPUs, with all after it; empty if it refuses none.
    One that ends the list on purpose, such as -1, is not refused.
    """
    names = [name.strip() for name in value.split(",")]
    for place, name in enumerate(names):
        if name in _NONE:
            return ""
        if len(_named(names[: place + 1], gpus)) <= place:
            return name
    return ""


def _named(names: Sequence[str], gpus: Sequence[Gpu]) -> list[Gpu]:
    shown: dict[str, Gpu] = {}
    for name in names:
        gpu = find(name, gpus) if _kind(name) == _kind(names[0]) else None
        if gpu is None:
            break
        repeated = name if name.startswith(_OLDER_INSTANCE) else gpu.number  # an older name may mean any instance
        if repeated in shown:
            return []
        shown[repeated] = gpu
    return list(shown.values())


def _kind(name: str) -> str:
    return name[:4] if name.startswith(("GPU-", "MIG-")) else "index"


def find(name: str, gpus: Iterable[Gpu]) -> Gpu | None:
    """The only GPU or MIG instance with this index, or with a UUID that begins so; None if there is none or several. A
    GPU in MIG mode that is named as a whole gives its first instance.
    """
    if is_index(name):
        matching = [_whole(gpu) for gpu in gpus if gpu.index == int(name)]
    elif name.startswith(_OLDER_INSTANCE):
        uuid = name.removeprefix("MIG-").partition("/")[0]
        matching = [_whole(gpu) for gpu in gpus if gpu.instances and gpu.uuid == uuid]
    elif name.startswith("GPU-"):
        matching = [_whole(gpu) for gpu in gpus if gpu.uuid and gpu.uuid.startswith(name)]
    elif name.startswith("MIG-"):
        parts = (part for gpu in gpus if gpu.instances for part in gpu.parts)
        matching = [part for part in parts if part.uuid and part.uuid.startswith(name)]
    else:
        return None
    return matching[0] if len(matching) == 1 else None


def _whole(gpu: Gpu) -> Gpu | None:
    # A GPU that is named as a whole: in MIG mode its first instance, None without an instance.
    return next(iter(gpu.parts), None)


# ---- which train -------------------------------------------------------------------------------

# TensorFlow leaves out GPUs with fewer multiprocessors than this, unless the best one has fewer itself
# (gpu_device.cc, GetMinGPUMultiprocessorCount).
_LEAST_MULTIPROCESSORS = 8
_LEAST_MULTIPROCESSORS_VARIABLE = "TF_MIN_GPU_MULTIPROCESSOR_COUNT"


def least_multiprocessors(of_all: Iterable[int | None]) -> int:
    """The least that TensorFlow uses: 8, or fewer if no GPU has 8, unless TF_MIN_GPU_MULTIPROCESSOR_COUNT is set."""
    given = os.environ.get(_LEAST_MULTIPROCESSORS_VARIABLE, "")
    if given.isascii() and given.isdigit():
        return int(given)
    counts = [count for count in of_all if count is not None]
    return min(_LEAST_MULTIPROCESSORS, max(counts, default=0))


def used_by_tensorflow(gpus: Sequence[Gpu]) -> list[Gpu]:
    """Those of the GPUs that CUDA shows that TensorFlow uses: it ignores chips that are older than all for which it was
    built, and chips with few multiprocessors if there is a larger one (gpu_device.cc, GetValidDeviceIds).
    """
    least = least_multiprocessors(gpu.multiprocessors for gpu in gpus)
    oldest = min(installed.capabilities(), default=(0, 0))
    return [
        gpu
        for gpu in gpus
        if (gpu.multiprocessors is None or gpu.multiprocessors >= least)
        and (gpu.compute_capability is None or tuple(gpu.compute_capability) >= oldest)
    ]


def visible_gpus(options: Options, machine: Machine) -> list[Gpu]:
    """The GPUs that TensorFlow uses, in its order; of a choice such as `free:2` the first candidates."""
    visible = options.device.visible
    if visible == "none":
        return []
    if choice := options.device.choice:
        return candidates(choice, machine)[: choice.count]
    shown = machine.shown if visible == "all" else machine.shown_by(",".join(map(str, visible)))
    return used_by_tensorflow(shown)


def candidates(choice: GpuChoice, machine: Machine) -> list[Gpu]:
    """The GPUs and MIG instances to choose from: those that this process may use, of the chosen kind, working, and
    allocated to this job. CUDA shows one instance to a process, so that a choice of several GPUs has none.
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
    """The visible GPUs on which a replica of the model trains, each once: one for `single` and `one_device`."""
    gpus = visible_gpus(options, machine)
    return [gpus[position] for position in dict.fromkeys(positions(options, len(gpus))) if position < len(gpus)]


def positions(options: Options, gpus: int) -> list[int]:
    """For each replica the position (from 0) of its GPU among the visible GPUs, also if there is no such GPU."""
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
    """The settings of the group `device` with which each of `count` trainings shares one device: threads and, on a GPU,
    memory, unless the options set them. Raises TooSmall if the GPU has too little memory.
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
