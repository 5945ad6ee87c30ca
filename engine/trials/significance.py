"""The rule by which a change is called faster: gains of pairs of trials, their spread, and what may be chance.

At least three interleaved repeats are measured, and a change is kept only if its median gain exceeds both 2 % and twice
the spread of the repeats. A pair is one trial of each side, one directly after the other, so that a machine that gets
slower or warmer over the minutes hits both alike. A gain below 2 % is not worth an option, however certain it is.

Noise multiplies a speed, so gains are compared as natural logarithms of the ratio of the two speeds: the spread is the
sample standard deviation of the pairs' logarithms. Below 10 % these are the gains themselves, to within half of a
percent; ratios of 4, 7 and 10 are far apart as gains, and yet each of them is a certain gain.

More pairs make the median surer, not their spread smaller: its own error falls with the root of their number. Twice the
spread is therefore what three pairs need, and n pairs need sqrt(3 / n) of that: 2 * spread * sqrt(3 / n). With normal
noise, three pairs of a change that does nothing pass for a gain in 4 of 100 cases by the spread alone, five pairs in 2
and ten in less than 1 of 100. Solved for n, a gain with the logarithm g takes 3 * (2 * spread / g)² = 12 * (spread /
g)² pairs to be told from chance. That is the sample size of the NIST/SEMATECH e-Handbook (7.2.2.2),
N = (z1 + z2)² * (sigma / delta)², with z1 + z2 = 3.46: a risk of 5 % to see what is not there, and of 7 % to overlook
what is.

Two pairs are enough if they agree by far: the logarithm of the gain exceeds 20 times the spread, and the spread counts
as at least 4 %. For two pairs of a change that does nothing, the mean logarithm divided by spread / sqrt(2) follows
Student's t distribution with one degree of freedom, whose upper tail is arctan(1 / t) / pi. The 20 spreads are t = 28:
1.1 of 100 cases, and with the 4 %, which ask for 2.2 times the speed, far fewer. A search that looks after two pairs,
after three, and after as many more as the spread asks for claims a gain that is not there in fewer than 5 of 100 cases
(tests/proof/test_rule.py draws them).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from .. import units
from . import LEAST_REPEATS

LEAST_GAIN = 0.02  # a smaller gain is not worth an option, however certain it is
SPREADS = 2.0
WORSE = 0.05  # a loss that is higher by this share counts as worse
FEW = 2  # pairs are enough if they agree by far
FAR, LEAST_SPREAD = 20.0, 0.04  # spreads that agree by far; the smallest spread (shared two-core machine)
MOST_SPREAD = 50.0  # of the logarithm of a gain, far beyond all that can be measured
MOST_MORE_PAIRS = 30  # if more are needed, a quieter machine or longer trials are proposed


def order(repeat: int) -> str:
    """Return the order in which the two sides of the pair `repeat` (from 1) are measured: `ab` for the first, `ba` for
    the second ...
    """
    return "ab" if repeat % 2 else "ba"


def gain(a: float, b: float) -> float:
    """Return the gain of a pair as a share: the speed `b` divided by the speed `a`, minus 1. 0.05 means that b is 5 %
    faster.

    `a` is above 0.
    """
    return b / a - 1


def gain_and_spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the median of the gains, and the sample standard deviation of log(1 + gain).

    A gain is a share: 0.05 is 5 % faster. Of two values in the middle the median is the one nearer to 0, so that it is
    the gain of a pair. The median is None if there are no values. The deviation is None if there are fewer than two
    values.
    """
    if not values:
        return None, None
    middle = statistics.median_low(values), statistics.median_high(values)
    median = min(middle, key=lambda gain: abs(math.log1p(gain)))
    return median, statistics.stdev(map(math.log1p, values)) if len(values) > 1 else None


def spreads(count: int) -> float:
    """Return the number of spreads that log(1 + gain) must exceed to count as more than chance, if `count` pairs were
    measured.

    A spread is the standard deviation of log(1 + gain) of the pairs. Three pairs need 2 spreads, more pairs need fewer.
    """
    return SPREADS * math.sqrt(LEAST_REPEATS / count)


