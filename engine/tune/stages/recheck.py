"""Gives candidates that may have been rejected by chance further measurements, once everything has been tried. Small
gains are within the spread each but not in sum: such candidates are first tried together. If nothing was measured
twice, the best settings are measured once more first, as that shows the size of chance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from ...trials.search_record import Candidate
from ..candidates.judgement import may_be_faster, standard_error, takes_too_much
from ..candidates.screening import Screening
from ..candidates.search_space import BATCH

SHARE = 1 / 3  # of the time of all trials before the second look,
LEAST = 2  # or so many trials, if there were few
MOST_MEASURED = 3  # trials of one candidate
MOST_ENDED = 2  # trials of a candidate that was ended as slower each time
STAGE = "together"


class Recheck:
    """Measures candidates of `screening` again that may have been rejected by chance, one after another.

    `go_on_from` is called with the stage of each candidate that is kept now.
    """

    def __init__(self, screening: Screening, go_on_from: Callable[[str], None]) -> None:
        self._screening, self._go_on_from = screening, go_on_from
        self._combined: list[dict[str, Any]] = []

    def run(self) -> None:
        """Measure again for SHARE of the time of all trials so far, or that of LEAST trials. Raises Stopped and
        OutOfTime.
        """
        until = self._trial_seconds + max(SHARE * self._trial_seconds, LEAST * self._one_trial)
        if self._chance_is_unknown:
            self._screening.best_once_more()
        while self._may_start(until) and (misses := near_misses(self._screening)):
            parts = may_gain_together(misses, self._screening.noise)
            if parts and self._is_new(changes_of(parts)):
                self._try_together(parts)
            else:
                self._try(misses[0])

    @property
    def _chance_is_unknown(self) -> bool:
        candidates = self._screening.search.candidates
        rejected = any(candidate.decision == "rejected" for candidate in candidates)
        return rejected and not any(len(candidate.good) > 1 for candidate in candidates)

    def _may_start(self, until: float) -> bool:
        return self._trial_seconds + self._one_trial <= until

    @property
    def _one_trial(self) -> float:
        return sum(trial.seconds for trial in self._screening.best.trials[-1:])

    @property
    def _trial_seconds(self) -> float:
        # the same for a resumed search, which a clock would not give
        candidates = self._screening.search.candidates
        return sum({trial.run: trial.seconds for candidate in candidates for trial in candidate.trials}.values())

    def _is_new(self, tried: dict[str, Any]) -> bool:
        return tried not in self._combined and not any(_measured(self._screening, tried))

    def _try_together(self, parts: Sequence[Candidate]) -> None:
        tried = changes_of(parts)
        self._combined.append(tried)
        self._screening.search.stage = STAGE
        reason = "together, as each was rejected within the spread of the trials"
        if self._screening.attempt(STAGE, tried, reason).decision == "kept":
            for part in parts:
                self._go_on_from(part.stage)

    def _try(self, missed: Candidate) -> None:
        self._screening.search.stage = missed.stage
        if measure(self._screening, missed).decision == "kept":
            self._go_on_from(missed.stage)


def near_misses(screening: Screening) -> list[Candidate]:
    """Return rejected candidates that were not clearly slower: first of options that have gained nothing, the largest
    gain first. Of an option that has gained (but the batch size), only those not yet measured with the best settings.
    """
    candidates = screening.search.candidates
    latest = {repr(sorted(candidate.tried.items())): candidate for candidate in candidates}
    gained = {key for candidate in candidates if candidate.decision == "kept" for key in candidate.tried} - {BATCH}
    near = [candidate for candidate in latest.values() if _is_near(candidate, screening)]
    first = [candidate for candidate in near if not gained & set(candidate.tried)]
    later = [candidate for candidate in near if candidate not in first and known(screening, candidate.tried) is None]
    return [*sorted(first, key=_distance), *sorted(later, key=_distance)]


def _distance(candidate: Candidate) -> float:
    return -(candidate.gain or 0.0)


def _is_near(candidate: Candidate, screening: Screening) -> bool:
    """Not if another trial would show the same: it has failed, takes too much memory, or is a combination."""
    if candidate.stage == STAGE:
        return False
    measured = known(screening, candidate.tried) or candidate
    most = MOST_MEASURED if measured.good else MOST_ENDED
    if candidate.decision != "rejected" or measured.decision == "failed" or len(measured.trials) >= most:
        return False
    if screening.has(candidate.tried):
        return False
    return may_be_faster(candidate, screening.noise) and not takes_too_much(
        candidate, screening.best, screening.may_take
    )


def may_gain_together(misses: Sequence[Candidate], noise: float) -> list[Candidate]:
    """Return candidates of different options to try together, none if fewer than two. Neither a gain nor their sum is
    below 0 by more than one standard error: of parts that gain nothing one in six is, and slows the whole down.
    """
    parts: list[Candidate] = []
    for candidate in misses:
        apart = not any(set(candidate.tried) & set(part.tried) for part in parts)
        if apart and _are_open([candidate], noise) and _are_open([*parts, candidate], noise):
            parts.append(candidate)
    return parts if len(parts) > 1 else []


def _are_open(parts: Sequence[Candidate], noise: float) -> bool:
    errors = (
        max(candidate.spread or 0.0, standard_error(noise, max(1, len(candidate.good)), 1)) for candidate in parts
    )
    return sum(candidate.gain or 0.0 for candidate in parts) > -math.hypot(*errors)


def changes_of(parts: Sequence[Candidate]) -> dict[str, Any]:
    """Return the changes that `parts` have tried, as one change."""
    return {key: value for candidate in parts for key, value in candidate.tried.items()}


def known(screening: Screening, tried: Mapping[str, Any]) -> Candidate | None:
    """Return the candidate with the changes `tried` of the present best settings. None if they were not measured."""
    return next((candidate for candidate in _measured(screening, tried) if candidate.tried == tried), None)


def _measured(screening: Screening, tried: Mapping[str, Any]) -> Iterator[Candidate]:
    # also if the trial changed other settings
    settings, without_input = screening.settings_with(tried), screening.without_input
    for candidate in screening.search.candidates:
        if candidate.trials and candidate.settings == settings and candidate.without_input == without_input:
            yield candidate


def measure(screening: Screening, missed: Candidate) -> Candidate:
    """Measure a rejected candidate again, with its changes on top of the present best settings. Returns the candidate
    of this measurement.
    """
    if measured := known(screening, missed.tried):
        screening.repeat(measured)
        return measured
    return screening.attempt(missed.stage, missed.tried, "once more, as chance may have rejected it")
