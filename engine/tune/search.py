"""The search: the preset (a smaller batch if it runs out of memory), the ordered search (stages.py) or combinations
(wide/) or both, the losses of what is fastest, and the pairs that prove its gain. Settings that learn clearly worse are
replaced by some nearer to the preset, and in the end by those that do not affect what is learnt. With another batch
size a schedule covers as many samples as before; what train.learning_rate_scaling already scales is not scaled twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from .. import checks, plan, units
from ..job.machine_gpus import Machine
from ..presets import Preset, PresetError
from ..proof.measurement import Measurement, OutOfTime
from ..trials import SCREENING_SECONDS, comparing, proof_sentences, search_results, significance
from ..trials.comparing import BaselineFailed, Comparing
from ..trials.record import Candidate, Comparison, Limits, Search, medians
from ..trials.trial_preset import PROBE_SECONDS, with_changes
from . import losses
from .losses import Losses
from .memory_model import model_of
from .screening import Best, Screening
from .search_space import BATCH, Space
from .stages import STEPS_OF_A_PROBE, BatchSize, InputStage, in_order, ran_out, rounded
from .tune_request import TimePlan
from .wide import storage
from .wide.storage import StudyError
from .wide.study import Study
from .wide.wide_search import WideSearch

KEPT_BACK_SHARE = 0.5  # at most, of the time before the decision, for later parts of the search
WIDE_SHARE = 0.5  # of the time before the pairs, for combinations after the ordered search
OF_WHAT_IS_LEFT = 0.5  # share of the remaining time for the first losses; the rest is for other settings
SHORT = "the losses were compared after a part of a pass: that shows settings that fail, and no small difference"
FASTEST = "the fastest settings"
NO_TIME = "no time was left for further pairs"

Settings = Mapping[str, Any]


def measure(measurement: Measurement) -> None:
    if measurement.request.search is not None and measurement.request.search.dry_run:
        _dry_run(measurement)
    else:
        Searcher(measurement).run()


class Searcher:
    """Carries out one search, whose results go to the record."""

    def __init__(self, measurement: Measurement) -> None:
        self.measurement, self.record, self.preset = measurement, measurement.record, measurement.preset
        limits = self.limits = measurement.request.search or Limits()
        # without the password of the study's database
        shown = replace(limits, study=storage.shown(limits.study)) if limits.study else limits
        self.search = self.record.search = Search(limits=shown)
        measurement.end_after(limits.minutes)
        self.screening = Screening(measurement, self._report, SCREENING_SECONDS)
        self._kept_back = 0.0  # seconds for later parts of the search, without the decision
        folder = self.record.path.parent
        self._study = Study.of(measurement.request, measurement.machine, folder) if limits.wide else None

    def run(self) -> None:
        try:
            if self._study is not None:
                self._study.join()
            self._baseline()
        except StudyError as fault:  # the study cannot be joined
            raise BaselineFailed(str(fault)) from fault
        except OutOfTime:
            raise BaselineFailed("the minutes do not allow a single trial") from None
        try:
            if self.limits.wide != "instead":
                self._in_order()
            self.record.ended_because = self._combine(self._study) if self._study else "every option was tried"
        except OutOfTime:
            self.record.ended_because = self.measurement.out_of_time(
                "allows no further trial before the pairs that prove the gain"
            )
        self.measurement.reserved_seconds = 0.0
        self.search.stage = "decision"
        self._decide()

    def _baseline(self) -> None:
        """Measure the preset, with a smaller batch if it leaves no tenth of the memory free. Raises BaselineFailed."""
        screening, limits = self.screening, self.limits
        only_batch = tuple(limits.only) == ("batch_size",)  # looks for a batch within the limit
        self.search.stage = "baseline"
        while True:
            size = int(screening.best.preset.options.value(BATCH))
            smaller = "the preset with a smaller batch, as it runs out of memory"
            reason = smaller if screening.best.settings else "the preset as it is"
            try:
                measured = screening.measure_best("baseline", reason, without_input=False)
            except BaselineFailed:
                may_change = "batch_size" in limits.only and BATCH not in limits.leave
                if self.search.candidates[-1].trials[-1].outcome != "oom" or size == 1 or not may_change:
                    raise
            else:
                trial = measured.good[-1]
                started = self.measurement.started(trial)
                memory = model_of(started, screening.best.preset.options, trial, limits.memory_bytes)
                peak = measured.peak_bytes = memory.peak(measured.trials)
                if memory.limit_is_asked and (peak or 0) > (memory.limit_bytes or 0) and not only_batch:
                    raise BaselineFailed(
                        f"the training takes {units.size(peak)} of memory, and you allow "
                        f"{units.size(memory.limit_bytes)}: allow more, or begin with a smaller batch (gputui "
                        "fit-batch looks for one that fits)"
                    )
                most = memory.may_take
                if not screening.best.settings or size == 1 or peak is None or most is None or peak <= most:
                    break
            # the preset itself cannot be measured: the best settings are a smaller batch
            smaller_batch = {BATCH: size // 2}
            screening.best = Best(with_changes(self.preset, smaller_batch), smaller_batch)
        if not screening.best.settings:
            self.search.before_speed = measured.samples_per_second
            self.record.before = medians(measured.good)
        screening.space, screening.memory = Space(limits, self.measurement.machine, started), memory
        screening.waits_count = all("CPU:" in name for name in started.devices)

    def _in_order(self) -> None:
        """Raises OutOfTime only if no combinations follow, for which a part of the time is kept."""
        plan = self._plan
        if self.limits.wide:
            self._keep_back(WIDE_SHARE * max(0.0, plan.limit - plan.decision_seconds))
        try:
            in_order(self.screening, self._keep_back, is_short=not plan.is_whole)
        except OutOfTime:
            if not self.limits.wide:
                raise
        finally:
            self._keep_back(0.0)

    def _combine(self, study: Study) -> str:
        """Return why combinations ended: also a study's error, as the ordered search still counts."""
        if self.screening.without_input:
            InputStage(self.screening).put_back()
        self.search.stage = "wide"
        try:
            wide = WideSearch(study, self.screening)
        except StudyError as fault:
            return str(fault)
        self.search.study = wide.state
        return wide.run()

    def _keep_back(self, seconds: float) -> None:
        # computed again before each report, as the estimate of the time of a trial changes
        self._kept_back, plan = seconds, self._plan
        most = KEPT_BACK_SHARE * max(0.0, plan.limit - plan.decision_seconds - self.record.elapsed)
        self.measurement.reserved_seconds = plan.decision_seconds + min(seconds, most)

    def _report(self, doing: str) -> None:
        best = self.screening.best
        self.search.best = dict(best.settings)
        self.search.noise = self.screening.noise
        if not self.screening.without_input and best.trials:
            self.search.best_speed = best.speed
        if self.search.stage != "decision":
            self._keep_back(self._kept_back)
        self.record.budget_seconds = 60 * self.limits.minutes
        self.record.write(doing or None)

    # ---- the decision -----------------------------------------------------------------------------

    @property
    def _plan(self) -> TimePlan:
        """The division of the search's minutes, by the present estimate of the time of a trial."""
        asked, seconds = self.measurement.request, self.measurement.trial_seconds
        return TimePlan.of(self.limits, seconds, asked.measure_seconds, asked.repeats)

    def _decide(self) -> None:
        """Choose settings that learn well enough, and compare them in pairs; without pairs, if the preset itself runs
        out of memory and cannot be compared. Raises Stopped and BaselineFailed.
        """
        measurement, record, best = self.measurement, self.record, self.screening.best
        if record.before is None:
            record.changes_kept = self._scaled(best.settings)
            record.after = medians(best.trials)
            record.preset_after = with_changes(self.preset, record.changes_kept).to_yaml()
            return
        if not best.settings:
            return
        measurement.reserved_seconds = self._plan.pairs_seconds
        chosen, reason = self._learning_well(best)
        measurement.reserved_seconds, measurement.grace_seconds = 0.0, self._plan.grace_seconds
        safe = learns_alike(self.preset, best.settings)
        if chosen and self._is_kept(chosen, reason):
            return
        if safe and safe != chosen:
            self._is_kept(safe, "the fastest settings that change nothing that is learnt")

    def _is_kept(self, settings: Settings, reason: str) -> bool:
        # settings that seem faster are stored as unproved if pairs do not decide it, or there is no time for two; a
        # first pair from before the search was resumed need not be measured again
        measurement, comparison = self.measurement, None
        is_known = measurement.remembers(with_changes(self.preset, settings), "b", 1)
        if is_known or self._plan.seconds_of(significance.FEW) <= measurement.seconds_left:
            comparison = self._compare(settings, reason)
            if comparison.decision == "kept":
                return True
        seems_faster = comparison is None or comparison.gain is None or comparison.gain >= significance.LEAST_GAIN
        if seems_faster and (comparison is None or comparison.decision == "undecided"):
            self.search.unproved = self.search.unproved or dict(settings)
        return False

    def _learning_well(self, best: Best) -> tuple[dict[str, Any], str]:
        """The fastest settings or, if they learn clearly worse and the user does not allow that, some nearer to the
        preset, and which of both they are in words.
        """
        search, settings = self.search, self._scaled(best.settings)
        if not self._changes_learning(settings):
            return settings, FASTEST
        plan = self._plan
        seconds = max(plan.learning_seconds, OF_WHAT_IS_LEFT * (self.measurement.seconds_left - plan.pairs_seconds))
        losses = Losses(self.measurement, self._report, seconds)
        first = losses.check(settings, search.best_speed or best.speed)
        if first.decision in ("no worse", "not judged"):
            search.learning = "" if first.decision == "no worse" else "whether it learns as well is not known"
            if first.decision == "no worse" and first.passes is None:
                search.learning = SHORT
            return settings, FASTEST
        if first.decision == "worse" and self.limits.allow_worse_loss:
            search.learning = "the fastest settings learn clearly worse, which was allowed"
            return settings, FASTEST
        instead = learns_alike(self.preset, best.settings)
        for smaller in nearer(self.preset, best.settings):
            tried = self._scaled(smaller)
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

    def _scaled(self, settings: Settings) -> dict[str, Any]:
        self.search.rate_fixed = self.screening.space.started.inapplicable.get(RATE, "")
        if self.search.rate_fixed:
            return dict(settings)
        try:
            return scaled(self.preset, settings, self.limits, self.measurement.machine)
        except PresetError:
            return dict(settings)

    def _changes_learning(self, settings: Settings) -> bool:
        return bool(comparing.note(settings, with_changes(self.preset, settings).options))

    def _compare(self, settings: Settings, reason: str) -> Comparison:
        record, repeats = self.record, self.measurement.request.repeats
        comparison = Comparison(changes=dict(settings), reason=reason)
        record.comparisons.append(comparison)
        best = with_changes(self.preset, settings)
        measuring = Comparing(
            self.measurement, comparison, self.preset, best, repeats, self._report, may_end_early=True
        )
        ended = ""
        try:
            gains = measuring.measure()
            # More pairs are judged only when all are measured: after each a gain by chance would be found more often.
            median, spread = significance.gain_and_spread(gains)
            is_open = significance.verdict(gains)[0] == "undecided"
            if is_open and median is not None and spread is not None and median >= 0:
                needed = significance.pairs_needed(median, spread)
                if 2 * (needed - len(gains)) * self._plan.pair_trial <= self.measurement.seconds_left:
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
    before, batch = baseline.options.value(BATCH), settings.get(BATCH)
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
    rate = float(f"{baseline.options.value(RATE) * factor:.4g}")
    warmup = {} if limits.warmup_steps is None else {WARMUP: limits.warmup_steps}
    lengths = {key: max(1, round(steps / grown)) for key in SCHEDULE if (steps := baseline.options.value(key))}
    return {**settings, RATE: rate, **lengths, **warmup}


