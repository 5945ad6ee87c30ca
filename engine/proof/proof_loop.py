"""The proof itself: diagnosis, its first remedy, a comparison, keep or reject, and again. A kept change becomes part of
the baseline, which is diagnosed again; a rejected one is not tried again.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from .. import plan, units
from ..diagnosis import collector, diagnose
from ..plan import WARMUP_STEPS
from ..presets import Preset, PresetError
from ..profile import reports
from ..profile.reports import ProfileError
from ..runs import Run, launched_with
from ..runs.events import InputStages, Started
from ..trials import comparing, significance
from ..trials.comparing import BaselineFailed, Comparing, Stopped
from ..trials.record import Ablation, Comparison, Trial, medians
from ..trials.trial_preset import ONE_BATCH, with_changes
from . import duration
from .measurement import Measurement, retried
from .request import SINGLE_STEPS

FIRST_PROFILED, LAST_PROFILED = 30, 49  # steps, after the warm-up
MARGIN = 2.0  # factor on the time, so that the profile is complete if its steps are slower
MEASURED_BEYOND = 1.05  # times the greatest possible gain: what is measured beyond that is not the change's own


def measure(measurement: Measurement) -> None:
    Prover(measurement).prove()


class Prover:
    """Carries out one proof, and updates the record after every step."""

    def __init__(self, measurement: Measurement) -> None:
        self.measurement, self.request, self.record = measurement, measurement.request, measurement.record
        self.bench, self.best = measurement.bench, measurement.preset
        self.diagnosis: Mapping[str, Any] = {"remedies": ()}
        self._communication: float | None = None  # share of the step, by a profile; None without one
        self._undecided = ""  # why the latest diagnosis has no verdict
        self._fresh: Trial | None = None  # a trial of `best` that is in no comparison yet
        self._planned, self._most_planned = duration.sure_trials(self.request), duration.most_trials(self.request)

    def prove(self) -> None:
        request, record = self.request, self.record
        record.write("measuring the baseline")
        if request.kind == "ab":
            comparison = Comparison(changes=request.changes, reason="asked for")
            try:
                decision = self._compare(comparison, with_changes(self.best, request.changes))
            finally:
                if comparison.good("b"):
                    record.after = comparison.figures("b")
            if decision:
                comparison.decision, comparison.why = decision
            if comparison.decision == "faster":
                self._keep(comparison)
            return
        trial = self._ablate() if request.ablation_repeats else self._baseline()
        record.before = medians([trial])
        if request.profile:
            self._profile(trial)
        self._diagnose(trial, record.ablation.input_cost if record.ablation else None)
        record.diagnosis = self.diagnosis
        record.write()
        if request.kind == "loop":
            self._remedies()
        else:
            record.ended_because = self._undecided

    def _baseline(self) -> Trial:
        """Raises BaselineFailed if two attempts failed, and Stopped."""

        def attempt(_number: int) -> Trial:
            trial = self.bench.measure(self.best, "a", 1)
            self.record.baseline_trials.append(trial)
            self._report("")
            if self.bench.stop.count:
                raise Stopped
            return trial

        self._fresh = trial = retried(attempt, settled=("ok",))
        if not trial.good:
            raise BaselineFailed(
                f"the training could not be measured in two attempts; the last was {trial.outcome}: {trial.error}"
            )
        return trial

    # A trial on one batch, repeated, has the speed of the device if the input cost nothing, as TensorFlow's guide to
    # GPU performance proposes.
    def _ablate(self) -> Trial:
        """Measure pairs with the input and on one repeated batch; return the trial with input of median speed."""
        comparison, best, repeats = Comparison(changes=ONE_BATCH), self.best, self.request.ablation_repeats
        ablation = self.record.ablation = Ablation(trials=comparison.trials)
        Comparing(self.bench, comparison, best, with_changes(best, ONE_BATCH), repeats, self._report).measure()
        real = comparison.good("a")
        ablation.why = comparison.why
        if comparison.gain is not None:  # noise below 0 counts as 0
            ablation.input_cost = max(0.0, 1 - 1 / (1 + comparison.gain))
        ablation.input_wait = medians(real)["input_wait"]
        last = self.measurement.events_of(middle(real)).last(InputStages)
        ablation.stages = list(last.stages) if last else []
        return middle(real)

    def _profile(self, real: Trial) -> None:
        """Measure a trial for the record's profile, or note why there is none. `real` is an unprofiled trial."""
        record = self.record
        self._report(f"profiling steps {FIRST_PROFILED} to {LAST_PROFILED}")
        needed = MARGIN * (LAST_PROFILED - WARMUP_STEPS) * (real.step_ms or 0.0) / 1000
        trial = record.profile_trial = self.bench.measure(
            with_changes(self.best, SINGLE_STEPS), "p", 1, seconds=max(self.bench.measure_seconds, needed),
            profile=f"{FIRST_PROFILED}-{LAST_PROFILED}",
        )  # fmt: skip
        self._report("reading the profile")
        try:
            if not trial.good:
                raise ProfileError(f"the profiled trial failed: {trial.outcome}: {trial.error}")
            profile = reports.read(self.bench.run_of(trial))
        except ProfileError as fault:
            record.profile_missing = " ".join(str(fault).split())
            return
        record.profile = asdict(profile)
        self._communication = profile.shares.communication

    def _diagnose(self, trial: Trial, input_cost: float | None = None) -> None:
        """If undecided, the earlier remedies stay, but not their gains, which no longer hold."""
        diagnosis = of_trial(self.bench.run_of(trial), self.best, input_cost, self._communication)
        self._undecided = undecided(diagnosis, (trial.step_ms or 0.0) / 1000)
        self.record.final_verdict = {name: diagnosis[name] for name in ("verdict", "sentence")}
        if diagnosis["verdict"] == "undecided":
            diagnosis["remedies"] = [dict(remedy) | {"expected_gain": None} for remedy in self.diagnosis["remedies"]]
        self.diagnosis = diagnosis
        if self.request.kind == "loop":
            self.record.advice = [remedy for remedy in self.diagnosis["remedies"] if not remedy["changes"]]

    def _remedies(self) -> None:
        """Try remedies that change something, each once, until none is left or there is no time for another."""
        record, of_change, tried = self.record, 2 * self.request.repeats, list[Mapping[str, Any]]()
        while True:
            now = self.best.options.values()
            untried = [
                remedy
                for remedy in self.diagnosis["remedies"]
                if remedy["changes"] not in tried and any(now.get(k) != v for k, v in remedy["changes"].items())
            ]
            if not untried:
                record.ended_because = self._undecided or "no remedy is left"
                return
            self._planned = sum(trial.good for trial in record.trials) + of_change - (1 if self._fresh else 0)
            self._most_planned = self._planned + of_change * (len(untried) - 1)
            if not self.measurement.has_time_for(of_change):
                record.ended_because = self.measurement.out_of_time("does not allow another comparison")
                return
            tried.append(untried[0]["changes"])
            self._try(untried[0])

    def _try(self, remedy: Mapping[str, Any]) -> None:
        comparison = Comparison(
            changes=remedy["changes"],
            reason=remedy["reason"],
            expected_gain=remedy.get("expected_gain"),
            step=remedy.get("step") or "",
            verdict_before=self.diagnosis["verdict"],
        )
        try:
            changed = with_changes(self.best, remedy["changes"])
            why = self.measurement.conflict(changed)
        except PresetError as fault:
            why = fault.problems[0].message
        if why:
            comparison.decision, comparison.why = "failed", why
            self.record.comparisons.append(comparison)
            return
        if decision := self._compare(comparison, changed, bool(remedy.get("changes_learning"))):
            comparison.decision, comparison.why = ("kept" if decision[0] == "faster" else "rejected"), decision[1]
            most = comparison.expected_gain
            if comparison.gain is not None and most is not None and 1 + comparison.gain > MEASURED_BEYOND * most:
                comparison.why += (
                    f"; the change alone can bring at most {units.times(most)}: the rest is chance, or other programs"
                )
        if comparison.decision == "kept":
            self._keep(comparison)
            self.best = changed
            self._diagnose(middle(comparison.good("b")))
        self.record.write()

    def _compare(
        self, comparison: Comparison, changed: Preset, changes_learning: bool = False
    ) -> tuple[str, str] | None:
        """The verdict and its reason, None if the comparison has failed."""
        self.record.comparisons.append(comparison)
        measuring = Comparing(
            self.bench, comparison, self.best, changed, self.request.repeats, self._report, self._fresh,
            in_vain=self._in_vain,
        )  # fmt: skip
        self._fresh = None
        try:
            gains = measuring.measure()
        finally:
            note = comparing.note(comparison.changes, changed.options, changes_learning)
            good = comparison.good("a") + comparison.good("b")
            if note and comparison.decision != "failed" and comparison.good("a") and comparison.good("b"):
                comparison.learning = comparing.compare(note, good, self.bench.folder)
            if comparison.good("a") and not any(comparison.trials for comparison in self.record.comparisons[:-1]):
                self.record.before = comparison.figures("a")
        return None if comparison.decision == "failed" else significance.verdict(gains)

    def _in_vain(self, trial: Trial) -> str:
        started = launched_with.started(self.bench.run_of(trial)) if self.request.changes else None
        why = {key: started.inapplicable.get(key) for key in self.request.changes} if started else {}
        return f"{next(iter(why))} does nothing here: {next(iter(why.values()))}" if why and all(why.values()) else ""

    def _keep(self, comparison: Comparison) -> None:
        """A smaller total gain by the first and the last pair counts: the machine's load may have changed."""
        record = self.record
        if not record.changes_kept:
            record.before = comparison.figures("a")
        record.changes_kept |= dict(comparison.changes)
        record.after = comparison.figures("b")
        kept = (each for each in record.comparisons if each.decision in ("kept", "faster"))
        product = math.prod(1 + (each.gain or 0.0) for each in kept)
        before, after = (side.get("samples_per_second") for side in (record.before or {}, record.after))
        record.gain_total = min(product, after / before) if before and after else product
        record.preset_after = with_changes(self.request.baseline(), record.changes_kept).to_yaml()

    def _report(self, doing: str) -> None:
        """Called after every trial with an empty `doing`, and before the next with its work in words."""
        record, measured = self.record, sum(trial.good for trial in self.record.trials)
        if not doing and not record.versions:
            started = self.measurement.events_of(record.trials[-1]).last(Started)
            record.versions = dict(started.versions) if started else {}
        record.budget_seconds, most = (
            record.elapsed + self.measurement.expected_seconds(max(0, planned - measured))
            for planned in (self._planned, self._most_planned)
        )
        most = min(most, max(self.measurement.limit_seconds, record.budget_seconds))
        is_range = self._most_planned > self._planned and most > record.budget_seconds
        record.budget_most_seconds = most if is_range else None
        record.write(doing or None)


