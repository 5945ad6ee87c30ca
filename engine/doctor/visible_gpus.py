"""Counts the GPUs that CUDA should show to a process, and yields findings about the choice of GPUs.

GPUs that CUDA_VISIBLE_DEVICES or MIG hides, and unusable GPUs, do not count. The findings are about
CUDA_VISIBLE_DEVICES and about the GPUs that a launcher such as Slurm has allocated.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ..gpu import Gpu
from ..job import gpu_faults
from ..job.visible_devices import VARIABLE, allocation_from, hides_all, visible
from .gpu_findings import usable
from .host_findings import Finding
from .nvml_query import NvmlAnswers

HIDDEN = "no GPU"  # `about` of the finding that all GPUs are hidden on purpose


def expected(seen: NvmlAnswers, value: str | None) -> int:
    """Return the number of GPUs that CUDA should show.

    `value` is the content of CUDA_VISIBLE_DEVICES, or None if the variable is not set.
    """
    lost = {gpu["index"] for gpu in all_of(seen) if not usable(gpu)}
    return sum(gpu.index not in lost for gpu in visible(value, gpus(seen)))


def findings(seen: NvmlAnswers) -> Iterator[Finding]:
    """Yield findings about the choice of GPUs by CUDA_VISIBLE_DEVICES or by a launcher.

    A launcher such as Slurm may have allocated only some of the GPUs.
    """
    value = os.environ.get(VARIABLE)
    if seen.count and hides_all(value):
        yield Finding("note", HIDDEN, f"{VARIABLE}={value!r} hides all GPUs: the CPU trains", "unset it to use them")
        return
    faults = list(gpu_faults.of_visible_devices(value, gpus(seen)))
    yield from (Finding(fault.level, "GPU", fault.what, fault.remedy) for fault in faults)
    if all(fault.about == gpu_faults.ORDER for fault in faults):
        yield from _allocated(seen)


def _allocated(seen: NvmlAnswers) -> Iterator[Finding]:
    given = allocation_from(os.environ, seen.count)
    if given is None or not seen.count:
        return
    every = gpus(seen)
    if all(given.allows(gpu.index, every) for gpu in every):
        return
    if VARIABLE in os.environ:
        yield Finding("note", "GPU", str(given), "device.visible=all uses these; other GPUs are refused")
    else:
        remedy = f"export {VARIABLE}={','.join(given.names)}, or set device.visible to these"
        yield Finding("warning", "GPU", f"{given}, but all {seen.count} are visible to CUDA", remedy)


def all_of(seen: NvmlAnswers) -> list[dict[str, Any]]:
    """Return all GPUs that NVML counts, with their figures by name.

    A GPU that has not answered has only its `index`.
    """
    return [*seen.gpus, *({"index": index} for index in range(len(seen.gpus), seen.count))]


def gpus(seen: NvmlAnswers) -> list[Gpu]:
    """Return all GPUs that NVML counts, as the rules about CUDA_VISIBLE_DEVICES take them."""
    names = ("index", "uuid", "name", "compute_capability", "memory_total_bytes", "mig", "multiprocessors")
    return [Gpu(**{name: gpu[name] for name in names if name in gpu}) for gpu in all_of(seen)]
