"""Trials that only diagnose: the training without its input (ablation), and with its steps profiled.

Ablation trains on one batch, prepared once and repeated: its speed is that of the device if the input cost nothing. The
share of a real step that this saves is compared with `input_wait`, which the training itself measures. (TensorFlow's
guide to GPU performance finds input-bound trainings in this way, without a profiler.)

The speed of the profiled trial does not count, as a profile slows down its steps. Where XProf is not installed or the
profile cannot be read, the record says why; the raw profile always stays in the trial's folder.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from ..plan import WARMUP_STEPS
from ..presets import Preset
from ..profile import reports
from ..profile.reports import ProfileError, ProfileReport
from ..runs import Run
from ..runs.events import EVENTS_FILE, InputStages
from ..runs.reading import read_events
from ..trials.bench import Bench, with_changes
from ..trials.comparing import Comparing
from ..trials.record import Ablation, Comparison, Record, medians
from ..trials.trial import Trial
from .request import ONE_BATCH, SINGLE_STEPS

FIRST_PROFILED, LAST_PROFILED = 30, 49  # steps, after the warm-up
MARGIN = 2.0  # steps that are slower than in the trial before must not end the profile early


def ablate(bench: Bench, preset: Preset, repeats: int, record: Record, report: Callable[[str], None]) -> Trial:
    """Fill in the record's ablation; returns the real trial of median speed."""
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
    """The share of a real step that its input costs; 0 where the training without input was slower, which is noise."""
    return None if gain is None else max(0.0, 1 - 1 / (1 + gain))


def middle(trials: Sequence[Trial]) -> Trial:
    """The trial of median speed, which stands for all."""
    speed = statistics.median_low([trial.samples_per_second or 0.0 for trial in trials])
    return next(trial for trial in trials if (trial.samples_per_second or 0.0) == speed)


def stages(run: Run) -> list[Mapping[str, Any]]:
    """The input's stages from source to end, by the last event about them."""
    last = read_events(run.path, [EVENTS_FILE]).last(InputStages)
    return list(last.stages) if last else []


def profile(bench: Bench, preset: Preset, real: Trial, record: Record, report: Callable[[str], None]) -> float | None:
    """Fill in the record's profile; the share of the step spent on exchange between devices, where known."""
    report(f"profiling steps {FIRST_PROFILED} to {LAST_PROFILED}")
    seconds = max(bench.measure_seconds, MARGIN * (LAST_PROFILED - WARMUP_STEPS) * (real.step_ms or 0.0) / 1000)
    alone, steps = with_changes(preset, SINGLE_STEPS), f"{FIRST_PROFILED}-{LAST_PROFILED}"
    trial = record.profile_trial = bench.measure(alone, "p", 1, seconds=seconds, profile=steps)
    report("reading the profile")
    try:
        found = _read_profile(bench, trial)
    except ProfileError as fault:
        record.profile_missing = " ".join(str(fault).split())
        return None
    record.profile = asdict(found)
    return found.shares.communication


def _read_profile(bench: Bench, trial: Trial) -> ProfileReport:
    if not trial.good:
        raise ProfileError(f"the profiled trial failed: {trial.outcome}: {trial.error}")
    return reports.read(bench.run_of(trial))
