"""Gives candidates that may have been rejected by chance a second measurement, once everything has been tried.

A candidate has one trial where it seemed not to gain. With the usual spread of trials, one that gains a few percent is
rejected now and then, and what gained nothing with the settings of that moment may gain with those found since.
"""

from __future__ import annotations

from ...proof.search import Candidate
from ..measuring.judging import may_be_faster
from ..measuring.screening import Screening

MOST = 2  # of one search


def near_misses(screening: Screening) -> list[Candidate]:
    """Rejected candidates that were not clearly slower, the nearest first."""
    found: dict[str, Candidate] = {}
    for one in screening.search.candidates:
        if one.decision == "rejected" and may_be_faster(one, screening.noise) and not screening.has(one.tried):
            found[repr(sorted(one.tried.items()))] = one
    return sorted(found.values(), key=lambda one: -(one.gain or 0.0))[:MOST]


def measure(screening: Screening, missed: Candidate) -> Candidate:
    """Measure it on top of the present best settings; returns what is known of these settings then."""
    settings = screening.settings_with(missed.tried)
    for one in screening.search.candidates:
        if one.settings == settings and one.without_input == screening.without_input and one.good:
            screening.repeat(one)
            return one
    return screening.attempt(missed.stage, missed.tried, "once more, as chance may have rejected it")
