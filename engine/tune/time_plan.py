"""Divides the minutes of a search: at least half for trials of changes, the rest for the pairs, as many as fit, and
then for the losses, at most a fifth. If not even two pairs fit, there is no proof, and their time is for trials.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from .. import units
from ..trials import SCREENING_SECONDS, STAGES
from ..trials.record import Limits
from ..trials.significance import FEW

DECISION_SHARE = 0.5  # largest share of the minutes for losses and pairs
LEARNING_SHARE = 0.2  # share of the minutes for comparing losses
SLACK = 1.1  # of the time of the pairs: some of their trials take longer than others
GRACE_SHARE = 0.1  # of the minutes, by which pairs may take longer than planned
LEARNT = {"batch_size", "precision", "strategy"}  # stages whose options change what is learnt
FIRST_TRIALS = 2  # the preset, and the preset without its input
SOME_CHANGES = 8  # a search with time for these is long enough
# Changes that a search usually tries in each stage: it ends when all were tried (searches of quickstart on two cores
# tried 10 and 14 in all; one that is input-bound tries more of the input).
USUAL_CHANGES = {
    "batch_size": 4, "steps_per_execution": 2, "precision": 2, "xla": 1, "strategy": 1, "input": 3, "threads": 2,
}  # fmt: skip
LONGEST_MINUTES = 24 * 60


@dataclass(frozen=True)
class TimePlan:
    """Divides the seconds of a search (`limit`). `trial` and `pair_trial` are the seconds of a trial, `repeats` the
    requested pairs, `source` where the times are from (empty: the search itself), `all_changes` the usual number of
    changes to try, None for a wide search, which uses all its time.
    """

    limit: float
    trial: float
    pair_trial: float
    repeats: int
    compares_losses: bool = True
    source: str = ""
    all_changes: int | None = None

    @classmethod
    def of(cls, limits: Limits, trial: float, measure_seconds: float, repeats: int) -> TimePlan:
        """Return the plan. `trial` is the time of a trial, `measure_seconds` the measured time of a trial of a pair."""
        longer = trial + max(0.0, measure_seconds - SCREENING_SECONDS)
        return cls(0.0, trial, longer, repeats).with_limits(limits)

    def with_limits(self, limits: Limits) -> TimePlan:
        every = None if limits.wide else sum(USUAL_CHANGES[stage] for stage in limits.only or STAGES)
        learning = changes_learning(limits.only)
        return replace(self, limit=60 * limits.minutes, compares_losses=learning, all_changes=every)

    @property
    def pairs(self) -> int:
        """The number of planned pairs: as many of `repeats` as the time for the decision allows, 0 if not two."""
        most = DECISION_SHARE * self.limit
        return next((count for count in range(self.repeats, FEW - 1, -1) if self.seconds_of(count) <= most), 0)

    def seconds_of(self, pairs: int) -> float:
        return SLACK * 2 * pairs * self.pair_trial

    @property
    def pairs_seconds(self) -> float:
        return self.seconds_of(self.pairs)

    @property
    def learning_seconds(self) -> float:
        """The seconds for comparing losses, 0 if nothing changes what is learnt or there is no time."""
        rest = DECISION_SHARE * self.limit - self.pairs_seconds
        seconds = min(LEARNING_SHARE * self.limit, rest)
        return seconds if self.compares_losses and seconds >= 2 * self.trial else 0.0

    @property
    def decision_seconds(self) -> float:
        return self.pairs_seconds + self.learning_seconds

    @property
    def grace_seconds(self) -> float:
        return GRACE_SHARE * self.limit

    @property
    def changes(self) -> int:
        """The approximate number of changes that can be tried before the decision."""
        trials = int((self.limit - self.decision_seconds) / self.trial)
        return max(0, trials - (FIRST_TRIALS if trials > FIRST_TRIALS else 1))

    @property
    def _tries_all(self) -> bool:
        return self.all_changes is not None and self.changes >= self.all_changes

    @property
    def is_whole(self) -> bool:
        """True if there is time for SOME_CHANGES changes, for the losses and for all pairs."""
        losses = bool(self.learning_seconds) or not self.compares_losses
        return (self._tries_all or self.changes >= SOME_CHANGES) and self.pairs == self.repeats and losses

    def in_words(self) -> str:
        """Return this plan and the shortest with time for everything, unless a day is not enough: `2 minutes: about 1
        change, no proof; 5 minutes: about 9 changes and the proof (trials of 12 s, as in 20260921-100000-cnn)`.
        """
        text = self._alone()
        longer = None if self.is_whole else self._longer()
        text += "" if longer is None else f"; {longer._alone()}"
        return f"{text} (trials of {units.seconds(self.trial)}, {self.source})" if self.source else text

    def longer_in_words(self) -> str:
        """Return the plan with the fewest minutes that have time for everything, or this one if a day is not enough."""
        return (self._longer() or self)._alone()

    def _alone(self) -> str:
        minutes = self.limit / units.MINUTE
        changes = f"about {units.counted(self.changes, 'changes')}"
        if self._tries_all:
            changes = f"all changes (about {self.all_changes})"
        proof = {0: ", no proof", self.repeats: " and the proof"}.get(self.pairs)
        if proof is None:
            large = ", which prove only a large gain" if self.pairs == FEW else ""
            proof = f" and {units.counted(self.pairs, 'pairs')} of trials{large}"
        losses = "" if self.learning_seconds or not self.compares_losses else ", no comparison of losses"
        return f"{minutes:g} {units.named(minutes, 'minutes')}: {changes}{proof}{losses}"

    def _longer(self) -> TimePlan | None:
        minutes = range(int(self.limit // units.MINUTE) + 1, LONGEST_MINUTES)
        plans = (replace(self, limit=units.MINUTE * count) for count in minutes)
        return next((plan for plan in plans if plan.is_whole), None)


def changes_learning(stages: Collection[str]) -> bool:
    """Return True if one of these stages (empty: of all) may change what the model learns."""
    return bool(LEARNT & set(stages or STAGES))
