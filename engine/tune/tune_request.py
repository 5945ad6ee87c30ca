"""The request for a search, what is refused before anything is measured, and the plan of its time."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from .. import checks, options, units
from ..job import this_machine
from ..options import BY_KEY, OPTIONS
from ..options.catalogue import did_you_mean
from ..presets import Preset
from ..proof import duration, proof_start, request
from ..proof.folder import Proof
from ..proof.request import ProofError, Request
from ..runs import launched_with
from ..trials import LEAST_REPEATS, SCREENING_SECONDS, STAGES, TRIAL_SECONDS, proof_sentences
from ..trials.record import KEY, Limits, RateSettings
from ..trials.search_results import ONLY_OPTION
from ..trials.significance import FEW
from .wide import storage
from .wide.study import Study


def of_preset(preset: Preset, limits: Limits, **more: Any) -> Request:
    """Return a request for a search, also from a preset with unsaved changes. Raises ProofError."""
    asked = refuse(request.of_opened("tune", preset, search=checked(limits), **more))
    return joined(asked) if limits.study else asked


def joined(asked: Request) -> Request:
    """Return the request, without an ordered search if its study has trials. Raises StudyError and ProofError."""
    storage.require("wide searches need")
    trials = Study.of(asked, this_machine.read(), Path.cwd()).finished_trials()
    return replace(asked, search=replace(asked.search or Limits(), wide="instead")) if trials else asked


def checked(limits: Limits) -> Limits:
    """Return the limits with full keys of options (`input.batch_size`). Raises ProofError."""
    for stage in limits.only:
        if stage not in STAGES:
            near = did_you_mean(stage, STAGES)
            raise ProofError(f"{stage!r} cannot be searched{near}; there are {', '.join(STAGES)}")
    policies = BY_KEY["precision.policy"].choices
    for policy in limits.precisions or ():
        if policy not in policies:
            raise ProofError(f"there is no precision {policy!r}; there are {', '.join(policies)}")
    if limits.warmup_steps is not None and limits.learning_rate == "keep":
        raise ProofError("warm-up steps belong to a scaled learning rate: choose linear or sqrt as well")
    leave = [_key(key) for key in limits.leave]
    if not [stage for stage in limits.only if ONLY_OPTION.get(stage) not in leave]:
        raise ProofError(f"nothing is left to search: {', '.join(limits.only)} is both searched and left out")
    if limits.wide is None and (limits.study or limits.study_name):
        raise ProofError("a study belongs to a wide search: give --wide as well")
    if limits.wide:
        storage.require("wide searches need")
    # as any folder can use it
    return replace(limits, leave=leave, study=storage.located(limits.study) if limits.study else None)


def _key(text: str) -> str:
    """Raises ProofError if `text` is no option and no stage with a single option."""
    try:
        return ONLY_OPTION.get(text) or options.resolve_key(text, OPTIONS)
    except KeyError as fault:
        if text in STAGES:
            raise ProofError(
                f"--leave takes single options; {text} is left out by naming the others with --only"
            ) from None
        raise ProofError(f"--leave {text}: {fault.args[0]}") from None


def refuse(asked: Request) -> Request:
    """Return the request. Raises ProofError if its limits exclude the preset, or its minutes two trials."""
    limits, built = asked.search or Limits(), asked.baseline().options
    if limits.largest_batch is not None:
        each, replicas = built.input.batch_size, max(1, checks.replicas(built, this_machine.read()))
        if each * replicas > limits.largest_batch:
            parts = f" ({each:,} on each of {replicas} devices)" if replicas > 1 else ""
            raise ProofError(
                f"the preset's batch of {each * replicas:,}{parts} is above the largest that is allowed, "
                f"{limits.largest_batch:,}; begin with a smaller one "
                f"(batch_size={max(1, limits.largest_batch // replicas)}), or raise the limit"
            )
    plan = plan_of(limits, asked.preset_name, asked.repeats, asked.measure_seconds)
    needed = LEAST_TRIALS * plan.trial
    if plan.limit < needed and not limits.dry_run:
        raise ProofError(
            f"{limits.minutes:g} min are too few: a trial of the preset and one of a change take about "
            f"{needed / 60:.1f} min here; give more minutes ({plan.longer_in_words()})"
        )
    return asked


def resumed(proof: Proof, kind: str, minutes: float | None = None) -> Request:
    """Return what `proof_start.resumed` does; a wide search needs its study. Raises ProofError."""
    asked = proof_start.resumed(proof, kind, minutes)
    if asked.search is not None and asked.search.wide:
        storage.require("wide searches need")
        Study.of(asked, this_machine.read(), proof.path).finished_trials()
    return asked


# ---- the plan of time -----------------------------------------------------------------------------

# Divides the minutes of a search: at least half for trials of changes, the rest for the pairs, as many as fit, and then
# for the losses, at most a fifth. If not even two pairs fit, there is no proof, and their time is for trials.


LEAST_TRIALS = 2  # the preset, and one change
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
    """Divides the seconds of a search."""

    limit: float  # all seconds
    trial: float  # the seconds of a trial
    pair_trial: float  # those of a trial of a pair
    repeats: int  # the requested pairs
    compares_losses: bool = True
    source: str = ""  # where the times are from; empty: the search itself
    all_changes: int | None = None  # the usual number of changes; None: a wide search, which uses all its time

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
        longer = None if self.is_whole else self._longer()
        text = "; ".join(plan._alone() for plan in (self, longer) if plan is not None)
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


def plan_of(
    limits: Limits, preset_name: str, repeats: int = LEAST_REPEATS, measure_seconds: float = TRIAL_SECONDS
) -> TimePlan:
    """Return the plan, with times of trials from earlier measurements or runs of this preset here, or else assumed."""
    times = duration.trial_times(preset_name)
    plan = TimePlan.of(limits, times.seconds(SCREENING_SECONDS), measure_seconds, repeats)
    return replace(plan, pair_trial=max(plan.trial, times.seconds(measure_seconds)), source=times.source)


# ---- the learning-rate range test -----------------------------------------------------------------


LEAST_STEPS, LEAST_FACTOR = 50, 100.0
LIMITS = (1e-12, 1000.0)  # of a rate; the second is that of the option


def range_test(preset: Preset, test: RateSettings, **more: Any) -> Request:
    """Return the request for a range test. Raises ProofError."""
    if not LIMITS[0] <= test.low <= test.high / LEAST_FACTOR or test.high > LIMITS[1]:
        raise ProofError(
            f"--rates {test.low:g}:{test.high:g}: give two rates between {LIMITS[0]:g} and {LIMITS[1]:g}, the second "
            f"at least {LEAST_FACTOR:g} times the first, such as 1e-6:10"
        )
    if test.steps < LEAST_STEPS:
        raise ProofError(f"--ramp-steps {test.steps}: a ramp needs at least {LEAST_STEPS} steps")
    earlier = launched_with.of_same_code(preset.options)
    if earlier is not None and (why := earlier.inapplicable.get(KEY)):
        raise ProofError(f"{preset.name}: {proof_sentences.rate_inapplicable(why)}")
    return request.of_opened("rate", preset, rate=test, limit_seconds=60 * test.minutes, **more)
