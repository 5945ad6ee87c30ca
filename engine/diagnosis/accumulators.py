"""Sums up the engine's readings during training in bounded memory: GPUs that train, other GPUs, the host, memory
growth.

The engine takes readings once a second, whatever the training does; measurements.py adds what the trainer itself
reports. A figure that is not known is None; shares are 0 to 1.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from ..files.values import mapping, number
from ..telemetry.visible import Device, visible

Reading = Mapping[str, Any]

READINGS = 600  # readings of each GPU and of the host: ten minutes at 1 Hz
GROWTH_READINGS = 10  # window of the moving average, as in SageMaker Debugger's memory rule
# Throttle reasons (telemetry/questions.py) that somebody could remove; the power cap is the chip's normal
# limit at full load.
SLOWING = ("hardware slowdown", "software thermal", "hardware thermal", "power brake")
IDLE_BUSY = 0.05  # a GPU below this use, and with less memory in use, is free
IDLE_MEMORY_SHARE, IDLE_MEMORY_BYTES = 0.05, 1024**3


def numbers(readings: Iterable[Reading], name: str) -> list[float]:
    """The values of this name in the readings that have one."""
    return [value for reading in readings if (value := number(reading.get(name))) is not None]


def mean(readings: Iterable[Reading], name: str) -> float | None:
    known = numbers(readings, name)
    return statistics.fmean(known) if known else None


class Gpus:
    """`visible` is the run's CUDA_VISIBLE_DEVICES at its start: None leaves all GPUs of the machine visible."""

    def __init__(self, visible: str | None) -> None:
        self._variable = visible
        self._shown: set[int] = set()
        self._mine: dict[str, deque[Reading]] = {}
        self._others: dict[str, deque[Reading]] = {}

    def take(self, gpus: Sequence[Reading], mine: Collection[str]) -> None:
        """Add a reading of all GPUs during training; `mine` names those that train, as the started event does."""
        gpus = [gpu for gpu in gpus if isinstance(gpu, Mapping)]
        devices = [device for gpu in gpus if (device := _device(gpu))]
        self._shown = {shown.index for shown in visible(self._variable, devices)}
        for gpu in gpus:
            if (name := _name(gpu)) is not None:
                of = self._mine if name in mine else self._others
                of.setdefault(name, deque(maxlen=READINGS)).append(gpu)

    def idle(self) -> int:
        """How many more GPUs this training could use: those that are visible to it and unused."""
        return sum(
            readings[-1].get("index") in self._shown and _stands_idle(readings) for readings in self._others.values()
        )

    def smallest_bytes(self) -> float | None:
        """The memory of the smallest GPU that trains."""
        totals = [number(readings[-1].get("memory_total_bytes")) for readings in self._mine.values()]
        return min((total for total in totals if total), default=None)

    def figures(self) -> dict[str, Any]:
        """The figures of the GPUs that train, over all their readings."""
        readings = [gpu for of_one in self._mine.values() for gpu in of_one]
        busy = numbers(readings, "busy")
        means = [value for of_one in self._mine.values() if (value := mean(of_one, "busy")) is not None]
        slowed = [[reason for reason in gpu.get("throttle") or () if reason in SLOWING] for gpu in readings]
        parts = statistics.quantiles(busy, n=20, method="inclusive") if len(busy) >= 20 else []
        return {
            "idle_gpus": self.idle(),
            "busy_mean": statistics.fmean(busy) if busy else None,
            "busy_p5": parts[0] if parts else None,
            "busy_p95": parts[-1] if parts else None,
            "busy_gap": max(means) - min(means) if len(means) > 1 else None,
            "sm_active": mean(readings, "sm_active"),
            "tensor_active": mean(readings, "tensor_active"),
            "dram_active": mean(readings, "dram_active"),
            "throttled": sum(map(bool, slowed)) / len(slowed) if slowed else None,
            "gpu_neighbours": tuple(dict.fromkeys(name for gpu in readings for name in _neighbours(gpu))),
            "throttle": tuple(dict.fromkeys(reason for reasons in slowed for reason in reasons)),
        }


