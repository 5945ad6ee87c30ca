"""A trial whose steps TensorFlow profiles, so that XProf tells what a step consists of.

Its speed counts for nothing: a profile slows the steps it watches. Where XProf is not installed, or the profile cannot
be read, the record says why; the raw profile stays in the trial's folder either way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict

from ..presets import Preset
from ..profile import reports
from ..profile.reports import ProfileError, ProfileReport
from .estimate import WARMUP_STEPS
from .record import Record, Trial
from .request import SINGLE_STEPS
from .trial import Bench, with_changes

FIRST, LAST = 30, 49  # after the warm-up
STEPS = f"{FIRST}-{LAST}"
MARGIN = 2.0  # slower steps than in the trial before must not end the profile early


def measure(
    bench: Bench, preset: Preset, real: Trial, record: Record, tell: Callable[[str], None]
) -> float | None:
    """Fill the record's profile; the share of the step in the exchange between devices, where it is known."""
    tell(f"profiling steps {FIRST} to {LAST}")
    seconds = max(bench.measure_seconds, MARGIN * (LAST - WARMUP_STEPS) * (real.step_ms or 0.0) / 1000)
    alone = with_changes(preset, SINGLE_STEPS)
    trial = record.profile_trial = bench.measure(alone, "p", 1, seconds=seconds, profile=STEPS)
    tell("reading the profile")
    try:
        report = _read(bench, trial)
    except ProfileError as fault:
        record.profile_missing = " ".join(str(fault).split())
        return None
    record.profile = asdict(report)
    return report.shares.communication


def _read(bench: Bench, trial: Trial) -> ProfileReport:
    if not trial.good:
        raise ProfileError(f"its trial ended before: {trial.outcome}: {trial.error}")
    return reports.read(bench.run_of(trial))
