"""Which settings learn well enough to be chosen, their learning rate, and the pairs of trials that prove their gain.
Losses are compared before the pairs: settings that learn clearly worse are replaced by some nearer to the preset, and
in the end by those that do not affect what is learnt. With another batch size a schedule covers as many samples as
before, and what train.learning_rate_scaling already scales is not scaled twice.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from .. import checks, plan
from ..job.machine_gpus import Machine
from ..presets import Preset, PresetError
from ..proof.measurement import Measurement, OutOfTime
from ..runs.events import Started
from ..trials import comparing, proof_sentences, significance
from ..trials.comparing import Comparing
from ..trials.record import Comparison, Limits, medians
from ..trials.trial_preset import with_changes
from . import losses
from .losses import Losses
from .screening import Best
from .search_space import BATCH, value_of
from .stages import rounded
from .time_plan import TimePlan

OF_WHAT_IS_LEFT = 0.5  # share of the remaining time for the first losses; the rest is for other settings
SHORT = "the losses were compared after a part of a pass: that shows settings that fail, and no small difference"
NO_TIME = "no time was left for further pairs"

Settings = Mapping[str, Any]


class Deciding:
    """Decides which settings of a search are kept, and fills in the comparisons of the record. `report` writes the
    record, with the present work in words.
    """

    def __init__(self, measurement: Measurement, report: Callable[[str], None]) -> None:
        assert measurement.record.search is not None
        self._measurement, self._record, self._report = measurement, measurement.record, report
        self._search, self._limits = measurement.record.search, measurement.request.search or Limits()
        self._baseline = measurement.preset
        self._chosen = "the fastest settings"
        self._fault = ""  # why the fastest settings cannot be chosen

    @property
    def plan(self) -> TimePlan:
        """The division of the search's minutes, by the present estimate of the time of a trial."""
        asked, seconds = self._measurement.request, self._measurement.trial_seconds
        return TimePlan.of(self._limits, seconds, asked.measure_seconds, asked.repeats)

    def decide(self, best: Best, started: Started) -> None:
        """Choose settings that learn well enough, and compare them in pairs. Raises Stopped and BaselineFailed."""
        if not best.settings:
            return
        self._measurement.reserved_seconds = self.plan.pairs_seconds
        chosen = self._learning_well(best, started)
        self._measurement.reserved_seconds, self._measurement.grace_seconds = 0.0, self.plan.grace_seconds
        safe = learns_alike(self._baseline, best.settings)
        if chosen and self._is_kept(chosen, self._chosen):
            return
        if safe and safe != chosen:
            self._is_kept(safe, "the fastest settings that change nothing that is learnt")

    def _is_kept(self, settings: Settings, reason: str) -> bool:
        # settings that seem faster are stored as unproved if pairs do not decide it, or there is no time for two
        comparison = self._compare(settings, reason) if self._pairs_in_time(settings) else None
        if comparison is None or (comparison.decision == "undecided" and _seems_faster(comparison)):
            self._search.unproved = self._search.unproved or dict(settings)
        return comparison is not None and comparison.decision == "kept"

    def _pairs_in_time(self, settings: Settings) -> bool:
        # a first pair from before the search was resumed need not be measured again
        is_known = self._measurement.remembers(with_changes(self._baseline, settings), "b", 1)
        return is_known or self.plan.seconds_of(significance.FEW) <= self._measurement.seconds_left

    def keep_without_pairs(self, best: Best, started: Started) -> None:
        """Keep the best settings without a proof, as the preset itself runs out of memory and cannot be compared."""
        record = self._record
        record.changes_kept = self._scaled(best.settings, started)
        record.after = medians(best.trials)
        record.preset_after = with_changes(self._baseline, record.changes_kept).to_yaml()

    def _learning_well(self, best: Best, started: Started) -> dict[str, Any]:
        """If they learn clearly worse, and the user does not allow that, they are settings nearer to the preset."""
        settings = self._scaled(best.settings, started)
        if not self._changes_learning(settings):
            return settings
        plan = self.plan
        seconds = max(plan.learning_seconds, OF_WHAT_IS_LEFT * (self._measurement.seconds_left - plan.pairs_seconds))
        losses = Losses(self._measurement, self._report, seconds)
        first = losses.check(settings, self._search.best_speed or best.speed)
        if first.decision in ("no worse", "not judged"):
            self._search.learning = "" if first.decision == "no worse" else "whether it learns as well is not known"
            if first.decision == "no worse" and first.passes is None:
                self._search.learning = SHORT
            return settings
        if first.decision == "worse" and self._limits.allow_worse_loss:
            self._search.learning = "the fastest settings learn clearly worse, which was allowed"
            return settings
        self._fault = "learn clearly worse" if first.decision == "worse" else f"cannot be trained ({first.why})"
        return self._nearer(losses, best, started)

    def _nearer(self, losses: Losses, best: Best, started: Started) -> dict[str, Any]:
        for settings in nearer(self._baseline, best.settings):
            tried = self._scaled(settings, started)
            if not tried or not self._changes_learning(tried):
                break
            if losses.check(tried, self._speed_of(tried, best)).decision == "no worse":
                return self._instead(tried)
        return self._instead(learns_alike(self._baseline, best.settings))

    def _instead(self, settings: dict[str, Any]) -> dict[str, Any]:
        self._chosen = "the fastest settings that do not learn clearly worse"
        what = proof_sentences.changes(settings) if settings else "the preset as it is"
        self._search.learning = f"the fastest settings {self._fault} and are not chosen: {what} instead"
        return settings

    def _scaled(self, settings: Settings, started: Started) -> dict[str, Any]:
        self._search.rate_fixed = why_fixed(started)
        if self._search.rate_fixed:
            return dict(settings)
        try:
            return scaled(self._baseline, settings, self._limits, self._measurement.machine)
        except PresetError:
            return dict(settings)

    def _changes_learning(self, settings: Settings) -> bool:
        return bool(comparing.note(settings, with_changes(self._baseline, settings).options))

    def _speed_of(self, settings: Settings, best: Best) -> float:
        # the largest speed that was measured with this batch size
        batch = settings.get(BATCH)
        speeds = [
            candidate.samples_per_second
            for candidate in self._search.candidates
            if candidate.samples_per_second and candidate.settings.get(BATCH) == batch
        ]
        return max(speeds, default=self._search.before_speed or best.speed)

    def _compare(self, settings: Settings, reason: str) -> Comparison:
        comparison = Comparison(changes=dict(settings), reason=reason)
        self._record.comparisons.append(comparison)
        best = with_changes(self._baseline, settings)
        measuring = Comparing(
            self._measurement,
            comparison,
            self._baseline,
            best,
            self._measurement.request.repeats,
            self._report,
            may_end_early=True,
        )
        ended = ""
        try:
            measuring.measure()
            self._more_where_undecided(measuring)
        except OutOfTime:  # the pairs that were measured are judged
            ended = f"; {NO_TIME}"
        if comparison.decision != "failed":
            decision, comparison.why = significance.verdict(measuring.gains)
            comparison.decision = {"faster": "kept", "undecided": "undecided"}.get(decision, "rejected")
            comparison.why += ended if decision == "undecided" else ""
        if comparison.decision == "kept":
            self._keep(comparison)
        return comparison

    def _more_where_undecided(self, measuring: Comparing) -> None:
        # judged only when all are measured: after each pair a gain by chance would be found more often
        gains = measuring.gains
        median, spread = significance.gain_and_spread(gains)
        if significance.verdict(gains)[0] != "undecided" or median is None or spread is None or median < 0:
            return
        needed = significance.pairs_needed(median, spread)
        if 2 * (needed - len(gains)) * self.plan.pair_trial <= self._measurement.seconds_left:
            measuring.measure_more(needed)

    def _keep(self, comparison: Comparison) -> None:
        record = self._record
        record.before, record.after = comparison.figures("a"), comparison.figures("b")
        record.changes_kept = dict(comparison.changes)
        record.gain_total = 1 + (comparison.gain or 0.0)
        record.preset_after = with_changes(self._baseline, record.changes_kept).to_yaml()