def _device(gpu: Reading) -> Device | None:
    index, uuid, mig = gpu.get("index"), gpu.get("uuid"), gpu.get("mig")
    if not isinstance(index, int):
        return None
    instances = tuple(str(mapping(one).get("uuid") or "") for one in mig) if isinstance(mig, list) else None
    return Device(index, uuid, instances)


def _name(gpu: Reading) -> str | None:
    """The GPU's UUID, or its index where the driver reports no UUID."""
    name = gpu.get("uuid") or gpu.get("index")
    return None if name is None else str(name)


def _neighbours(gpu: Reading) -> list[str]:
    """Other programs on a GPU of the run, with more memory than a screen takes."""
    return [
        str(process.get("name") or f"process {process.get('pid')}")
        for process in gpu.get("processes") or ()
        if isinstance(process, Mapping) and process.get("own") is False
        and (number(process.get("memory_used_bytes")) or 0) >= IDLE_MEMORY_BYTES
    ]


def _stands_idle(readings: Collection[Reading]) -> bool:
    """Whether the GPU is unused in all its readings. Without readings it counts as used, and one in MIG mode is no
    whole GPU.
    """
    busy, used = mean(readings, "busy"), numbers(readings, "memory_used_bytes")
    if busy is None or not used or any(gpu.get("mig") is not None for gpu in readings):
        return False
    total = max(numbers(readings, "memory_total_bytes"), default=0.0)
    return busy < IDLE_BUSY and max(used) < max(IDLE_MEMORY_SHARE * total, IDLE_MEMORY_BYTES)


class Host:
    """The machine and the trainer's part in it."""

    def __init__(self) -> None:
        self._readings: deque[Reading] = deque(maxlen=READINGS)

    def take(self, event: Reading) -> None:
        self._readings.append(event)

    def figures(self) -> dict[str, Any]:
        last = self._readings[-1] if self._readings else {}
        used, total = number(last.get("memory_used_bytes")), number(last.get("memory_total_bytes"))
        return {
            "host_memory_free_bytes": int(total - used) if used is not None and total is not None else None,
            "cpu": mean(self._readings, "cpu"),
            "others_cpu": mean(self._readings, "others_cpu"),
            "trainer_cores": mean(self._readings, "trainer_cpu"),
            "io_wait": mean(self._readings, "io_wait"),
            "read_bytes_per_second": mean(self._readings, "trainer_read_bytes_per_second"),
        }


class Growth:
    """How much a memory's use has grown, as a share of that memory."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=READINGS)

    def add(self, share: float) -> None:
        self._shares.append(share)

    def begin_anew(self) -> None:
        self._shares.clear()

    @property
    def share(self) -> float | None:
        """The difference between the mean of the last readings and that of the first; None before there are enough."""
        values = list(self._shares)
        if len(values) < 3 * GROWTH_READINGS:
            return None
        return statistics.fmean(values[-GROWTH_READINGS:]) - statistics.fmean(values[:GROWTH_READINGS])


class Pauses:
    """Evaluations and checkpoints, during which no steps run.

    The first of a kind creates what all later ones use, and part of the first evaluation is compiling. Where there are
    others, the first counts as long as the median of them.
    """

    def __init__(self) -> None:
        self._first: dict[str, float] = {}
        self._others: dict[str, deque[float]] = {}
        self._counts: dict[str, int] = {}

    def add(self, kind: str, seconds: float) -> None:
        self._counts[kind] = self._counts.get(kind, 0) + 1
        if kind in self._first:
            self._others.setdefault(kind, deque(maxlen=READINGS)).append(seconds)
        else:
            self._first[kind] = seconds

    @property
    def seconds(self) -> float:
        """The time of all pauses, with the first of each kind replaced as said above."""
        return sum(count * self._typical(kind) for kind, count in self._counts.items())

    @property
    def most_often(self) -> int:
        """How often the most frequent kind of pause has occurred."""
        return max(self._counts.values(), default=0)

    def _typical(self, kind: str) -> float:
        return statistics.median(self._others[kind]) if kind in self._others else self._first[kind]
