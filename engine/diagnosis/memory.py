"""The share of the GPU memory that TensorFlow has taken of what it can, and its growth. It leaves out at its start
other programs' memory and 0.5 to 1.8 GB for the driver (`MinSystemMemory` in TensorFlow's gpu_device.cc), and with
growth loses what later programs take.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from ..files.values import mapping, number, whole
from ..runs.events import Allocator, Started
from .accumulators import Growth
from .gpu_accumulators import Gpus

MB = 1024**2


class DeviceMemory:
    """Collects the figures of TensorFlow's memory allocator in one run.

    `options` are the run's options by `group.name`, and `gpus` the readings of the machine's GPUs.
    """

    def __init__(self, options: Mapping[str, Any], gpus: Gpus) -> None:
        self._options, self._gpus = options, gpus
        self._peak_bytes: dict[int, float] = {}  # by the number of TensorFlow's logical device
        self._first_step_only = False
        self._growth = Growth()

    def take(self, event: Allocator, started: Started | None, filled: bool) -> None:
        """Add an event of TensorFlow's allocator. Only those when all caches are full (`filled`) count
        for the growth.
        """
        if self._first_step_only:  # later peaks do not include that of the first step
            self._peak_bytes.clear()
        self._first_step_only = event.first_step
        shares = []
        for name, figures in event.devices.items():
            place = _place(name)
            if place is None:
                continue
            self._peak_bytes[place] = max(self._peak_bytes.get(place, 0.0), number(figures.get("peak_bytes")) or 0.0)
            whole_bytes, current = self._may_take(place, started), number(figures.get("current_bytes"))
            if whole_bytes and current is not None:
                shares.append(current / whole_bytes)
        if shares and filled:
            self._growth.add(max(shares))

    def restart(self) -> None:
        self._growth.restart()

    @property
    def growth(self) -> float | None:
        return self._growth.share

    def peak(self, started: Started | None) -> float | None:
        """Return the highest peak as a share (0 to 1) of what TensorFlow can use on its device now. None: unknown."""
        shares = [peak / left for place, peak in self._peak_bytes.items() if (left := self._left(place, started))]
        return max(shares, default=None)

    def _left(self, place: int, started: Started | None) -> float | None:
        # other programs may have taken memory since the start
        mine = self._may_take(place, started)
        if mine is None or not self._grows(started):
            return mine
        uuid = _device_at(place, started).get("uuid")
        total = self._gpus.total_bytes(uuid)
        return mine if total is None else max(1.0, min(mine, total - self._gpus.taken_by_others(uuid)))

    def _may_take(self, place: int, started: Started | None) -> float | None:
        device = _device_at(place, started)
        return limit_of(device, self._options, self._gpus.total_bytes(device.get("uuid")))

    def _grows(self, started: Started | None) -> bool:
        # otherwise TensorFlow takes nearly all memory at the start
        growth = started.actual.get("memory_growth") if started else None
        return growth is not False and _parts(self._options) == 1


def limit_of(device: Mapping[str, Any], options: Mapping[str, Any], total_bytes: float | None = None) -> float | None:
    """Return the bytes that TensorFlow may take on a logical device, None if unknown: device.memory_limit_mb, or an
    equal part of the GPU's available memory. `total_bytes` is the GPU's memory as the driver reports it.
    """
    limit = number(options.get("device.memory_limit_mb"))
    if limit is not None:
        return limit * MB
    available = number(device.get("memory_limit_bytes")) or total_bytes or number(device.get("memory_total_bytes"))
    return available / _parts(options) if available else None


def _parts(options: Mapping[str, Any]) -> int:
    return max(1, whole(options.get("device.logical_devices")) or 1)


def _place(name: str) -> int | None:
    match = re.search(r"GPU:(\d+)$", name)
    return int(match.group(1)) if match else None


def _device_at(place: int, started: Started | None) -> Mapping[str, Any]:
    # the logical devices of a GPU are numbered in a row, from the number in its `device`
    gpus = [mapping(device) for device in (started.gpu_devices if started else ())]
    first = [(number, gpu) for gpu in gpus if (number := _place(str(gpu.get("device")))) is not None]
    return max((pair for pair in first if pair[0] <= place), key=lambda pair: pair[0], default=(0, {}))[1]
