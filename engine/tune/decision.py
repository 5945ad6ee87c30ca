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
from ..trials.trial_preset import value_of, with_changes
from . import losses
from .losses import Losses
from .screening import Best
from .search_space import BATCH
from .stages import rounded
from .time_plan import TimePlan

OF_WHAT_IS_LEFT = 0.5  # share of the remaining time for the first losses; the rest is for other settings
SHORT = "the losses were compared after a part of a pass: that shows settings that fail, and no small difference"
FASTEST = "the fastest settings"
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

    @property
    def plan(self) -> TimePlan:
        """The division of the search's minutes, by the present estimate of the time of a trial."""
        asked, seconds = self._measurement.request, self._measurement.trial_seconds
        return TimePlan.of(self._limits, seconds, asked.measure_seconds, asked.repeats)

    def decide(self, best: Best, started: Started) -> None:
        """Choose settings that learn well enough, and compare them in pairs; without pairs, if the preset itself runs
        out of memory and cannot be compared. Raises Stopped and BaselineFailed.
        """
        measurement, record = self._measurement, self._record
        if record.before is None:
            record.changes_kept = self._scaled(best.settings, started)
            record.after = medians(best.trials)
            record.preset_after = with_changes(self._baseline, record.changes_kept).to_yaml()
            return
        if not best.settings:
            return
        measurement.reserved_seconds = self.plan.pairs_seconds
        chosen, reason = self._learning_well(best, started)
        measurement.reserved_seconds, measurement.grace_seconds = 0.0, self.plan.grace_seconds
        safe = learns_alike(self._baseline, best.settings)
        if chosen and self._is_kept(chosen, reason):
            return
        if safe and safe != chosen:
            self._is_kept(safe, "the fastest settings that change nothing that is learnt")

    def _is_kept(self, settings: Settings, reason: str) -> bool:
        # settings that seem faster are stored as unproved if pairs do not decide it, or there is no time for two; a
        # first pair from before the search was resumed need not be measured again
        measurement, comparison = self._measurement, None
        is_known = measurement.remembers(with_changes(self._baseline, settings), "b", 1)
        if is_known or self.plan.seconds_of(significance.FEW) <= measurement.seconds_left:
            comparison = self._compare(settings, reason)
            if comparison.decision == "kept":
                return True
        seems_faster = comparison is None or comparison.gain is None or comparison.gain >= significance.LEAST_GAIN
        if seems_faster and (comparison is None or comparison.decision == "undecided"):
            self._search.unproved = self._search.unproved or dict(settings)
        return False

    def _learning_well(self, best: Best, started: Started) -> tuple[dict[str, Any], str]:
        """The fastest settings or, if they learn clearly worse and the user does not allow that, some nearer to the
        preset, and which of both they are in words.
        """
        search, settings = self._search, self._scaled(best.settings, started)
        if not self._changes_learning(settings):
            return settings, FASTEST
        plan = self.plan
        seconds = max(plan.learning_seconds, OF_WHAT_IS_LEFT * (self._measurement.seconds_left - plan.pairs_seconds))
        losses = Losses(self._measurement, self._report, seconds)
        first = losses.check(settings, search.best_speed or best.speed)
        if first.decision in ("no worse", "not judged"):
            search.learning = "" if first.decision == "no worse" else "whether it learns as well is not known"
            if first.decision == "no worse" and first.passes is None:
                search.learning = SHORT
            return settings, FASTEST
        if first.decision == "worse" and self._limits.allow_worse_loss:
            search.learning = "the fastest settings learn clearly worse, which was allowed"
            return settings, FASTEST
        instead = learns_alike(self._baseline, best.settings)
        for smaller in nearer(self._baseline, best.settings):
            tried = self._scaled(smaller, started)
            if not tried or not self._changes_learning(tried):
                break
            # the largest speed that was measured with this batch size
            speeds = [
                candidate.samples_per_second
                for candidate in search.candidates
                if candidate.samples_per_second and candidate.settings.get(BATCH) == tried.get(BATCH)
            ]
            if losses.check(tried, max(speeds, default=search.before_speed or best.speed)).decision == "no worse":
                instead = tried
                break
        fault = "learn clearly worse" if first.decision == "worse" else f"cannot be trained ({first.why})"
        what = proof_sentences.changes(instead) if instead else "the preset as it is"
        search.learning = f"the fastest settings {fault} and are not chosen: {what} instead"
        return instead, "the fastest settings that do not learn clearly worse"

    def _scaled(self, settings: Settings, started: Started) -> dict[str, Any]:
        self._search.rate_fixed = started.inapplicable.get(RATE, "")
        if self._search.rate_fixed:
            return dict(settings)
        try:
            return scaled(self._baseline, settings, self._limits, self._measurement.machine)
        except PresetError:
            return dict(settings)

    def _changes_learning(self, settings: Settings) -> bool:
        return bool(comparing.note(settings, with_changes(self._baseline, settings).options))

    def _compare(self, settings: Settings, reason: str) -> Comparison:
        record, repeats = self._record, self._measurement.request.repeats
        comparison = Comparison(changes=dict(settings), reason=reason)
        record.comparisons.append(comparison)
        best = with_changes(self._baseline, settings)
        measuring = Comparing(
            self._measurement, comparison, self._baseline, best, repeats, self._report, may_end_early=True
        )
        ended = ""
        try:
            gains = measuring.measure()
            # More pairs are judged only when all are measured: after each a gain by chance would be found more often.
            median, spread = significance.gain_and_spread(gains)
            is_open = significance.verdict(gains)[0] == "undecided"
            if is_open and median is not None and spread is not None and median >= 0:
                needed = significance.pairs_needed(median, spread)
                if 2 * (needed - len(gains)) * self.plan.pair_trial <= self._measurement.seconds_left:
                    measuring.measure_more(needed)
        except OutOfTime:  # the pairs that were measured are judged
            ended = f"; {NO_TIME}"
        if comparison.decision != "failed":
            decision, comparison.why = significance.verdict(measuring.gains)
            comparison.decision = {"faster": "kept", "undecided": "undecided"}.get(decision, "rejected")
            comparison.why += ended if decision == "undecided" else ""
        if comparison.decision == "kept":
            record.before, record.after = comparison.figures("a"), comparison.figures("b")
            record.changes_kept = dict(comparison.changes)
            record.gain_total = 1 + (comparison.gain or 0.0)
            record.preset_after = best.to_yaml()
        return comparison


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
    lengths = {key: max(1, round(steps / grown)) for key in SCHEDULE if (steps := value_of(baseline, key))}
    return {**settings, RATE: rate, **lengths, **warmup}


def _by_option(preset: Preset, machine: Machine) -> float:
    return plan.rate_factor(preset.options.train.learning_rate_scaling, checks.replicas(preset.options, machine))
