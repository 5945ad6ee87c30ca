"""Estimates how long a proof takes, before it starts and again after every trial."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice, pairwise

from .. import diagnosis, plan, runs
from ..runs import Run, run_cluster
from ..runs.event_reading import HEAD_BYTES, events_of
from ..runs.events import Phase
from ..runs.titles import preset_of
from ..system.identity import Place
from ..trials import SCREENING_SECONDS
from ..trials.kinds import kind
from ..trials.record import Record, place, search_of
from .folder import proofs
from .request import Request

# The time of a trial without start-up and measured time: the engine's start, the warm-up, the end of TensorFlow. On
# two CPU cores this was 1 to 2 s.
BESIDE_SECONDS = 1.5
# The start-up of the first run on a machine and the import of TensorFlow, which only the first trial of a measurement
# does, as the others are forked from its process; later runs have recorded both.
STARTUP_SECONDS, IMPORT_SECONDS = 3.0, 5.0
LATEST = 5
OF_FIRST = 0.5  # share of the time of the first trial, which imports TensorFlow, that other trials take at least
NEWEST_PROOFS, NEWEST_RUNS = 10, 50  # that are searched for those of the preset
LIKELY_REMEDIES = 5  # of a preset without a diagnosis; most presets have fewer


@dataclass(frozen=True)
class TrialTimes:
    """Seconds of a trial without its steps (`start`), of a step, and of the first import of TensorFlow."""

    start: float
    step: float
    source: str
    first: float = 0.0

    def seconds(self, measure_seconds: float) -> float:
        """Return the expected time in seconds of a trial with `measure_seconds` of measured time."""
        return self.start + plan.WARMUP_STEPS * self.step + plan.expected_seconds(measure_seconds, self.step)


def trial_times(preset_name: str) -> TrialTimes:
    """Return the times of the preset's trials here: medians of its newest measurement or a run's, or else assumed."""
    for proof in proofs()[:NEWEST_PROOFS]:
        record = proof.record
        if record.preset_name != preset_name or record.host not in (None, Place.here().host):
            continue
        screened = [trial for candidate in search_of(record).candidates for trial in candidate.trials]
        compared = [trial for comparison in record.comparisons for trial in comparison.trials]
        of_rounds = record.scaling.trials if record.scaling else []
        timed = [(trial, SCREENING_SECONDS) for trial in screened]
        timed += [(trial, record.measure_seconds) for trial in (*record.baseline_trials, *compared, *of_rounds)]
        good = {
            trial.run: (trial, measured)
            for trial, measured in reversed(timed)
            if trial.good and trial.step_ms and ":" not in trial.key
        }  # not trained for the loss
        if good:
            steps = [(trial.step_ms or 0.0) / 1000 for trial, _ in good.values()]
            starts = [
                trial.seconds - TrialTimes(0.0, step, "").seconds(measured)
                for (trial, measured), step in zip(good.values(), steps, strict=True)
            ]
            start = max(0.0, statistics.median(starts))
            of_first = dict(zip(good, starts, strict=True)).get(record.all_trials[0].run, start)
            return TrialTimes(start, statistics.median(steps), f"as in {proof.id}", max(0.0, of_first - start))
    for run, started, imported in _starts():
        if preset_of(run) == preset_name:
            source = f"by the start and the steps of {run.id}"
            return TrialTimes(started + BESIDE_SECONDS, _step_seconds(run), source, imported)
    return _assumed(preset_name)


def _step_seconds(run: Run) -> float:
    return (((run.result or {}).get("step_ms") or {}).get("p50") or 0.0) / 1000


def _assumed(preset_name: str) -> TrialTimes:
    starts = [(started, imported) for _, started, imported in islice(_starts(), LATEST)]
    by = " by the starts of other presets" if starts else ""
    started, imported = map(statistics.median, zip(*starts or [(STARTUP_SECONDS, IMPORT_SECONDS)], strict=True))
    source = f"assumed{by}: {preset_name} has not been trained here lately"
    return TrialTimes(started + BESIDE_SECONDS, 0.0, source, imported)


def _starts() -> Iterator[tuple[Run, float, float]]:
    """Yield runs with the seconds of their starts, and of these the import of TensorFlow at the first (0: unknown);
    not those on several machines, whose workers wait for each other at the start.
    """
    for run in runs.all_runs()[:NEWEST_RUNS]:
        started = (run.result or {}).get("startup_seconds")
        if started and run_cluster.of_run(run) is None:
            phases = pairwise(events_of(run.path, Phase, most=HEAD_BYTES))
            spans = (after.t - phase.t for phase, after in phases if phase.phase == "importing")
            imported = min(started, max(0.0, next(spans, 0.0)))
            yield run, started - imported, imported


def times_of(request: Request) -> TrialTimes:
    """Return the times of the trials of a request, for a run by its own start and steps."""
    if request.run is not None:
        step = _step_seconds(Run(runs.runs_folder() / request.run))
        return replace(_assumed(""), step=step, source=f"by the steps of {request.run}")
    return trial_times(request.preset_name)


def of_request(request: Request) -> float:
    return times_of(request).seconds(request.measure_seconds)


def sure_trials(request: Request) -> int:
    """Return the number of trials that a proof measures in any case, in a loop with those of the first remedy."""
    if request.rate is not None:
        return 1 + 2 * request.repeats
    if request.scaling is not None:
        return len(request.scaling.settings) * request.repeats
    return 2 * request.ablation_repeats + kind(request.kind).trials * request.repeats + request.profile


def most_trials(request: Request) -> int:
    """Return the largest number of trials of a proof: in a loop if every remedy (LIKELY_REMEDIES) is tried."""
    if request.kind != "loop":
        return sure_trials(request)
    count = LIKELY_REMEDIES
    if request.run is not None:
        remedies = diagnosis.of_run(Run(runs.runs_folder() / request.run)).remedies
        count = max(1, sum(bool(remedy["changes"]) for remedy in remedies))
    return sure_trials(request) + 2 * request.repeats * (count - 1)


def usual_seconds(seconds: Sequence[float], before_any: float) -> float:
    """Return the expected time of the next trial: the median without the first, which also imports TensorFlow."""
    if len(seconds) == 1:
        return min(seconds[0], max(before_any, OF_FIRST * seconds[0]))
    return statistics.median(seconds[1:]) if seconds else before_any


def remaining_seconds(record: Record, trials_left: int, before_any: float) -> float:
    """Return the expected seconds of `trials_left` further trials; `before_any` of each without earlier ones."""
    good = [trial for trial in record.trials if trial.good and trial.side != "p"]  # a profile takes longer
    seconds = [trial.seconds for trial in sorted(good, key=lambda trial: place(trial.run))]
    return trials_left * usual_seconds(seconds, before_any)
