"""The rule by which a change is called faster. Gains of pairs are compared as log(b / a), with their sample standard
deviation as spread. The median must exceed t * sqrt(pi / (2 n + pi)) spreads, with the 99 % quantile of Student's t for
n - 1 degrees of freedom: a median of few varies as a mean does, one of many pi / 2 times as much. By this at most 1 of
100 equal trainings counts as faster (2.5 with looks after two and three pairs; tests/proof/test_rule.py).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from functools import cache

from .. import units
from ..text_table import Interval
from . import LEAST_REPEATS

LEAST_GAIN = 0.02  # a smaller gain is not worth an option, however certain it is
RISK = 0.01  # of calling the median of pairs of two equal sides a gain
NORMAL = statistics.NormalDist().inv_cdf(1 - RISK)
WORSE = 0.05  # a loss that is higher by this share counts as worse
FEW = 2  # pairs are enough if they agree by far
LEAST_SPREAD = 0.04  # the smallest that two pairs are taken to have (shared two-core machine)
MOST_SPREAD = 50.0  # of the logarithm of a gain, far beyond all that can be measured
MOST_MORE_PAIRS = 30  # if more are needed, a quieter machine or longer trials are proposed


def order(repeat: int) -> str:
    """Return the order in which the sides of the pair `repeat` (from 1) are measured: `ab`, then `ba` and so on."""
    return "ab" if repeat % 2 else "ba"


def gain(a: float, b: float) -> float:
    """Return the speed `b` divided by the speed `a` (above 0), minus 1: 0.05 means that b is 5 % faster."""
    return b / a - 1


def gain_and_spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the median of the gains, of two in the middle the one nearer to 0, and the standard deviation of log(1 +
    gain). None for no values, and a deviation of fewer than two.
    """
    if not values:
        return None, None
    middle = statistics.median_low(values), statistics.median_high(values)
    median = min(middle, key=lambda gain: abs(math.log1p(gain)))
    return median, statistics.stdev(map(math.log1p, values)) if len(values) > 1 else None


def spreads(count: int) -> float:
    """Return the number of spreads that log(1 + gain) must exceed, with `count` pairs (at least 2)."""
    return student(count - 1, 2 * RISK) * math.sqrt(math.pi / (2 * count + math.pi))


@cache
def student(degrees: int, risk: float) -> float:
    """Return the t that Student's t exceeds in absolute value with the probability `risk`, by bisection."""
    low, high = 0.0, 1.0
    while two_sided(high, degrees) > risk:
        low, high = high, 2 * high
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, degrees) > risk else (low, middle)
    return (low + high) / 2


def two_sided(t: float, degrees: int) -> float:
    """Return the probability that |Student's t| exceeds `t` (Abramowitz and Stegun, 26.7.3 and 26.7.4)."""
    angle = math.atan(t / math.sqrt(degrees))
    square = math.cos(angle) ** 2
    is_odd = degrees % 2
    term = total = 0.0 if degrees == 1 else math.cos(angle) if is_odd else 1.0
    for step in range(3 if is_odd else 2, degrees - 1, 2):
        term *= square * (step - 1) / step
        total += term
    inside = 2 / math.pi * (angle + math.sin(angle) * total) if is_odd else math.sin(angle) * total
    return 1 - inside


def detectable_gain(spread: float, count: int) -> float:
    """Return the smallest gain (0.05: 5 % faster) that `count` pairs with this spread can show."""
    return math.expm1(_detectable_logarithm(spread, count))


def _detectable_logarithm(spread: float, count: int) -> float:
    return spreads(count) * (max(spread, LEAST_SPREAD) if count == FEW else spread)


def interval(gain: float | None, spread: float | None, pairs: int | None = None) -> Interval | None:
    """Return the gains that a measured gain leaves possible (chance if 0 is among them); None without a finite one.
    `spread` is of so many `pairs`, or the standard error if that is None.
    """
    if gain is None or not math.isfinite(gain):
        return None
    error = spread or 0.0
    if spread is not None and pairs is not None:
        error = _detectable_logarithm(spread, max(FEW, pairs))
    low, high = ((1 + gain) * math.exp(sign * min(error, MOST_SPREAD)) - 1 for sign in (-1, 1))
    return Interval(gain, min(low, gain), max(high, gain)) if math.isfinite(high - low) else None


def pairs_needed(median: float, spread: float) -> int:
    """Return the number of pairs, at least LEAST_REPEATS, that distinguish a gain, at least LEAST_GAIN, from chance."""
    logarithm = max(abs(math.log1p(median)), math.log1p(LEAST_GAIN))
    # The normal quantile is below each of Student's, so that this is no more than the count that is looked for.
    count = max(LEAST_REPEATS, math.floor(math.pi / 2 * ((NORMAL * spread / logarithm) ** 2 - 1)))
    while spreads(count) * spread >= logarithm:
        count += 1
    return count


def agree_by_far(values: Sequence[float]) -> bool:
    """Return True if these are two gains that agree so well that no third pair is needed."""
    median, spread = gain_and_spread(values)
    if len(values) != FEW or median is None or spread is None:
        return False
    return abs(math.log1p(median)) > _detectable_logarithm(spread, FEW)


def verdict(values: Sequence[float]) -> tuple[str, str]:
    """Return `faster`, `slower`, `no difference` or `undecided` for the gains of pairs, and the reason in one line."""
    median, spread = gain_and_spread(values)
    if agree_by_far(values) and median is not None:
        return "faster" if median > 0 else "slower", f"{units.change(median)} in both pairs, which agree by far"
    if median is None or spread is None or len(values) < LEAST_REPEATS:
        pairs = "1 pair was" if len(values) == 1 else f"{len(values)} pairs were"
        return "undecided", f"only {pairs} measured, but {LEAST_REPEATS} are needed"
    change, least = units.change(median), detectable_gain(spread, len(values))
    if abs(math.log1p(median)) > math.log1p(max(LEAST_GAIN, least)):
        return "faster" if median > 0 else "slower", f"{change}, spread of the repeats {units.spread(spread)}"
    if abs(median) <= LEAST_GAIN and least <= LEAST_GAIN:
        return "no difference", f"{change} is not more than {units.share(LEAST_GAIN)} (spread {units.spread(spread)})"
    return "undecided", _may_be_chance(median, spread, len(values))


def _may_be_chance(median: float, spread: float, count: int) -> str:
    """The gain that so many pairs can detect, and how many more are needed."""
    text = (
        f"{units.change(median)} may be chance: {units.counted(count, 'pairs')} with a spread of "
        f"{units.spread(spread)} detect only more than {units.spread(detectable_gain(spread, count))}"
    )
    return f"{text}; {remedy(median, spread, count)}"


def remedy(median: float, spread: float, count: int) -> str:
    """Return how to tell a gain from chance that so many pairs leave undecided."""
    more = pairs_needed(median, spread) - count
    if more > MOST_MORE_PAIRS:
        return "use a quieter machine or longer trials (--seconds on the command line)"
    return f"about {units.counted(more, 'more pairs')} would be needed (--repeats {count + more})"