def _by_option(preset: Preset, machine: Machine) -> float:
    return plan.rate_factor(preset.options.train.learning_rate_scaling, checks.replicas(preset.options, machine))


# ---- the dry run ----------------------------------------------------------------------------------
# The memory of a preset without a search: a line through two probes of a few steps each. On a GPU both are smaller than
# the preset's batch, as TensorFlow counts its tensors exactly. The peak of a process differs by chance, so that on the
# CPU the second is as large as memory, samples and time surely allow.


SMALLER = 4  # the first probe has the preset's batch divided by this; if it fails, divided by this again
LARGER = 32  # the batch of the second probe on a CPU is at most so many times that of the first
SHARE = 0.5  # of the memory that may be taken: the second probe is sure to take no more
SECONDS = 15.0  # for the steps of the second probe


def _dry_run(measurement: Measurement) -> None:
    """Measure the probes and predict. Raises Stopped, and BaselineFailed if a probe fails or there is no time."""
    record, preset, limits = measurement.record, measurement.preset, measurement.request.search or Limits()
    search = record.search = Search(limits=limits, stage="batch_size")
    measurement.end_after(limits.minutes)
    screening = Screening(measurement, lambda doing: record.write(doing or None), PROBE_SECONDS)
    size, probes = int(preset.options.value(BATCH)), dict[int, Candidate]()

    def probe(batch: int) -> Candidate:
        return screening.probe("batch_size", {BATCH: batch}, "a few steps, for their memory")

    try:
        for small in dict.fromkeys(max(1, size // divided) for divided in (SMALLER, SMALLER**2)):
            first = probes[small] = probe(small)
            if not ran_out(first):
                break
        if not first.good:
            raise BaselineFailed(f"even batch size {small} cannot be trained: {first.why}")
        started = measurement.started(first.good[-1])
        memory = screening.memory = model_of(started, preset.options, first.good[-1], limits.memory_bytes)
        screening.space = Space(limits, measurement.machine, started)
        memory.most_batch = screening.space.most_samples(preset)
        sizes = BatchSize(screening, memory.most_batch)
        for batch, candidate in probes.items():
            sizes.note(batch, candidate)
        # the option of the batch size has no effect if the user's code makes the batches
        follows = BATCH not in started.inapplicable
        if follows and len(probes) == 1:
            batch = max(2, size // 2) if memory.of == "allocator" else _larger(screening, first, small)
            second = probe(batch)
            sizes.note(batch, second)
            follows = not second.good or BATCH not in measurement.started(second.good[-1]).inapplicable
    except OutOfTime:
        minutes = f"{limits.minutes:g} min"
        raise BaselineFailed(f"{minutes} do not allow the trials of a prediction: give more --minutes") from None
    search.memory = memory.state()
    if follows:
        search.memory = replace(
            search.memory, batch_size=size, predicted_bytes=memory.predict(size),
            first_step_bytes=memory.predict_first_step(size), replicas=started.replicas,
        )  # fmt: skip
    record.ended_because = search_results.prediction(search.memory)


def _larger(screening: Screening, first: Candidate, small: int) -> int:
    space, most, peak = screening.space, screening.memory.may_take, first.peak_bytes or 1
    speed = (first.good[-1].samples_per_second or math.inf) / space.replicas(screening.baseline)
    samples = space.most_samples(screening.baseline)
    affordable = int(min(speed * SECONDS / STEPS_OF_A_PROBE, LARGER * small))
    batch = min(LARGER * small, samples, affordable, *([] if most is None else [int(small * SHARE * most / peak)]))
    if batch >= 2 * small:
        return rounded(batch)
    fits = most is None or 2 * peak <= most
    return 2 * small if fits and samples >= 2 * small else max(1, small // 2)
