"""The time of a sweep. Once two settings are complete, none begins that would leave too little time for the whole
proof, and those that train are stopped at the last moment for the shortest proof. Whatever trains at the end is
stopped.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ..trials import sweep_groups
from ..trials.sweep_record import DONE, PROOF, SEARCH, SweepSettings, SweepTrial
from .decision import LEAST_SEEDS

PAIR = 2  # complete settings, without which nothing can be proved
MARGIN = 0.02  # of the time: the last moment for the shortest proof is so much earlier or later
LEAST_MARGIN_SECONDS = 2.0


class SweepTime:
    """The time of a sweep. `epochs` are those of a training, `resumes` says if a stopped trial goes on where it was.
    `elapsed` is in seconds since the start, without interruptions.
    """

    def __init__(self, settings: SweepSettings, trials: Sequence[SweepTrial], epochs: int, resumes: bool) -> None:
        self._settings, self._trials, self._epochs, self._resumes = settings, trials, epochs, resumes
        self._finalists: Sequence[Mapping[str, Any]] | None = None

    @property
    def limit(self) -> float:
        """The time of the whole sweep in seconds."""
        return 60 * self._settings.minutes

    def has_settled(self) -> None:
        """Take note that a trial has ended, so that the finalists are chosen again."""
        self._finalists = None

    @property
    def finalists(self) -> Sequence[Mapping[str, Any]]:
        """The best complete settings up to now."""
        if self._finalists is None:
            ranked = sweep_groups.ranked(self._trials, self._settings.higher)
            self._finalists = [changes for changes, _ in ranked][: self._settings.finalists]
        return self._finalists

    @property
    def lacks_pair(self) -> bool:
        """True if too few settings are complete for a proof."""
        return len(self.finalists) < min(PAIR, self._settings.finalists)

    def whole(self, changes: Mapping[str, Any] | None = None) -> float:
        """Return the mean seconds of a whole training of a setting, or of all settings, 0 if unknown. Unended ones
        count by their epochs, if none has ended.
        """
        trained = [trial for trial in self._trials if trial.whole_seconds is not None]
        trained = [trial for trial in trained if trial.changes == changes] or trained
        trained = [trial for trial in trained if trial.state == DONE] or trained
        return statistics.fmean(trial.whole_seconds or 0.0 for trial in trained) if trained else 0.0

    def _proof(self, seeds: int) -> float:
        proved = [trial for trial in self._trials if trial.part == PROOF and trial.state == DONE]
        done = sum(trial.changes in self.finalists for trial in proved)
        each = statistics.fmean(map(self.whole, self.finalists)) if self.finalists else self.whole()
        count = max(0, self._settings.finalists * seeds - done)
        return self._rounds(count) * each

    def _rounds(self, trainings: int) -> int:
        return math.ceil(trainings / self._settings.parallel)

    @property
    def _shortest_proof(self) -> float:
        return self._proof(min(LEAST_SEEDS, self._settings.proof_seeds))

    def ends_in_time(self, trial: SweepTrial | None, flying: int, elapsed: float, then: float = 0.0) -> bool:
        """Return True if `trial` (None: a new setting) ends or pauses with `then` seconds left."""
        queued = flying // self._settings.parallel * self.whole()
        return elapsed + queued + self._left_of(trial) + then < self.limit

    def _left_of(self, trial: SweepTrial | None) -> float:
        if trial is None:
            return self.whole()
        ends = self._settings.rungs if trial.part == SEARCH else ()
        until = ends[len(trial.rungs)] if len(trial.rungs) < len(ends) else self._epochs
        before = trial.seconds or 0.0 if self._resumes else 0.0
        return max(0.0, self.whole(trial.changes) * until / self._epochs - before)

    def is_left_for(self, trial: SweepTrial | None, part: str, flying: int, elapsed: float) -> bool:
        """Return True if a further trial would end in time and, during the search, leave time for the whole proof; not
        if it would be stopped at once.
        """
        if self.is_over(part, elapsed):
            return False
        then = 0.0
        if part == SEARCH and self._settings.proof_seeds:
            if self.lacks_pair:  # two have to be trained to their end, if bad ones end early
                missing = PAIR - len(self.finalists) if self._settings.rungs else 0
                then = self._proof(self._settings.proof_seeds) + self._rounds(missing) * self.whole()
            elif elapsed + self._shortest_proof < self.limit:
                then = self._proof(self._settings.proof_seeds)
        return self.ends_in_time(trial, flying, elapsed, then)

    def is_over(self, part: str, elapsed: float) -> bool:
        """Return True if the trials of the part that wait or train have to be stopped."""
        left = self.limit - elapsed
        if left <= 0 or part == PROOF or not self._settings.proof_seeds or self.lacks_pair:
            return left <= 0
        return abs(left - self._shortest_proof) <= max(MARGIN * self.limit, LEAST_MARGIN_SECONDS)
