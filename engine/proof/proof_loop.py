"""The proof itself: diagnosis, its first remedy, a comparison, keep or reject, and again. A kept change becomes part of
the baseline, which is diagnosed again; a rejected one is not tried again.
"""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from .. import plan, units
from ..diagnosis import collector, diagnose
from ..diagnosis.measurements import Measurements
from ..job.machine_gpus import Machine
from ..plan import WARMUP_STEPS
from ..presets import Preset, PresetError
from ..profile import reports
from ..profile.reports import ProfileError
from ..runs import Run, launched_with
from ..runs.event_reading import read_events
from ..runs.events import EVENTS_FILE, InputStages, StageTiming, Started
from ..trials import comparing, proof_sentences, significance
from ..trials.comparing import BaselineFailed, Comparing, Stopped
from ..trials.record import Ablation, Comparison, Record, Trial, medians
from ..trials.trial_preset import ONE_BATCH, with_changes
from ..trials.trial_runner import TrialRunner
from . import duration
from .request import SINGLE_STEPS, Request, conflict

MEASURED_BEYOND = 1.05  # times the greatest possible gain: what is measured beyond that is not the change's own


class Prover:
    """Carries out one request with the trials of `bench` on `machine`, and updates the record after every step."""

    def __init__(self, request: Request, record: Record, bench: TrialRunner, machine: Machine) -> None:
        self.request, self.record, self.bench, self.machine = request, record, bench, machine
        self.best = request.baseline()
        self.diagnosis: Mapping[str, Any] = {"remedies": ()}
        self._communication: float | None = None  # share of the step, by a profile; None without one
        self._undecided = ""  # why the latest diagnosis has no verdict
        self._picking = Picking()
        self._fresh: Trial | None = None  # a trial of `best` that is in no comparison yet
        self._planned = duration.sure_trials(request)
        self._most_planned = duration.most_trials(request)
        self._guessed_seconds = duration.of_request(request)  # expected time of a trial

    def prove(self) -> None:
        self.record.write("measuring the baseline")
        if self.request.kind == "ab":
            comparison = Comparison(changes=self.request.changes, reason="asked for")
            try:
                decision = self._compare(comparison, with_changes(self.best, self.request.changes))
            finally:
                if comparison.good("b"):
                    self.record.after = comparison.figures("b")
            if decision:
                comparison.decision, comparison.why = decision
            if comparison.decision == "faster":
                self._keep(comparison)
            return
        trial = (
            ablate(self.bench, self.best, self.request.ablation_repeats, self.record, self._report)
            if self.request.ablation_repeats
            else self._baseline()
        )
        self.record.before = medians([trial])
        if self.request.profile:
            self._communication = profile(self.bench, self.best, trial, self.record, self._report)
        self._diagnose(trial, self.record.ablation.input_cost if self.record.ablation else None)
        self.record.diagnosis = self.diagnosis
        self.record.write()
        if self.request.kind == "loop":
            self._remedies()
        else:
            self.record.ended_because = self._undecided

    def _baseline(self) -> Trial:
        """A failed trial is repeated once. Raises BaselineFailed if both failed, and Stopped."""
        for _ in range(2):
            trial = self.bench.measure(self.best, "a", 1)
            self.record.baseline_trials.append(trial)
            self._report("")
            if self.bench.stop.count:
                raise Stopped
            if trial.good:
                self._fresh = trial
                return trial
        raise BaselineFailed(
            f"the training could not be measured in two attempts; the last was {trial.outcome}: {trial.error}"
        )

    def _diagnose(self, trial: Trial, input_cost: float | None = None) -> None:
        diagnosis = of_trial(self.bench.run_of(trial), self.best, input_cost, self._communication)
        self._undecided = undecided(diagnosis, (trial.step_ms or 0.0) / 1000)
        self.record.final_verdict = {name: diagnosis[name] for name in ("verdict", "sentence")}
        self.diagnosis = renewed(diagnosis, self.diagnosis)
        if self.request.kind == "loop":
            self.record.advice = [remedy for remedy in self.diagnosis["remedies"] if not remedy["changes"]]

    def _remedies(self) -> None:
        while untried := self._picking.untried(self.diagnosis, self.best):
            of_change = 2 * self.request.repeats
            self._planned = len(self.record.trials) + of_change - (1 if self._fresh else 0)
            self._most_planned = self._planned + of_change * (len(untried) - 1)
            if not self._time_left():
                minutes = (self.request.limit_seconds or 0) / 60
                late = proof_sentences.OUT_OF_TIME
                self.record.ended_because = f"{late} of {minutes:g} min does not allow another comparison"
                return
            self._picking.tried(untried[0])
            self._try(untried[0])
        self.record.ended_because = self._undecided or "no remedy is left"

    def _time_left(self) -> bool:
        limit = self.request.limit_seconds
        needed = duration.remaining_seconds(self.record, 2 * self.request.repeats, self._guessed_seconds)
        return limit is None or self.record.elapsed + needed <= limit

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
            why = conflict(changed, self.request, self.machine)
        except PresetError as fault:
            why = fault.problems[0].message
        if why:
            comparison.decision, comparison.why = "failed", why
            self.record.comparisons.append(comparison)
            return
        decision = self._compare(comparison, changed, bool(remedy.get("changes_learning")))
        if decision:
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
        if not doing and not self.record.versions:
            events = read_events(self.bench.run_of(self.record.trials[-1]).path, [EVENTS_FILE])
            started = events.last(Started)
            self.record.versions = dict(started.versions) if started else {}
        self.record.budget_seconds, most = map(self._seconds_in_all, (self._planned, self._most_planned))
        limit = self.request.limit_seconds
        most = most if limit is None else min(most, max(limit, self.record.budget_seconds))
        is_range = self._most_planned > self._planned and most > self.record.budget_seconds
        self.record.budget_most_seconds = most if is_range else None
        self.record.write(doing or None)

    def _seconds_in_all(self, planned: int) -> float:
        trials_left = max(0, planned - len(self.record.trials))
        return self.record.elapsed + duration.remaining_seconds(self.record, trials_left, self._guessed_seconds)


