"""A line through what batches of several sizes have taken: bytes = base + bytes_per_sample * batch size.

Least squares, in which a point far from the line counts less (Huber 1964, Robust Estimation of a Location Parameter;
weights k / |residual| beyond k = 1.345 standard deviations, estimated by the median residual). TensorFlow's allocator
takes and keeps memory in steps, and a library may choose another algorithm for one size: such a point must not turn the
line.
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
    """`bytes_per_sample` is never below 0: a larger batch takes no less memory."""

    base: float
    bytes_per_sample: float

    def at(self, batch: int) -> float:
        return self.base + self.bytes_per_sample * batch


def through(points: Points) -> Line | None:
    """The line; None before two batch sizes have been measured."""
    if len({batch for batch, _ in points}) < 2:
        return None
    line = _least_squares(points, [1.0] * len(points))
    for _ in range(_ROUNDS):
        residuals = [abs(taken - line.at(batch)) for batch, taken in points]
        allowed = max(1.0, _HUBER * _OF_MEDIAN * statistics.median(residuals))
        line = _least_squares(points, [min(1.0, allowed / max(one, 1.0)) for one in residuals])
    return line


def _least_squares(points: Points, weights: Sequence[float]) -> Line:
    whole = sum(weights)
    batch = sum(weight * one for (one, _), weight in zip(points, weights, strict=True)) / whole
    taken = sum(weight * one for (_, one), weight in zip(points, weights, strict=True)) / whole
    spread = sum(weight * (one - batch) ** 2 for (one, _), weight in zip(points, weights, strict=True))
    both = sum(weight * (b - batch) * (t - taken) for (b, t), weight in zip(points, weights, strict=True))
    slope = max(0.0, both / spread)
    return Line(taken - slope * batch, slope)
