"""Diagnoses a trial as if it were the real run (engine/diagnosis), and picks the remedy to try next. A trial on one
batch, repeated (ablation), has the speed of the device if the input cost nothing, as TensorFlow's guide to GPU
performance proposes. The speed of a profiled trial does not count.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from .. import plan
from ..diagnosis import collector, diagnose
from ..diagnosis.measurements import Measurements
from ..plan import WARMUP_STEPS
from ..presets import Preset
from ..profile import reports
from ..profile.reports import ProfileError, ProfileReport
from ..runs import Run
from ..runs.event_reading import read_events
from ..runs.events import EVENTS_FILE, InputStages
from ..trials.comparing import Comparing
from ..trials.record import Ablation, Comparison, Record, medians
from ..trials.trial import Trial
from ..trials.trial_preset import ONE_BATCH, with_changes
from ..trials.trial_runner import TrialRunner
from .request import SINGLE_STEPS


def of_trial(
    run: Run, preset: Preset, input_cost: float | None = None, communication: float | None = None
) -> dict[str, Any]:
    """Return the diagnosis of the trial `run` as plain values, with epoch and options of `preset`. `input_cost` and
    `communication` are shares of a step (0 to 1) or None.
    """
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
    """Return the new diagnosis; if undecided, with the remedies of the `earlier` one, but not their gains, which no
    longer hold.
    """
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
    """Remembers which remedies were tried, and picks the others.

    A remedy without changes is advice that only the user can follow. It is never picked.
    """

    def __init__(self) -> None:
        self._tried: set[str] = set()

    def untried(self, diagnosis: Mapping[str, Any], preset: Preset) -> list[Mapping[str, Any]]:
        """Return the untried remedies of the diagnosis that would change `preset`, in the order of the diagnosis."""
        now = flat(preset)
        return [
            remedy
            for remedy in diagnosis["remedies"]
            if _key(remedy) not in self._tried and any(now.get(k) != v for k, v in remedy["changes"].items())
        ]

    def tried(self, remedy: Mapping[str, Any]) -> None:
        self._tried.add(_key(remedy))


def flat(preset: Preset) -> dict[str, Any]:
    """Return the options of a preset as a dictionary from `group.name` to the value, as in JSON."""
    groups = asdict(preset.options)
    return {f"{group}.{name}": value for group, options in groups.items() for name, value in options.items()}


def _key(remedy: Mapping[str, Any]) -> str:
    return json.dumps(remedy["changes"], sort_keys=True, default=str)


# ---- trials without the input and with a profile -------------------------------------------------


FIRST_PROFILED, LAST_PROFILED = 30, 49  # steps, after the warm-up
MARGIN = 2.0  # factor on the time, so that the profile is complete if its steps are slower


def ablate(bench: TrialRunner, preset: Preset, repeats: int, record: Record, report: Callable[[str], None]) -> Trial:
    """Measure pairs of trials with the input and on one repeated batch for the record's ablation, and return the trial
    with input of median speed.
    """
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


def stages(run: Run) -> list[Mapping[str, Any]]:
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
        steps_profiled = _read_profile(bench, trial)
    except ProfileError as fault:
        record.profile_missing = " ".join(str(fault).split())
        return None
    record.profile = asdict(steps_profiled)
    return steps_profiled.shares.communication


def _read_profile(bench: TrialRunner, trial: Trial) -> ProfileReport:
    if not trial.good:
        raise ProfileError(f"the profiled trial failed: {trial.outcome}: {trial.error}")
    return reports.read(bench.run_of(trial))
