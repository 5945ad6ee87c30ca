"""Which GPUs the launcher has given to this process, as its variables tell: CUDA_VISIBLE_DEVICES, and Slurm's own.

A job that names a GPU outside of its allocation computes on somebody else's wherever the launcher does not fence the
GPUs off with control groups. With such a fence NVML shows the job's own GPUs alone, counted from 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from .visible import VARIABLE, Device, Shown, find

# Slurm sets them beside CUDA_VISIBLE_DEVICES (its manual, "Generic Resource (GRES) Scheduling"): the first counts as
# that one does, the others by the number on the machine.
_ORDINAL, _SLURM = "GPU_DEVICE_ORDINAL", ("SLURM_STEP_GPUS", "SLURM_JOB_GPUS")
_NONE = ("", "-1", "NoDevFiles")


@dataclass(frozen=True)
class Allocation:
    """The GPUs that `variable` gives, by their names; none of them for a job without GPUs."""

    variable: str
    names: tuple[str, ...]

    def __str__(self) -> str:
        return f"this job has been given {','.join(self.names) or 'no GPU'} ({self.variable})"

    def allows(self, name: str | int, devices: Sequence[Device]) -> bool:
        """Whether a GPU or a MIG instance that is called so has been given.

        Where the machine's GPUs are not known, only names of the same kind can be compared.
        """
        if str(name) in self.names or not self.names:
            return bool(self.names)
        found = find(str(name), devices)
        if found is None:
            return bool(devices) or not self._compares(str(name))
        return any(_holds(given, found) for given in self._found(devices))

    def _found(self, devices: Sequence[Device]) -> list[Shown]:
        """An instance stands for itself; what is named as a whole is given with all its instances."""
        found = [(name, shown) for name in self.names if (shown := find(name, devices))]
        return [shown if name.startswith("MIG-") else Shown(shown.index) for name, shown in found]

    def _compares(self, name: str) -> bool:
        return all(given.isdigit() == name.isdigit() for given in self.names)


def read(environment: Mapping[str, str], gpus: int) -> Allocation | None:
    """The allocation of this process on a machine whose driver shows so many GPUs; None where nothing limits it."""
    for variable in (VARIABLE, _ORDINAL):
        if (value := environment.get(variable)) is not None:
            return Allocation(variable, _names(value))
    for variable in _SLURM:
        names = _numbers(environment.get(variable, ""))
        if names and gpus > len(names) and max(names) < gpus:  # else NVML shows the job's own GPUs alone
            return Allocation(variable, tuple(map(str, names)))
    return None


def _names(value: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in value.split(","))
    return () if names[0] in _NONE else names


def _numbers(value: str) -> list[int]:
    """Of a list such as 0,2-3; nothing where it is another."""
    parts = [re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip()) for part in value.split(",")]
    ranges = [range(int(part[1]), int(part[2] or part[1]) + 1) for part in parts if part]
    return [number for numbers in ranges for number in numbers] if all(parts) else []


def _holds(given: Shown, wanted: Shown) -> bool:
    return given.index == wanted.index and given.instance in (None, wanted.instance)