def detectable_gain(spread: float, count: int) -> float:
    """Return the smallest gain that `count` pairs with this spread can distinguish from chance, as a share (0.05: 5 %
    faster).

    `spread` is the standard deviation of log(1 + gain) of the pairs.
    """
    return math.expm1(spreads(count) * spread)


def around(median: float, spread: float | None, count: int | None = None) -> tuple[float, float]:
    """Return the lowest and the highest gain that the measurement of the gain `median` leaves possible, as shares.

    `spread` is the standard deviation of log(1 + gain) of `count` pairs, or the standard error of the gain if `count`
    is None. The gain of at least LEAST_REPEATS pairs may be chance if zero is between the two. Without a spread, both
    are the gain itself.
    """
    error = (spread or 0.0) * (1.0 if count is None else spreads(max(1, count)))
    low, high = ((1 + median) * math.exp(sign * min(error, MOST_SPREAD)) - 1 for sign in (-1, 1))
    return low, high


def pairs_needed(median: float, spread: float) -> int:
    """Return the number of pairs that distinguish the gain `median` (0.05: 5 % faster) from chance, at least
    LEAST_REPEATS.

    `spread` is the standard deviation of log(1 + gain) of the pairs. For a gain between -LEAST_GAIN and LEAST_GAIN,
    LEAST_GAIN is used.
    """
    logarithm = max(abs(math.log1p(median)), math.log1p(LEAST_GAIN))
    return max(LEAST_REPEATS, math.floor(LEAST_REPEATS * (SPREADS * spread / logarithm) ** 2) + 1)


def agree_by_far(values: Sequence[float]) -> bool:
    """Return True if there are exactly two gains, `values`, that agree so well that no third pair is needed.

    They do if log(1 + gain) of their median exceeds FAR times their spread, which counts as at least LEAST_SPREAD.
    """
    median, spread = gain_and_spread(values)
    if len(values) != FEW or median is None or spread is None:
        return False
    return abs(math.log1p(median)) > FAR * max(spread, LEAST_SPREAD)


def verdict(values: Sequence[float]) -> tuple[str, str]:
    """Return the verdict on the gains of pairs (`values`, 0.05: 5 % faster), and the reason for it in one line.

    The verdict is `faster`, `slower`, `no difference` or `undecided`.
    """
    median, spread = gain_and_spread(values)
    if agree_by_far(values) and median is not None:
        return "faster" if median > 0 else "slower", f"{units.change(median)} in both pairs, which agree by far"
    if median is None or spread is None or len(values) < LEAST_REPEATS:
        return "undecided", f"only {_pairs(len(values))} measured, but {LEAST_REPEATS} are needed"
    change, least = units.change(median), detectable_gain(spread, len(values))
    if abs(math.log1p(median)) > math.log1p(max(LEAST_GAIN, least)):
        return "faster" if median > 0 else "slower", f"{change}, spread of the repeats {units.spread(spread)}"
    if abs(median) <= LEAST_GAIN and least <= LEAST_GAIN:
        return "no difference", f"{change} is not more than {units.share(LEAST_GAIN)} (spread {units.spread(spread)})"
    return "undecided", _may_be_chance(median, spread, len(values))


def _may_be_chance(median: float, spread: float, count: int) -> str:
    """Return a text that says which gain `count` pairs with this spread can detect, and how many more pairs are needed.

    `median` is their median gain (0.05: 5 % faster), and `spread` the standard deviation of log(1 + gain) of the pairs.
    """
    text = (
        f"{units.change(median)} may be chance: {units.counted(count, 'pairs')} with a spread of "
        f"{units.spread(spread)} detect only more than {units.spread(detectable_gain(spread, count))}"
    )
    more = pairs_needed(median, spread) - count
    if more > MOST_MORE_PAIRS:
        return f"{text}; use a quieter machine or longer trials (--seconds on the command line)"
    further = units.counted(more, "more pairs")
    return f"{text}; about {further} would be needed (--repeats {count + more})"


def _pairs(count: int) -> str:
    return "1 pair was" if count == 1 else f"{count} pairs were"
