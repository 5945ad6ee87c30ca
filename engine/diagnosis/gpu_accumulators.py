"""Sums up the readings of GPUs in bounded memory. In MIG mode, memory and activity are those of the instance that
trains. Shares are 0 to 1, an unknown figure is None.
"""

from __future__ import annotations

import re
import statistics
from collections import deque
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ..files.values import mapping, number, whole
from ..job.visible_devices import Device, visible
from ..runs.events import Allocator, Started
from ..telemetry.gpu_totals import GpuTotals
from . import clocks, stragglers
from .accumulators import READINGS, Growth, Reading, mean, numbers
from .measurements import IDLE_BUSY, IDLE_MEMORY_SHARE, SCREEN_BYTES
from .stragglers import SLOWING, neighbours

_ACTIVITY = ("sm_active", "tensor_active", "dram_active")


class Gpus:
    """The readings of all GPUs of the machine. `variable_given` is CUDA_VISIBLE_DEVICES (None: all GPUs) of the process
    that could start the training again, `trains_with` the trainer's value, which selects a MIG instance.
    """

    def __init__(self, given: str | None) -> None:
        self.variable_given = given
        self.trains_with = given
        self._shown: set[int] = set()
        self._all: set[int] = set()
        self._mine: dict[str, deque[Reading]] = {}
        self._others: dict[str, deque[Reading]] = {}
        self._totals = GpuTotals()

    def pause(self) -> None:
        self._totals.pause()

    def take(self, t: float, gpus: Sequence[Reading], mine: Collection[str]) -> None:
        """Add a reading of all GPUs; `mine` names the training ones by UUID, PCI bus id or index."""
        gpus = [gpu for gpu in gpus if isinstance(gpu, Mapping)]
        devices = [device for gpu in gpus if (device := _device(gpu))]
        self._shown = {shown.index for shown in visible(self.variable_given, devices)}
        self._all = {device.index for device in devices}
        instances = {shown.index: shown.instance for shown in visible(self.trains_with, devices)}
        for gpu in gpus:
            if (name := _name(gpu)) is None:
                continue
            trains = name in mine or gpu.get("pci_bus_id") in mine or _instance_of(gpu, mine) is not None
            series = self._mine if trains else self._others
            if gpu.get("missing"):  # the GPU does not answer, so no training can use it
                self._others.pop(name, None)
                continue
            series.setdefault(name, deque(maxlen=READINGS)).append(
                _as_it_trains(gpu, mine, instances) if trains else gpu
            )
            if trains:
                self._totals.take(t, gpu)

    # ---- other GPUs -----------------------------------------------------------------------------

    def idle(self) -> int:
        """Return the number of GPUs that could train in addition: visible, unused, of the same model."""
        return len(self._idle())

    def usable(self) -> tuple[int, ...] | None:
        """Return the indexes of the GPUs that train or could in addition. None if these are all of the machine."""
        mine = {index for readings in self._mine.values() if isinstance(index := readings[-1].get("index"), int)}
        usable = mine | self._idle()
        return None if usable == self._all else tuple(sorted(usable))

    def given(self) -> tuple[int, ...] | None:
        """Return the indexes of the GPUs that are allocated to this training. None if it may use all."""
        return None if self.variable_given is None else tuple(sorted(self._shown))

    def _idle(self) -> set[int]:
        # another model, such as the GPU of a screen, would slow down the training ones
        models = {readings[-1].get("name") for readings in self._mine.values()} - {None}
        idle = [readings[-1] for readings in self._others.values() if _stands_idle(readings)]
        alike = [gpu for gpu in idle if not models or gpu.get("name") in {None, *models}]
        return {index for gpu in alike if (index := gpu.get("index")) in self._shown}

    # ---- memory ---------------------------------------------------------------------------------

    def total_bytes(self, uuid: str | None) -> float | None:
        """Return the bytes of the training GPU with this UUID, or else of the smallest. None if unknown."""
        named = self._mine.get(uuid or "")
        readings = [named] if named else list(self._mine.values())
        totals = [number(series[-1].get("memory_total_bytes")) for series in readings]
        return min((total for total in totals if total), default=None)

    def taken_by_others(self, uuid: str | None) -> float:
        """Return the bytes that other programs use on this training GPU (else the most on any), as far as known."""
        named = self._mine.get(uuid or "")
        readings = [named] if named else list(self._mine.values())
        return max((_of_others(series[-1]) for series in readings), default=0.0)

    # ---- figures --------------------------------------------------------------------------------

    def figures(self) -> dict[str, Any]:
        """Return the figures of the training GPUs over all readings, and of idle ones, as fields of Measurements."""
        readings = [gpu for series in self._mine.values() for gpu in series]
        busy = numbers(readings, "busy")
        slowed = [[reason for reason in gpu.get("throttle") or () if reason in SLOWING] for gpu in readings]
        hot = self._totals.mean("slowed_by_heat_seconds") or 0.0
        throttled = max(hot, sum(map(bool, slowed)) / len(slowed)) if slowed else None
        reasons = tuple(dict.fromkeys(reason for reasons in slowed for reason in reasons))
        parts = statistics.quantiles(busy, n=20, method="inclusive") if len(busy) >= 20 else []
        return {
            "idle_gpus": self.idle(),
            "usable_gpus": self.usable(),
            "given_gpus": self.given(),
            "busy_mean": statistics.fmean(busy) if busy else None,
            "busy_p5": parts[0] if parts else None,
            "busy_p95": parts[-1] if parts else None,
            **stragglers.gpu_figures(list(self._mine.values())),
            **{name: mean(readings, name) for name in _ACTIVITY},
            "nvlink": _nvlink(readings),
            **clocks.measured([series[-1] for series in self._mine.values()], self._totals),
            "throttled": throttled,
            "gpu_neighbours": tuple(dict.fromkeys(name for gpu in readings for name in neighbours(gpu))),
            "throttle": reasons or (("heat",) if hot else ()),
        }


