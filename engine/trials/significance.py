"""The rule by which a change is called faster: gains of pairs of trials, their spread, and what may be chance.

A pair is one trial of each side, one directly after the other, so that a machine that gets slower or warmer over the
minutes hits both alike. A gain below 2 % is not worth an option, however certain it is.

Noise multiplies a speed, so gains are compared as natural logarithms of the ratio of the two speeds. The spread is the
sample standard deviation of the pairs' logarithms; below 10 % these are the gains themselves, to within half of a
percent.

The median of n pairs of two equal trainings is called a gain in at most 1 of 100 cases, whatever n is. It must exceed
t * sqrt(pi / (2 n + pi)) spreads; t is the 99 % quantile of Student's t distribution with n - 1 degrees of freedom. A
mean would need t / sqrt(n). A median varies more: pi / 2 times the variance of the mean if n is large, and nearly that
of the mean if n is 3; pi n / (2 n + pi) times covers every n (tests/proof/test_rule.py draws the cases). For even n, of
which the middle value nearer to 0 is taken, about half of the risk is left. Three pairs need 4.1 spreads, five 1.8 and
ten 1.0.

Two pairs need 21 spreads, and their spread counts as at least 4 %, as two values often agree by chance: only more than
2.3 times the speed is proved. A search that looks after two pairs, after three, and after as many more as the spread
asks for claims a gain that is not there in at most 2.5 of 100 cases.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from .. import units
from . import LEAST_REPEATS

LEAST_GAIN = 0.02  # a smaller gain is not worth an option, however certain it is
RISK = 0.01  # of calling the median of pairs of two equal sides a gain
NORMAL = statistics.NormalDist().inv_cdf(1 - RISK)
# Quantiles of Student's t for 1 to 4 degrees of freedom and RISK (NIST/SEMATECH e-Handbook, 1.3.6.7.2).
QUANTILES = (31.821, 6.965, 4.541, 3.747)
WORSE = 0.05  # a loss that is higher by this share counts as worse
FEW = 2  # pairs are enough if they agree by far
LEAST_SPREAD = 0.04  # the smallest that two pairs are taken to have (shared two-core machine)
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
    """Return the number of spreads that log(1 + gain) must exceed to count as more than chance, if `count` pairs (at
    least 2) were measured.

    A spread is the standard deviation of log(1 + gain) of the pairs.
    """
    return _quantile(count - 1) * math.sqrt(math.pi / (2 * count + math.pi))


def _quantile(degrees: int) -> float:
    """Return Student's t with `degrees` degrees of freedom that is exceeded with the probability RISK.

    From 5 on by the expansion 26.7.5 of Abramowitz and Stegun, Handbook of Mathematical Functions, to within 0.002.
    """
    if degrees <= len(QUANTILES):
        return QUANTILES[degrees - 1]
    z = NORMAL
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return sum(term / math.pow(degrees, power) for power, term in enumerate(terms))


def detectable_gain(spread: float, count: int) -> float:
    """Return the smallest gain that `count` pairs with this spread can distinguish from chance, as a share (0.05: 5 %
    faster).

    `spread` is the standard deviation of log(1 + gain) of the pairs.
    """
    return math.expm1(_detectable_logarithm(spread, count))


def _detectable_logarithm(spread: float, count: int) -> float:
    return spreads(count) * (max(spread, LEAST_SPREAD) if count == FEW else spread)


def around(median: float, spread: float | None, count: int | None = None) -> tuple[float, float]:
    """Return the lowest and the highest gain that the measurement of the gain `median` leaves possible, as shares.

    `spread` is the standard deviation of log(1 + gain) of `count` pairs, or the standard error of the gain if `count`
    is None. The gain may be chance if zero is between the two. Without a spread, both are the gain itself.
    """
    error = spread or 0.0
    if spread is not None and count is not None:
        error = _detectable_logarithm(spread, max(FEW, count))
    low, high = ((1 + median) * math.exp(sign * min(error, MOST_SPREAD)) - 1 for sign in (-1, 1))
    return low, high


def pairs_needed(median: float, spread: float) -> int:
    """Return the number of pairs that distinguish the gain `median` (0.05: 5 % faster) from chance, at least
    LEAST_REPEATS.

    `spread` is the standard deviation of log(1 + gain) of the pairs. For a gain between -LEAST_GAIN and LEAST_GAIN,
    LEAST_GAIN is used.
    """
    logarithm = max(abs(math.log1p(median)), math.log1p(LEAST_GAIN))
    # The normal quantile is below each of Student's, so that this is no more than the count that is looked for.
    count = max(LEAST_REPEATS, math.floor(math.pi / 2 * ((NORMAL * spread / logarithm) ** 2 - 1)))
    while spreads(count) * spread >= logarithm:
        count += 1
    return count


def agree_by_far(values: Sequence[float]) -> bool:
    """Return True if there are exactly two gains, `values`, that agree so well that no third pair is needed.

    They do if log(1 + gain) of their median exceeds what two pairs can distinguish from chance.
    """
    median, spread = gain_and_spread(values)
    if len(values) != FEW or median is None or spread is None:
        return False
    return abs(math.log1p(median)) > _detectable_logarithm(spread, FEW)


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
