"""The memory of a training as a line over the batch size of one replica: base + bytes_per_sample * batch size.

The line is fitted by least squares, in which a point far from it counts less (Huber 1964, Robust Estimation of a
Location Parameter; weights k / |residual| beyond k = 1.345 standard deviations, estimated by the median residual): a
jump must not turn the line. tune/memory_model.py says in which cases memory is no such line.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

Points = Sequence[tuple[int, int]]  # batch size, bytes
_HUBER = 1.345
_OF_MEDIAN = 1.4826  # times the median of the absolute residuals: the standard deviation of a normal distribution
_ROUNDS = 20


@dataclass(frozen=True)
class Line:
    """Memory in bytes as a line over the batch size: base + bytes_per_sample * batch size.

    `bytes_per_sample` is at least 0, as a larger batch does not take less memory.
    """

    base: float
    bytes_per_sample: float

    def at(self, batch: int) -> float:
        return self.base + self.bytes_per_sample * batch


def through(points: Points) -> Line | None:
    """Return the line through the points, pairs of a batch size and bytes. None if they have fewer than two different
    batch sizes.

    It is fitted by least squares, in which points far from the line count less.
    """
    if len({batch for batch, _ in points}) < 2:
        return None
    line = _least_squares(points, [1.0] * len(points))
    for _ in range(_ROUNDS):
        residuals = [abs(taken - line.at(batch)) for batch, taken in points]
        allowed = max(1.0, _HUBER * _OF_MEDIAN * statistics.median(residuals))
        line = _least_squares(points, [min(1.0, allowed / max(residual, 1.0)) for residual in residuals])
    return line


def _least_squares(points: Points, weights: Sequence[float]) -> Line:
    whole = sum(weights)
    batch = sum(weight * point for (point, _), weight in zip(points, weights, strict=True)) / whole
    taken = sum(weight * point for (_, point), weight in zip(points, weights, strict=True)) / whole
    spread = sum(weight * (point - batch) ** 2 for (point, _), weight in zip(points, weights, strict=True))
    both = sum(weight * (b - batch) * (t - taken) for (b, t), weight in zip(points, weights, strict=True))
    slope = max(0.0, both / spread)
    return Line(taken - slope * batch, slope)
