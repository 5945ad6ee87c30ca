"""What a change gains by the waits of its trials, which are free of how fast the machine happens to be just then.

A step on a CPU is waiting for input, Python, and the work itself, one after the other. Options of the input and the
number of steps in one execution leave most of the work as it is: they gain the time that is no longer waited. Speeds of
two trials also differ by what else the machine did meanwhile (on virtual machines by a quarter, for tens of seconds),
shares of the time within one trial do not. On a GPU the host's waits may be hidden behind the device's work, so that
nothing follows from them there.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ...trials.trial import Trial
from .space import BATCH, TOGETHER

# Of the logarithm of a gain that follows from waits. A resnet50 on two cores gained 5.5 % with 4 steps in an execution,
# where its waits said 6.0 %, and 5.7 to 11.5 % with a faster input, where they said 11 %. The input's threads take a
# part of the cores: where they take all, a training that no longer waits gains nothing.
LEAST_ERROR, SHARE_ERROR = 0.04, 0.5


def leaves_the_work(tried: Mapping[str, Any]) -> bool:
    """Whether a change of these options changes only how long is waited."""
    return all(key == TOGETHER or (key.startswith("input.") and key != BATCH) for key in tried)


def gain(tried: Mapping[str, Any], trials: Sequence[Trial], before: Sequence[Trial]) -> float | None:
    """The relative gain in speed that follows from the shares of waiting in both; None where one has no reading.

    Of the waits only those count that these options change: the others differ by chance.
    """
    figures = ["python_share"] if TOGETHER in tried else []
    figures += ["input_wait"] if any(key != TOGETHER for key in tried) else []
    rest, rest_before = _rest(trials, figures), _rest(before, figures)
    return rest / rest_before - 1 if rest and rest_before else None


def _rest(trials: Sequence[Trial], figures: Sequence[str]) -> float | None:
    """The mean share of the time that is left beside these; None without a reading."""
    waited = [[getattr(trial, name) for name in figures] for trial in trials]
    shares = [1 - sum(shares) for shares in waited if None not in shares]
    return statistics.fmean(shares) if shares else None


def error_of(by_waits: float) -> float:
    """The error of a gain by waits; none is known of what promises nothing."""
    return max(LEAST_ERROR, SHARE_ERROR * abs(math.log1p(by_waits))) if by_waits > 0 else 0.0


def weighed(measured: float, error: float, by_waits: float) -> tuple[float, float]:
    """A gain of the speeds with its standard error and one by waits, each weighed by its error; both relative."""
    weight, other = 1 / error**2, 1 / error_of(by_waits) ** 2
    logarithm = (weight * math.log1p(measured) + other * math.log1p(by_waits)) / (weight + other)
    return math.expm1(logarithm), math.sqrt(1 / (weight + other))