def _seems_faster(comparison: Comparison) -> bool:
    return comparison.gain is None or comparison.gain >= significance.LEAST_GAIN


# ---- settings nearer to the preset ---------------------------------------------------------------


STEPS_BACK = 2  # batch sizes between the preset's and the fastest
LEAST_STEP = 1.25  # factor; a batch that is nearer to the preset's is hardly faster


def learns_alike(baseline: Preset, settings: Settings) -> dict[str, Any]:
    options = with_changes(baseline, settings).options
    return {key: value for key, value in settings.items() if not comparing.note([key], options)}


def nearer(baseline: Preset, settings: Settings) -> Iterator[dict[str, Any]]:
    """Yield settings with a batch nearer to the preset's, half of the (logarithmic) way each time, then without it."""
    before, batch = value_of(baseline, BATCH), settings.get(BATCH)
    if batch is None:
        return
    for _ in range(STEPS_BACK):
        batch = rounded(round(math.sqrt(before * batch)))
        if max(batch / before, before / batch) < LEAST_STEP:
            break
        yield {**settings, BATCH: batch}
    yield {key: value for key, value in settings.items() if key != BATCH}


# ---- the learning rate for another batch size ----------------------------------------------------


RATE, WARMUP = "train.learning_rate", "train.warmup_steps"
SCHEDULE = ("train.hold_steps", "train.decay_steps", WARMUP)  # lengths in steps


def scaled(baseline: Preset, settings: Mapping[str, Any], limits: Limits, machine: Machine) -> dict[str, Any]:
    """Return the settings with the rate and schedule for their batch, unless the rate is kept. Raises PresetError."""
    changed = with_changes(baseline, settings)
    grown = losses.growth(baseline, changed, machine)
    if grown == 1 or limits.learning_rate == "keep":
        return dict(settings)
    by_itself = _by_option(changed, machine) / _by_option(baseline, machine)
    factor = plan.rate_factor(limits.learning_rate, grown) / by_itself
    rate = float(f"{value_of(baseline, RATE) * factor:.4g}")
    warmup = {} if limits.warmup_steps is None else {WARMUP: limits.warmup_steps}
    return {**settings, RATE: rate, **dict(_lengths(baseline, grown)), **warmup}


def _by_option(preset: Preset, machine: Machine) -> float:
    return plan.rate_factor(preset.options.train.learning_rate_scaling, checks.replicas(preset.options, machine))


def _lengths(baseline: Preset, grown: float) -> Iterator[tuple[str, int]]:
    for key in SCHEDULE:
        if steps := value_of(baseline, key):
            yield key, max(1, round(steps / grown))


def why_fixed(started: Started) -> str:
    """Return why the learning rate of this training cannot be scaled. Empty if it can."""
    return started.inapplicable.get(RATE, "")
