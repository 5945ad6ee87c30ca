"""Which GPUs CUDA shows to a process, by CUDA_VISIBLE_DEVICES and MIG, and which a launcher has allocated to it.

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

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from ..gpu import Gpu

VARIABLE = "CUDA_VISIBLE_DEVICES"
_NONE = ("", "-1", "NoDevFiles")  # the last is Slurm's
_INDEX = re.compile(r"\+?[0-9]+")
_OLDER_INSTANCE = "MIG-GPU-"


def visible(value: str | None, gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs, or the MIG instance, that CUDA shows, in CUDA's order.

    `value` is that of CUDA_VISIBLE_DEVICES, None if it is not set.
    """
    if value is None:
        shown = [whole for gpu in gpus if (whole := _whole(gpu))]
    else:
        shown = _named([name.strip() for name in value.split(",")], gpus)
    instances = [gpu for gpu in shown if gpu.instance is not None]
    return instances[:1] or shown


def named(value: str | None, gpus: Sequence[Gpu]) -> list[Gpu]:
    """Return the GPUs and MIG instances of which one process could be shown some: those that `value` names, None for
    all. A GPU in MIG mode that is named as a whole stands for all its instances.
    """
    if value is None:
        return [part for gpu in gpus for part in gpu.parts]
    names = [name.strip() for name in value.split(",")]
    parts = {gpu.index: gpu.parts for gpu in gpus}
    pairs = zip(names, _named(names, gpus), strict=False)
    return [part for name, shown in pairs for part in ([shown] if name.startswith("MIG-") else parts[shown.index])]


def hides_all(value: str | None) -> bool:
    """Return True if this value of CUDA_VISIBLE_DEVICES hides all GPUs on purpose: it is or begins with an empty name,
    -1 or NoDevFiles.
    """
    return value is not None and value.split(",")[0].strip() in _NONE


def is_index(name: str) -> bool:
    return _INDEX.fullmatch(name) is not None


def stops_at(value: str, gpus: Sequence[Gpu]) -> str:
    """Return the first identifier in `value` (CUDA_VISIBLE_DEVICES) that CUDA refuses on a machine with these GPUs;
    empty if it refuses none.

    CUDA then also ignores all later ones. An identifier such as -1, which ends the list on purpose, is not returned.
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
    """Return the only GPU or MIG instance with this name (index, or UUID or its begin); None if there is none or
    several.

    A GPU in MIG mode that is named as a whole gives its first instance.
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
        """Return True if the GPU or MIG instance `name` is allocated. If no GPU is allocated, return False for every
        name.

        `gpus` are those of the machine. A name that does not name exactly one of them is not judged: True is returned.
        If `gpus` is empty, the names themselves are compared: False is returned only for a name that is not allocated
        but of the same kind (number or UUID) as all allocated names.
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
    """Return the allocation of the process with these environment variables, on a machine with `gpus` GPUs; None if no
    variable limits the GPUs.

    CUDA_VISIBLE_DEVICES counts also if the user has set it.
    """
    for variable in (VARIABLE, _ORDINAL):
        if (value := environment.get(variable)) is not None:
            return Allocation(variable, _names(value))
    for variable in _SLURM:
        names = _numbers(environment.get(variable, ""))
        if names and gpus > len(names) and max(names) < gpus:  # else NVML shows the job's own GPUs alone
            return Allocation(variable, tuple(map(str, names)))
    return None


def _names(value: str) -> tuple[str, ...]:
    return () if hides_all(value) else tuple(name.strip() for name in value.split(","))


def _numbers(value: str) -> list[int]:
    """Return the numbers in a list such as `0,2-3`, here 0, 2, 3; empty if `value` has another form."""
    parts = [re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip()) for part in value.split(",")]
    ranges = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part]
    return [number for numbers in ranges for number in numbers] if all(parts) else []
