"""When a change is called faster: pure functions over the figures of repeats.

The rule is the design's own ("Measuring honestly"): at least three interleaved repeats; a change is kept only if its
median gain exceeds both 2 % and twice the spread of the repeats. A pair is one trial of each side, one directly after
the other, so that a machine that gets slower or warmer over the minutes hits both alike; the spread is the sample
standard deviation of the pairs' gains. With normal noise, three pairs of a change that does nothing pass for a gain
in 4 of 100 cases by the spread alone, five pairs in 1 of 100; the 2 % are what is not worth an option, however certain.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence

LEAST_GAIN = 0.02
SPREADS = 2.0
LEAST_REPEATS = 3


def order(repeat: int) -> str:
    """Sides of the pair `repeat` (from 1), the first measured first: a b, b a, a b ..."""
    return "ab" if repeat % 2 else "ba"


def gain(a: float, b: float) -> float:
    """Of one pair: how much more b is than a, as a share of a. A trial that ended well has a speed above 0."""
    return b / a - 1


def gain_and_spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Median gain, and the sample standard deviation; None where there are too few for it."""
    if not values:
        return None, None
    return statistics.median(values), statistics.stdev(values) if len(values) > 1 else None


def verdict(values: Sequence[float]) -> tuple[str, str]:
    """`faster`, `slower` or `no difference`, and why, in one line."""
    median, spread = gain_and_spread(values)
    if median is None or spread is None or len(values) < LEAST_REPEATS:
        return "no difference", f"{len(values)} pair(s) say nothing; {LEAST_REPEATS} are needed"
    told = f"{100 * median:+.1f} %"
    if abs(median) <= LEAST_GAIN:
        return "no difference", f"{told} is not more than {100 * LEAST_GAIN:.0f} %"
    if abs(median) <= SPREADS * spread:
        return "no difference", f"{told} is within twice the spread of the repeats ({100 * spread:.1f} %)"
    side = "faster" if median > 0 else "slower"
    return side, f"{told}, spread of the repeats {100 * spread:.1f} %"
