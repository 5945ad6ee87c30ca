"""Gives candidates that may have been rejected by chance another measurement, once everything has been tried.

A candidate has one trial where it seemed not to gain. With the usual spread of trials, one that gains a few percent is
rejected now and then, and what gained nothing with the settings of that moment may gain with those found since. Several
such gains are each within the spread, but not their sum: so they are tried together first.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from ...proof.search import Candidate
from ..measuring.judging import may_be_faster, standard_error, takes_too_much
from ..measuring.screening import Screening

MOST = 2  # candidates of one search: the combination, and one alone where it has not gained
STAGE = "together"


def near_misses(screening: Screening) -> list[Candidate]:
    """Rejected candidates that were not clearly slower, the nearest first; of one tried twice, the latest counts."""
    latest = {repr(sorted(one.tried.items())): one for one in screening.search.candidates}
    return sorted((one for one in latest.values() if _is_near(one, screening)), key=lambda one: -(one.gain or 0.0))


def _is_near(one: Candidate, screening: Screening) -> bool:
    """What was rejected for its memory is not: another trial would find the same."""
    if one.decision != "rejected" or screening.has(one.tried):
        return False
    return may_be_faster(one, screening.noise) and not takes_too_much(one, screening.best, screening.may_take)


def may_gain_together(misses: Sequence[Candidate], noise: float) -> list[Candidate]:
    """Those whose changes make one combination, from the nearest on; none where there is only one.

    Each changes options of its own. Neither its measured gain nor the sum of all may be below 0 by more than one
    standard error. The bound is narrower than the two errors of a second look: each part that is slower makes the whole
    slower, and of those that gain nothing one in six is further below 0 by chance. A loss of 3.8 % is within it where
    trials spread by 3 %, as one of each side has an error of 4.2 %. The sum is bounded as well, as many small losses
    are no longer chance.
    """
    parts: list[Candidate] = []
    for one in misses:
        apart = not any(set(one.tried) & set(part.tried) for part in parts)
        if apart and _are_open([one], noise) and _are_open([*parts, one], noise):
            parts.append(one)
    return parts if len(parts) > 1 else []


def _are_open(parts: Sequence[Candidate], noise: float) -> bool:
    """Whether the trials so far leave it open that these gain in sum."""
    errors = (max(one.spread or 0.0, standard_error(noise, len(one.good), 1)) for one in parts)
    return sum(one.gain or 0.0 for one in parts) > -math.hypot(*errors)


def measure_together(screening: Screening, parts: Sequence[Candidate]) -> Candidate:
    """Measure what these have tried, in one trial on top of the best settings."""
    tried: dict[str, Any] = {key: value for one in parts for key, value in one.tried.items()}
    return screening.attempt(STAGE, tried, "together, as each was rejected within the spread of the trials")


def measure(screening: Screening, missed: Candidate) -> Candidate:
    """Measure it on top of the present best settings; returns what is known of these settings then."""
    settings = screening.settings_with(missed.tried)
    for one in screening.search.candidates:
        if one.settings == settings and one.without_input == screening.without_input and one.good:
            screening.repeat(one)
            return one
    return screening.attempt(missed.stage, missed.tried, "once more, as chance may have rejected it")
