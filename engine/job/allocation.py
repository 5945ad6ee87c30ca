"""The GPUs that the launcher has allocated to this process, from CUDA_VISIBLE_DEVICES and Slurm's own variables.

A job that names a GPU outside of its allocation uses somebody else's GPU, unless the launcher restricts access with
control groups. With control groups NVML shows only the job's own GPUs, numbered from 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .visible_devices import VARIABLE, Device, Shown, find, hides_all

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

    def allows(self, name: str | int, devices: Sequence[Device]) -> bool:
        """Return True if the GPU or MIG instance `name` is allocated. If no GPU is allocated, return False for every
        name.

        `devices` are the GPUs of the machine. A name that does not name exactly one of them is not judged: True is
        returned. If `devices` is empty, the names themselves are compared: False is returned only for a name that is
        not allocated but of the same kind (number or UUID) as all allocated names.
        """
        if str(name) in self.names or not self.names:
            return bool(self.names)
        device = find(str(name), devices)
        if device is None:
            return bool(devices) or not self._compares(str(name))
        return any(_holds(given, device) for given in self._allocation_of(devices))

    def _allocation_of(self, devices: Sequence[Device]) -> list[Shown]:
        """Return one item for each allocated name that is found in `devices`.

        A GPU that is allocated as a whole has no instance in its item. The item then stands for all its MIG instances.
        """
        pairs = [(name, shown) for name in self.names if (shown := find(name, devices))]
        return [shown if name.startswith("MIG-") else Shown(shown.index) for name, shown in pairs]

    def _compares(self, name: str) -> bool:
        return all(given.isdigit() == name.isdigit() for given in self.names)


def read(environment: Mapping[str, str], gpus: int) -> Allocation | None:
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


def _holds(given: Shown, device: Shown) -> bool:
    return given.index == device.index and given.instance in (None, device.instance)
