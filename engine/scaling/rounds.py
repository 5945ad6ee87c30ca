"""Rounds of one trial for each number of replicas or copies, up and down in turn, so that drift hits all alike. A
number that runs out of memory or ends with an error is not repeated, another failure once. If one alone fails, the
proof ends.
"""

from __future__ import annotations

import statistics

from ..proof.measurement import Measurement, retried
from ..trials import proof_sentences
from ..trials.comparing import BaselineFailed
from ..trials.record import Point, Scaling, ScalingSettings, Trial, medians
from ..trials.trial_preset import with_changes
from ..units import counted
from . import copies


def measure(measurement: Measurement) -> None:
    """Carry out a measurement of scaling. Raises Stopped, and BaselineFailed for one replica."""
    request, record, preset = measurement.request, measurement.record, measurement.preset
    settings = request.scaling or ScalingSettings(settings=())
    points = [Point(replicas=each.replicas, copies=each.copies, changes=dict(each.changes))
              for each in settings.settings]  # fmt: skip
    scaling = record.scaling = Scaling(keep=settings.keep, shared=settings.shared, points=points)
    first, of_copies = points[0], scaling.is_of_copies

    def report(doing: str = "") -> None:
        left = sum(request.repeats - len(point.trials) for point in points if point.decision == "running")
        record.budget_seconds = record.elapsed + measurement.expected_seconds(max(0, left))
        record.write(doing or None)

    def carried_out(point: Point, number: int) -> Trial:
        report(f"round {number} of {request.repeats}: {counted(point.number, scaling.unit)}")
        changed = with_changes(preset, point.changes)
        if of_copies:
            row = copies.measure(measurement.bench, changed, point.copies, number, request.measure_seconds)
        else:
            row = measurement.bench.measure(changed, str(point.replicas), number)
        if row.outcome == "stopped":
            point.trials.append(row)
        return row

    def measured(point: Point, number: int) -> Trial:
        def attempt(count: int) -> Trial:
            row = measurement.once(_key(point, number, count), lambda: carried_out(point, number))
            point.trials.append(row)
            report()
            return row

        return retried(attempt)

    record.write(f"measuring {counted(first.number, scaling.unit)}")
    try:
        for number in range(1, request.repeats + 1):
            going = [point for point in points if point.decision == "running"]
            if not measurement.has_time_for(sum(_key(point, number, 1) not in measurement.known for point in going)):
                record.ended_because = measurement.out_of_time("allows no further round")
                break
            for point in going if number % 2 else reversed(going):
                row = measured(point, number)
                if row.good:
                    _note(measurement, point, row)
                else:
                    point.decision, point.why = "failed", proof_sentences.outcome(row)
                    if point is first:
                        what = counted(point.number, scaling.unit)
                        raise BaselineFailed(f"{what} could not be measured, with which all are compared: {point.why}")
                for each in points:
                    work_out(each, first)
                record.before = medians([row for row in first.trials if row.good])
                if compared := [each for each in points[1:] if each.speedup is not None]:
                    record.after = medians([row for row in compared[-1].trials if row.good])
                    record.gain_total = compared[-1].speedup
                record.write()
            scaling.rounds = number
    finally:
        for point in points:
            if point.decision == "running":
                is_measured = point.efficiency is not None
                point.decision = "measured" if is_measured else "failed"
                point.why = point.why or ("" if is_measured else "the measurement ended before it")
        if kept := copies.changes_for_queue(record, preset.options):
            record.changes_kept = kept
            record.preset_after = with_changes(preset, kept).to_yaml()


def _key(point: Point, number: int, attempt: int) -> str:
    return f"{point.number} {number} {attempt}"


def _note(measurement: Measurement, point: Point, trial: Trial) -> None:
    started = measurement.started(trial)
    point.global_batch_size = started.global_batch_size
    compiled = started.actual.get("jit_compile")
    point.xla = compiled if isinstance(compiled, bool) else None


def work_out(point: Point, first: Point) -> None:
    """Store in `point` its medians, speed-up, efficiency and spread against `first` in the same round."""
    figures = medians([trial for trial in point.trials if trial.good])
    point.samples_per_second, point.step_ms, point.input_wait = (
        figures[name] for name in ("samples_per_second", "step_ms", "input_wait")
    )
    if not (ratios := point.ratios(first)):
        return
    point.speedup = statistics.median(ratios)
    efficiencies = [ratio / point.number for ratio in ratios]
    point.efficiency = statistics.median(efficiencies)
    point.spread = None if point is first or len(efficiencies) < 2 else statistics.stdev(efficiencies)