def of_trial(
    run: Run, preset: Preset, input_cost: float | None = None, communication: float | None = None
) -> dict[str, Any]:
    """Return the diagnosis of a trial with the preset's options; the costs are shares of a step (0 to 1)."""
    measurements = collector.read(run)
    samples, batch = measurements.train_samples, measurements.global_batch_size
    drop = preset.options.input.drop_remainder
    batches = max(1, plan.batches_per_pass(samples, batch, measurements.replicas, drop)) if samples and batch else 0
    per_epoch = plan.steps_per_epoch(preset.options.train, batches) or None
    real = replace(measurements, options=preset.options.values(), steps_per_epoch=per_epoch)
    return asdict(diagnose(replace(real, ablation=input_cost, communication=communication)))


def undecided(diagnosis: Mapping[str, Any], step_seconds: float) -> str:
    """Return why the diagnosis has no verdict, and what the user can do. Empty if it has one."""
    if diagnosis["verdict"] != "undecided":
        return ""
    longer = f"; measure longer: --seconds {plan.seconds_to_ask(step_seconds)}"
    return f"{diagnosis['sentence']}{longer if diagnosis['steps'] < plan.LEAST_STEPS else ''}"


def middle(trials: Sequence[Trial]) -> Trial:
    """Return the trial of median speed, of two in the middle the slower one. Raises StatisticsError without trials."""
    speed = statistics.median_low([trial.samples_per_second or 0.0 for trial in trials])
    return next(trial for trial in trials if (trial.samples_per_second or 0.0) == speed)