# ---- one reading of one GPU -------------------------------------------------------------------


def _device(gpu: Reading) -> Device | None:
    index = gpu.get("index")
    if not isinstance(index, int):
        return None
    instances = tuple(str(instance.get("uuid") or "") for instance in _instances(gpu))
    return Device(index, gpu.get("uuid"), instances if isinstance(gpu.get("mig"), list) else None)


def _instances(gpu: Reading) -> list[Reading]:
    mig = gpu.get("mig")
    return [mapping(instance) for instance in mig] if isinstance(mig, list) else []


def _name(gpu: Reading) -> str | None:
    name = gpu.get("uuid") or gpu.get("index")
    return None if name is None else str(name)


def _instance_of(gpu: Reading, mine: Collection[str]) -> int | None:
    return next((place for place, instance in enumerate(_instances(gpu)) if instance.get("uuid") in mine), None)


def _as_it_trains(gpu: Reading, mine: Collection[str], shown: Mapping[int, int | None]) -> Reading:
    """`shown` has for each index the position of the visible instance, used if `mine` names none."""
    instances = _instances(gpu)
    named = _instance_of(gpu, mine)
    place = shown.get(gpu.get("index", -1)) if named is None else named
    if not instances or place is None or place >= len(instances):
        return gpu
    instance = instances[place]
    kept = ("memory_used_bytes", "memory_total_bytes", *_ACTIVITY)
    return {**gpu, **{key: instance.get(key) for key in kept}}


def _of_others(gpu: Reading) -> float:
    # 0 in MIG mode: the memory of an instance is not shared
    processes = [mapping(process) for process in gpu.get("processes") or ()] if not _instances(gpu) else []
    return sum(number(each.get("memory_used_bytes")) or 0.0 for each in processes if each.get("own") is False)


def _stands_idle(readings: Collection[Reading]) -> bool:
    # used without readings, or in MIG mode
    busy, used = mean(readings, "busy"), numbers(readings, "memory_used_bytes")
    if busy is None or not used or any(gpu.get("mig") is not None for gpu in readings):
        return False
    total = max(numbers(readings, "memory_total_bytes"), default=0.0)
    return busy < IDLE_BUSY and max(used) < max(IDLE_MEMORY_SHARE * total, SCREEN_BYTES)


def _nvlink(readings: Sequence[Reading]) -> bool | None:
    # bytes that passed: a GPU may have links although no NVLink bridge is installed
    links = [mapping(gpu.get("nvlink")) for gpu in readings if gpu.get("nvlink")]
    rates = [rate for link in links for key in ("rx_bytes_per_second", "tx_bytes_per_second")
             if (rate := number(link.get(key))) is not None]  # fmt: skip
    if rates:
        return any(rates)
    refused = any(mapping(gpu.get("reasons")).get("nvlink") == "unsupported" for gpu in readings)
    return False if refused and not links else None


MB = 1024**2


class DeviceMemory:
    """The figures of TensorFlow's allocator in a run with these `options`, on the GPUs in `gpus`."""

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
