"""Estimates how long a proof takes, before it starts and again after every trial."""

from __future__ import annotations

import statistics

from .. import diagnosis, plan, runs
from ..runs import Run, cluster
from ..trials.record import Record
from .request import Request

# Besides the start-up and the measured time: the engine's start, the warm-up, the end of TensorFlow. On two CPU
# cores this was measured as 1 to 2 s.
BESIDE_SECONDS = 1.5
# For the first run on a machine; later ones have recorded how long they took to start.
STARTUP_SECONDS = 8.0
LATEST = 5
LIKELY_REMEDIES = 5  # of a preset that has not been diagnosed: most have fewer


def trial_seconds(measure_seconds: float, step_seconds: float = 0.0) -> float:
    """The time of one trial, from the start-up of the latest runs on this machine, and from its steps if known.

    Workers of several machines have waited for each other at their start, so that theirs tells nothing.
    """
    startups = [
        run.result["startup_seconds"]
        for run in runs.all_runs()[:LATEST]
        if run.result and run.result.get("startup_seconds") and cluster.of_run(run) is None
    ]
    started = statistics.median(startups) if startups else STARTUP_SECONDS
    measured = plan.expected_seconds(measure_seconds, step_seconds)
    return started + BESIDE_SECONDS + plan.WARMUP_STEPS * step_seconds + measured


def of_request(request: Request) -> float:
    """The time of one trial of a request, from the steps of the run that it is about, if there is one."""
    step_ms = 0.0
    if request.run is not None:
        result = Run(runs.runs_folder() / request.run).result or {}
        step_ms = (result.get("step_ms") or {}).get("p50") or 0.0
    return trial_seconds(request.measure_seconds, step_ms / 1000)


def sure_trials(request: Request) -> int:
    """How many trials are measured in any case; in a loop this includes those of its first remedy."""
    if request.scaling is not None:
        return len(request.scaling.settings) * request.repeats
    of_change = 0 if request.kind == "diagnosis" else 2 * request.repeats
    return 2 * request.ablation_repeats + of_change + request.profile


def most_trials(request: Request) -> int:
    """How many trials there may be, with all remedies; of a preset these are known only after its first trials."""
    if request.kind != "loop":
        return sure_trials(request)
    count = LIKELY_REMEDIES
    if request.run is not None:
        remedies = diagnosis.of_run(Run(runs.runs_folder() / request.run)).remedies
        count = max(1, sum(bool(remedy["changes"]) for remedy in remedies))
    return sure_trials(request) + 2 * request.repeats * (count - 1)


def remaining_seconds(record: Record, trials_left: int, before_any: float) -> float:
    """The remaining time, by the mean of this proof's trials; before the first, by the estimate made at the start."""
    seconds = [trial.seconds for trial in record.trials if trial.good and trial.side != "p"]  # a profile takes longer
    return trials_left * (statistics.fmean(seconds) if seconds else before_any)