def of_trial(
    run: Run, preset: Preset, input_cost: float | None = None, communication: float | None = None
) -> dict[str, Any]:
    """Return the diagnosis of a trial with the preset's options; the costs are shares of a step (0 to 1)."""
    measurements = collector.read(run)
    per_epoch = plan.steps_per_epoch(preset.options.train, _batches_per_pass(measurements, preset)) or None
    real = replace(measurements, options=flat(preset), steps_per_epoch=per_epoch)
    return asdict(diagnose(replace(real, ablation=input_cost, communication=communication)))


def _batches_per_pass(measurements: Measurements, preset: Preset) -> int:
    samples, batch, drop = (
        measurements.train_samples,
        measurements.global_batch_size,
        preset.options.input.drop_remainder,
    )
    return max(1, plan.batches_per_pass(samples, batch, measurements.replicas, drop)) if samples and batch else 0


def renewed(diagnosis: Mapping[str, Any], earlier: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the new diagnosis; if undecided, with the earlier remedies but not their gains, which no longer hold."""
    if diagnosis["verdict"] != "undecided":
        return diagnosis
    left = [dict(remedy) | {"expected_gain": None} for remedy in earlier["remedies"]]
    return dict(diagnosis) | {"remedies": left}


def undecided(diagnosis: Mapping[str, Any], step_seconds: float) -> str:
    """Return why the diagnosis has no verdict, and what the user can do. Empty if it has one."""
    if diagnosis["verdict"] != "undecided":
        return ""
    longer = f"; measure longer: --seconds {plan.seconds_to_ask(step_seconds)}"
    return f"{diagnosis['sentence']}{longer if diagnosis['steps'] < plan.LEAST_STEPS else ''}"


class Picking:
    """Remembers which remedies were tried, and picks others with changes: advice only the user can follow."""

    def __init__(self) -> None:
        self._tried: set[str] = set()

    def untried(self, diagnosis: Mapping[str, Any], preset: Preset) -> list[Mapping[str, Any]]:
        now = flat(preset)
        return [
            remedy
            for remedy in diagnosis["remedies"]
            if _key(remedy) not in self._tried and any(now.get(k) != v for k, v in remedy["changes"].items())
        ]

    def tried(self, remedy: Mapping[str, Any]) -> None:
        self._tried.add(_key(remedy))


def flat(preset: Preset) -> dict[str, Any]:
    groups = asdict(preset.options)
    return {f"{group}.{name}": value for group, options in groups.items() for name, value in options.items()}


def _key(remedy: Mapping[str, Any]) -> str:
    return json.dumps(remedy["changes"], sort_keys=True, default=str)


# ---- trials without the input and with a profile -------------------------------------------------


FIRST_PROFILED, LAST_PROFILED = 30, 49  # steps, after the warm-up
MARGIN = 2.0  # factor on the time, so that the profile is complete if its steps are slower


# A trial on one batch, repeated, has the speed of the device if the input cost nothing, as TensorFlow's guide to GPU
# performance proposes. The speed of a profiled trial does not count.
def ablate(bench: TrialRunner, preset: Preset, repeats: int, record: Record, report: Callable[[str], None]) -> Trial:
    """Measure pairs with the input and on one repeated batch; return the trial with input of median speed."""
    comparison = Comparison(changes=ONE_BATCH)
    ablation = record.ablation = Ablation(trials=comparison.trials)
    Comparing(bench, comparison, preset, with_changes(preset, ONE_BATCH), repeats, report).measure()
    real = comparison.good("a")
    ablation.why = comparison.why
    ablation.input_cost = input_cost(comparison.gain)
    ablation.input_wait = medians(real)["input_wait"]
    ablation.stages = stages(bench.run_of(middle(real)))
    return middle(real)


def input_cost(gain: float | None) -> float | None:
    """Return the share of a step (0 to 1) that its input costs, by the gain without it; noise below 0 counts as 0."""
    return None if gain is None else max(0.0, 1 - 1 / (1 + gain))


def middle(trials: Sequence[Trial]) -> Trial:
    """Return the trial of median speed, of two in the middle the slower one. Raises StatisticsError without trials."""
    speed = statistics.median_low([trial.samples_per_second or 0.0 for trial in trials])
    return next(trial for trial in trials if (trial.samples_per_second or 0.0) == speed)


def stages(run: Run) -> list[StageTiming]:
    """Return the stages of the input from source to end, by the last event about them. Empty without one."""
    last = read_events(run.path, [EVENTS_FILE]).last(InputStages)
    return list(last.stages) if last else []


def profile(
    bench: TrialRunner, preset: Preset, real: Trial, record: Record, report: Callable[[str], None]
) -> float | None:
    """Measure a profiled trial for the record's profile (or why there is none). Return the share of the step in which
    devices exchange data, None if unknown. `real` is an unprofiled trial.
    """
    report(f"profiling steps {FIRST_PROFILED} to {LAST_PROFILED}")
    seconds = max(bench.measure_seconds, MARGIN * (LAST_PROFILED - WARMUP_STEPS) * (real.step_ms or 0.0) / 1000)
    alone, steps = with_changes(preset, SINGLE_STEPS), f"{FIRST_PROFILED}-{LAST_PROFILED}"
    trial = record.profile_trial = bench.measure(alone, "p", 1, seconds=seconds, profile=steps)
    report("reading the profile")
    try:
        if not trial.good:
            raise ProfileError(f"the profiled trial failed: {trial.outcome}: {trial.error}")
        steps_profiled = reports.read(bench.run_of(trial))
    except ProfileError as fault:
        record.profile_missing = " ".join(str(fault).split())
        return None
    record.profile = asdict(steps_profiled)
    return steps_profiled.shares.communication
