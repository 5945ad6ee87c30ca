"""The CPUs of the NUMA node that each GPU is connected to, as NVML reports them."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence

import pynvml

from .background_call import BackgroundCall
from .machine import PATIENCE_SECONDS

_BITS = 64


def gpus(indexes: Sequence[int]) -> list[frozenset[int]]:
    """The CPUs beside each of these GPUs, by NVML's index; none where the driver does not tell them."""
    try:
        return BackgroundCall(lambda: _ask(indexes)).result(PATIENCE_SECONDS)
    except (pynvml.NVMLError, TimeoutError, OSError):
        return [frozenset()] * len(indexes)


def _ask(indexes: Sequence[int]) -> list[frozenset[int]]:
    words = -(-max(os.sysconf("SC_NPROCESSORS_CONF"), 1) // _BITS)
    pynvml.nvmlInit()
    try:
        masks = [pynvml.nvmlDeviceGetCpuAffinity(pynvml.nvmlDeviceGetHandleByIndex(gpu), words) for gpu in indexes]
    finally:
        pynvml.nvmlShutdown()
    return [_cpus(mask) for mask in masks]


def _cpus(mask: Iterable[int]) -> frozenset[int]:
    return frozenset(
        place * _BITS + bit for place, word in enumerate(mask) for bit in range(_BITS) if int(word) >> bit & 1
    )
