"""How long a proof will take: said before it starts, and mended with every trial that has ended."""

from __future__ import annotations

import statistics

from .. import runs
from .record import Record
from .request import Request

# Beside the start-up and what is measured: the engine's own start, the warm-up, the end of TensorFlow. On two CPU
# cores, where this was taken, 1 to 2 s.
BESIDE_SECONDS = 1.5
# For the first run on a machine; later ones have told how long they took to start.
STARTUP_SECONDS = 8.0
LATEST = 5


def trial_seconds(measure_seconds: float) -> float:
    """One trial, judged by how long the latest runs on this machine took to start."""
    known = [run.result["startup_seconds"] for run in runs.all_runs()[:LATEST]
             if run.result and run.result.get("startup_seconds")]
    return (statistics.median(known) if known else STARTUP_SECONDS) + BESIDE_SECONDS + measure_seconds


def sure_trials(request: Request) -> int:
    """The trials that are measured in any case; of a loop, those of its first remedy are among them."""
    of_change = 0 if request.kind == "diagnosis" else 2 * request.repeats
    return 2 * request.ablation_repeats + of_change + request.profile


def remaining_seconds(record: Record, trials_left: int) -> float:
    """By the mean of this proof's own trials, where there are some."""
    seconds = [trial.seconds for trial in record.trials if trial.good]
    return trials_left * (statistics.fmean(seconds) if seconds else trial_seconds(record.measure_seconds))
