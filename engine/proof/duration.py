"""Estimates how long a proof takes, before it starts and again after every trial."""

from __future__ import annotations

import statistics

from .. import diagnosis, plan, runs
from ..runs import Run, run_cluster
from ..trials.record import Record
from .request import Request

# The time of a trial without start-up and measured time: the engine's start, the warm-up, the end of TensorFlow. On
# two CPU cores this was 1 to 2 s.
BESIDE_SECONDS = 1.5
# The start-up of the first run on a machine; later runs have recorded their start-up times.
STARTUP_SECONDS = 8.0
LATEST = 5
LIKELY_REMEDIES = 5  # of a preset without a diagnosis; most presets have fewer


def trial_seconds(measure_seconds: float, step_seconds: float = 0.0) -> float:
    """Return the expected time of one trial in seconds, from the start-up times of the latest runs on this machine.

    `measure_seconds` is its measured time. If `step_seconds`, the time of one step, is above 0, the time of the warm-up
    steps is added. Runs whose workers are on several machines do not count, as their workers have waited for each other
    at the start. Without other runs STARTUP_SECONDS is used.
    """
    startups = [
        run.result["startup_seconds"]
        for run in runs.all_runs()[:LATEST]
        if run.result and run.result.get("startup_seconds") and run_cluster.of_run(run) is None
    ]
    started = statistics.median(startups) if startups else STARTUP_SECONDS
    measured = plan.expected_seconds(measure_seconds, step_seconds)
    return started + BESIDE_SECONDS + plan.WARMUP_STEPS * step_seconds + measured


def of_request(request: Request) -> float:
    """Return the expected time of one trial of `request` in seconds.

    If the request is about a run, the step time of that run is included.
    """
    step_ms = 0.0
    if request.run is not None:
        result = Run(runs.runs_folder() / request.run).result or {}
        step_ms = (result.get("step_ms") or {}).get("p50") or 0.0
    return trial_seconds(request.measure_seconds, step_ms / 1000)


def sure_trials(request: Request) -> int:
    """Return the number of trials that a proof measures in any case.

    In a loop this includes the trials of the first remedy.
    """
    if request.rate is not None:
        return 1 + 2 * request.repeats
    if request.scaling is not None:
        return len(request.scaling.settings) * request.repeats
    of_change = 0 if request.kind == "diagnosis" else 2 * request.repeats
    return 2 * request.ablation_repeats + of_change + request.profile


def most_trials(request: Request) -> int:
    """Return the largest number of trials that a proof can have: in a loop, if every remedy is tried.

    The number of remedies is known if the request is about a run. For a preset it is assumed to be LIKELY_REMEDIES.
    """
    if request.kind != "loop":
        return sure_trials(request)
    count = LIKELY_REMEDIES
    if request.run is not None:
        remedies = diagnosis.of_run(Run(runs.runs_folder() / request.run)).remedies
        count = max(1, sum(bool(remedy["changes"]) for remedy in remedies))
    return sure_trials(request) + 2 * request.repeats * (count - 1)


def remaining_seconds(record: Record, trials_left: int, before_any: float) -> float:
    """Return the expected time in seconds of `trials_left` further trials.

    It uses the mean time of the successful trials of this proof, without a profiled trial. If there is none yet, it
    uses `before_any`, the expected time of one trial in seconds.
    """
    seconds = [trial.seconds for trial in record.trials if trial.good and trial.side != "p"]  # a profile takes longer
    return trials_left * (statistics.fmean(seconds) if seconds else before_any)
