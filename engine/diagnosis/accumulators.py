"""Sums up the engine's readings during training (one a second) in bounded memory: the host, memory that grows, pauses.
Shares are 0 to 1, an unknown figure is None.
"""

from __future__ import annotations

import statistics
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any

from ..files.values import number

Reading = Mapping[str, Any]

READINGS = 600  # readings of each GPU and of the host: ten minutes at 1 Hz
GROWTH_READINGS = 10  # window of the moving average, as in SageMaker Debugger's memory rule


def numbers(readings: Iterable[Reading], name: str) -> list[float]:
    """Return the values of the field `name`, from the readings that contain a number in that field."""
    return [value for reading in readings if (value := number(reading.get(name))) is not None]


def mean(readings: Iterable[Reading], name: str) -> float | None:
    values = numbers(readings, name)
    return statistics.fmean(values) if values else None


class Host:
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
    """How much the use of a memory grows, by readings as shares (0 to 1) of its size."""

    def __init__(self) -> None:
        self._shares: deque[float] = deque(maxlen=READINGS)

    def add(self, share: float) -> None:
        self._shares.append(share)

    def restart(self) -> None:
        self._shares.clear()

    @property
    def share(self) -> float | None:
        """The mean of the last minus that of the first GROWTH_READINGS readings. None for fewer than three times as
        many.
        """
        values = list(self._shares)
        if len(values) < 3 * GROWTH_READINGS:
            return None
        return statistics.fmean(values[-GROWTH_READINGS:]) - statistics.fmean(values[:GROWTH_READINGS])


class Pauses:
    """Adds up the seconds of evaluations and checkpoints, each at the median of its kind without the first, which
    includes one-time work such as compiling; a single one at its own length.
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
        """The time of all pauses in seconds. Each pause counts with the median length of its kind."""
        return sum(count * self._typical(kind) for kind, count in self._counts.items())

    @property
    def most_often(self) -> int:
        """The number of pauses of the most frequent kind."""
        return max(self._counts.values(), default=0)

    def _typical(self, kind: str) -> float:
        return statistics.median(self._others[kind]) if kind in self._others else self._first[kind]
