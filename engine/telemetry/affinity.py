"""The CPUs of the NUMA node that each GPU is connected to, as NVML reports them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

import pynvml

from . import limits
from .background_call import BackgroundCall
from .machine import PATIENCE_SECONDS

_BITS = 64


def nodes() -> int:
    """The number of the machine's NUMA nodes."""
    found = list((limits.ROOT / Path("sys/devices/system/node")).glob("node[0-9]*"))
    return max(1, len(found))


def beside(gpus: Sequence[int]) -> list[frozenset[int]]:
    """The CPUs beside each of these GPUs, by NVML's index; none where the driver does not tell them."""
    try:
        return BackgroundCall(lambda: _ask(gpus)).result(PATIENCE_SECONDS)
    except (pynvml.NVMLError, TimeoutError, OSError):
        return [frozenset()] * len(gpus)


def _ask(gpus: Sequence[int]) -> list[frozenset[int]]:
    words = -(-max(os.sysconf("SC_NPROCESSORS_CONF"), 1) // _BITS)
    pynvml.nvmlInit()
    try:
        masks = [pynvml.nvmlDeviceGetCpuAffinity(pynvml.nvmlDeviceGetHandleByIndex(gpu), words) for gpu in gpus]
    finally:
        pynvml.nvmlShutdown()
    return [_cpus(mask) for mask in masks]


def _cpus(mask: Iterable[int]) -> frozenset[int]:
    return frozenset(
        place * _BITS + bit for place, word in enumerate(mask) for bit in range(_BITS) if int(word) >> bit & 1
    )


def in_words(cpus: Iterable[int]) -> str:
    """`0-3,8`, as the kernel writes a list of CPUs."""
    ranges: list[list[int]] = []
    for cpu in sorted(cpus):
        if ranges and cpu == ranges[-1][1] + 1:
            ranges[-1][1] = cpu
        else:
            ranges.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ranges)
