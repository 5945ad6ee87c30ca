"""Rounds of one trial for each number of replicas or copies, up and down in turn, so that drift hits all alike. A
number that runs out of memory or ends with an error is not repeated, another failure once. If one alone fails, the
proof ends.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

from .. import checks, plan
from ..checks.gpu_checks import on_cpu, share_a_gpu
from ..job import this_machine
from ..job.machine_gpus import Machine, TooSmall, part_of_each, visible_gpus, why_not_shared
from ..leases.gpu_use import step_settings
from ..options import Options
from ..presets import Preset
from ..process import launch
from ..proof import duration, folder, request
from ..proof.measurement import Measurement, retried
from ..proof.request import ProofError, Request
from ..runs import Run
from ..runs.event_reading import events_of
from ..runs.events import Progress
from ..runs.launched_with import trained_with
from ..trials import KEEPS, proof_sentences
from ..trials.comparing import BaselineFailed, value_at
from ..trials.record import Point, Record, Scaling, ScalingSettings, Setting, Trial, medians
from ..trials.trial_preset import with_changes
from ..trials.trial_runner import TrialRunner
from ..units import counted, seconds


def measure(measurement: Measurement) -> None:
    """Carry out a measurement of scaling. Raises Stopped, and BaselineFailed for one replica."""
    request, record, preset = measurement.request, measurement.record, measurement.preset
    settings = request.scaling or ScalingSettings(settings=())
    points = [Point(replicas=each.replicas, copies=each.copies, changes=dict(each.changes))
              for each in settings.settings]  # fmt: skip
    scaling = record.scaling = Scaling(keep=settings.keep, shared=settings.shared, points=points)
    first, of_copies = points[0], scaling.is_of_copies

    def report(doing: str = "") -> None:
        left = sum(request.repeats - sum(row.good for row in at.trials) for at in points if at.decision == "running")
        record.budget_seconds = record.elapsed + measurement.expected_seconds(max(0, left))
        record.write(doing or None)

    def carried_out(point: Point, number: int) -> Trial:
        report(f"round {number} of {request.repeats}: {counted(point.number, scaling.unit)}")
        changed = with_changes(preset, point.changes)
        if of_copies:
            row = _copies(measurement.bench, changed, point.copies, number, request.measure_seconds)
        else:
            row = measurement.bench.measure(changed, str(point.replicas), number)
        if row.outcome == "stopped":
            point.trials.append(row)
        return row

    def attempt(point: Point, number: int, count: int) -> Trial:
        row = measurement.once(_key(point, number, count), lambda: carried_out(point, number))
        point.trials.append(row)
        report()
        return row

    record.write(f"measuring {counted(first.number, scaling.unit)}")
    try:
        for number in range(1, request.repeats + 1):
            going = [point for point in points if point.decision == "running"]
            if not measurement.has_time_for(sum(_key(point, number, 1) not in measurement.known for point in going)):
                record.ended_because = measurement.out_of_time("allows no further round")
                break
            for point in going if number % 2 else reversed(going):
                row = retried(partial(attempt, point, number))
                if row.good:
                    started = measurement.started(row)
                    point.global_batch_size = started.global_batch_size
                    compiled = started.actual.get("jit_compile")
                    point.xla = compiled if isinstance(compiled, bool) else None
                else:
                    point.decision, point.why = "failed", proof_sentences.outcome(row)
                    if point is first:
                        what = counted(point.number, scaling.unit)
                        raise BaselineFailed(f"{what} could not be measured, with which all are compared: {point.why}")
                for each in points:
                    work_out(each, first)
                record.before = medians([row for row in first.trials if row.good])
                compared = [each for each in points[1:] if each.speedup is not None and each.decision != "failed"]
                if compared:
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
        if kept := changes_for_queue(record, preset.options):
            record.changes_kept = kept
            record.preset_after = with_changes(preset, kept).to_yaml()


def _key(point: Point, number: int, attempt: int) -> str:
    return f"{point.number} {number} {attempt}"


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


# ---- copies ---------------------------------------------------------------------------------------
# All are measured in the same seconds, from the moment at which the last has warmed up to the end of the first. Each
# trains on until that is long enough.


APART_SECONDS = 120.0  # by which the starts of two copies may differ
OF_QUEUE = ("device.memory_limit_mb", "device.intra_op_threads", "device.inter_op_threads")
LEAST_COMMON = 0.5  # share of the measured seconds in which all copies must have trained


def changes_for_queue(record: Record, options: Options) -> dict[str, Any]:
    """Return the changes with which the queue puts as many runs on one GPU as pay most; empty for none."""
    best = proof_sentences.best_copies(record)
    if best is None or record.scaling is None or record.scaling.shared or not record.scaling.is_of_copies:
        return {}
    choice = options.device.choice
    free = choice is not None and not choice.shared
    return {"run.per_gpu": best.number} | ({} if free else {"device.visible": "free:1"})


def measured(run: Run, per_gpu: int, gpus: Sequence[str | None]) -> str:
    """Return whether `per_gpu` runs of these settings on one such GPU were measured to pay, in words."""
    settings = _compared(trained_with(run))
    for proof in folder.proofs():
        if proof.request.kind != "scaling":
            continue
        record = proof.record
        on_these = record.scaling is not None and not record.scaling.shared and record.machine.get("gpus") == [*gpus]
        if record.state != "done" or not on_these or not (record.scaling and record.scaling.is_of_copies):
            continue
        before = launch.settle(proof.request.baseline(), Path(proof.request.folder)).options
        if settings != _compared(before.values()):
            continue
        best = proof_sentences.best_copies(record)
        if best is None:
            return f"{proof.id} has measured that sharing does not pay"
        return f"{proof.id} has measured {'it' if best.number == per_gpu else f'that {best.number} pay most'}"
    return f"not measured: gputui scaling --copies {','.join(map(str, sorted({1, 2, per_gpu})))}"


def _compared(options: Mapping[str, Any]) -> dict[str, object]:
    # an option that is not given is left out, as in the file of a run
    settings = step_settings(options)
    return {key: value for key, value in settings.items() if key not in OF_QUEUE and value is not None}


def _copies(bench: TrialRunner, preset: Preset, count: int, number: int, measure_seconds: float) -> Trial:
    """Train copies of `preset` at once, and return one row: the samples per second of all while all trained, and the
    mean of their steps and waits; or that of a failed copy. Other programs on the device are not reported.
    """
    began: dict[int, float] = {}  # when each copy reported its first speed
    is_over = threading.Event()  # all have trained together for `measure_seconds`, or one has ended

    def of_copy(copy: int) -> Trial:
        def ends(_speeds: Sequence[float]) -> bool:
            now = time.monotonic()
            began.setdefault(copy, now)
            if len(began) == count and now - max(began.values()) >= measure_seconds:
                is_over.set()
            return is_over.is_set()

        try:
            row = bench.measure(preset, f"c{count}", number, seconds=measure_seconds + APART_SECONDS, judge=ends)
        finally:
            is_over.set()
        if row.outcome == "slower":  # the judge has ended it, which only says that the common seconds are over
            row.outcome, row.error = "ok", None
        return row

    if count == 1:
        rows = [bench.measure(preset, "c1", number, seconds=measure_seconds)]
    else:
        with ThreadPoolExecutor(count) as pool:
            rows = sorted(pool.map(of_copy, range(count)), key=lambda row: row.run)
    row = next((row for row in rows if not row.good), rows[0])
    if not row.good:
        return row
    begin, end, speed, steps = together([bench.run_of(each) for each in rows])
    row.seconds = max(each.seconds for each in rows)
    row.disturbed = "" if count > 1 else row.disturbed
    if end - begin < LEAST_COMMON * measure_seconds:
        row.outcome = "error"
        row.error = (
            f"all copies trained at the same time for only {seconds(max(0.0, end - begin))} of "
            f"{seconds(measure_seconds)}: their starts were too far apart, or one of them ended early"
        )
        return row
    row.samples_per_second = speed
    row.step_ms = 1000 * count / steps if steps else None
    waits = [each.input_wait for each in rows if each.input_wait is not None]
    row.input_wait = sum(waits) / len(waits) if waits else None
    return row


def together(runs: Sequence[Run]) -> tuple[float, float, float, float]:
    """Return begin and end (Unix time) of the seconds in which all runs trained after their warm-up, and the samples
    and steps per second of all in these. Speeds are 0, and the end not after the begin, if there are none.
    """
    written = (events_of(run.path, Progress) for run in runs)
    of_runs = [[report for report in reports if report.samples_per_second] for reports in written]
    if not all(len(reports) > 1 for reports in of_runs):
        return 0.0, 0.0, 0.0, 0.0
    begin, end = max(reports[0].t for reports in of_runs), min(reports[-1].t for reports in of_runs)
    if end <= begin:
        return begin, end, 0.0, 0.0
    samples, steps = (
        sum((value_at(curve, end) or 0.0) - (value_at(curve, begin) or 0.0) for curve in curves) / (end - begin)
        for curves in (
            [[(report.t, float(report.samples or 0)) for report in reports] for reports in of_runs],
            [[(report.t, float(report.step)) for report in reports] for reports in of_runs],
        )
    )
    return begin, end, samples, steps


# ---- the request ----------------------------------------------------------------------------------


REHEARSE = "device.logical_devices=2"


def requested(
    preset: Preset,
    replicas: Sequence[int],
    keep: str,
    minutes: float | None = None,
    copies: Sequence[int] = (),
    **more: Any,
) -> Request:
    """Return the request; without `replicas` for 1, 2, 4 ... and all devices. Raises PresetError, ProofError."""
    here = this_machine.read()
    asked = copies_settings(preset, here, copies) if copies else scaling_settings(preset, here, replicas, keep)
    limit = None if minutes is None else 60 * minutes
    made = request.of_opened("scaling", preset, scaling=asked, limit_seconds=limit, **more)
    count = duration.sure_trials(made)
    if minutes is not None and minutes < (needed := count * duration.of_request(made) / 60):
        raise ProofError(
            f"{minutes:g} min are too few: {made.repeats} rounds, {count} trials in all, take about {needed:.1f} min "
            f"here; give {counted(int(needed) + 1, 'minutes')} or more, or fewer numbers"
        )
    return made


def scaling_settings(preset: Preset, here: Machine, replicas: Sequence[int], keep: str) -> ScalingSettings:
    """Return the settings for 1 and each of `replicas` (empty: 1, 2, 4 ... and all). Raises ProofError."""
    options = preset.options
    if options.strategy.kind not in ("single", "one_device", "mirrored"):
        raise ProofError(
            f"gputui scaling measures the devices of one machine, and the preset has strategy.kind="
            f"{options.strategy.kind}; set strategy.kind=mirrored"
        )
    every = range(plan.devices(options, len(visible_gpus(options, here))))
    # positions in the list of visible devices
    pool = list(every if options.strategy.devices == "all" else options.strategy.devices)
    are_known = bool(visible_gpus(options, here)) or on_cpu(options, here)
    if are_known and len(pool) < 2 and (gpus := visible_gpus(options, here)):
        raise ProofError(
            f"only GPU {gpus[0].index} takes part, and scaling needs several devices: set {REHEARSE} and "
            "device.visible=none to rehearse on parts of the CPU"
        )
    if are_known and len(pool) < 2:
        why = here.no_gpu_reason or "no GPU is used"
        raise ProofError(
            f"there are no two devices to train on ({why}): set {REHEARSE} to rehearse on parts of the CPU"
        )
    usual = [*(2**power for power in range(len(pool).bit_length()) if 2**power < len(pool)), len(pool)]
    counts = sorted({1, *(replicas or usual)})
    if are_known and counts[-1] > len(pool):
        raise ProofError(
            f"{counts[-1]} replicas need {counts[-1]} devices, and there are {len(pool)}: name fewer with --replicas, "
            "or give more with device.visible, strategy.devices or device.logical_devices"
        )
    if counts == [1]:
        raise ProofError("one replica alone shows no scaling: name more, such as --replicas 1,2")
    pool = pool if are_known else list(range(counts[-1]))
    whole = plan.global_batch(options, checks.replicas(options, here))
    # on a GPU, compile.xla=auto would compile the step of one replica, but not that of several
    same = {"compile.xla": False} if options.compile.xla == "auto" and not on_cpu(options, here) else {}
    settings = []
    for count in counts:
        changes: dict[str, Any] = {"strategy.kind": "mirrored", "strategy.devices": pool[:count]}
        if count == 1:
            alone = {"strategy.kind": "single", "strategy.devices": "all"}
            changes = alone if pool[0] == 0 else {"strategy.kind": "one_device", "strategy.devices": [pool[0]]}
            changes["strategy.communication"] = "auto"
        changes |= same
        if keep == KEEPS[1]:
            if whole % count:
                raise ProofError(
                    f"a global batch of {whole:,} cannot be shared out among {count} replicas: set input.batch_size to "
                    f"a multiple of {count}, or keep the batch of each replica (--keep per-replica)"
                )
            changes["input.batch_size"] = whole // count
        settings.append(Setting(replicas=count, changes=changes))
    most = with_changes(preset, settings[-1].changes).options
    shared = "replicas share a GPU" if share_a_gpu(most, here) else ""
    if on_cpu(most, here):
        shared = "the logical devices share the cores of one CPU"
    return ScalingSettings(settings=settings, keep=keep, shared=shared)


def copies_settings(preset: Preset, here: Machine, counts: Sequence[int]) -> ScalingSettings:
    """Return the settings for one copy and each of `counts`, each with its part of the device. Raises ProofError."""
    options = preset.options
    if conflict := why_not_shared(options, on_cpu(options, here)):
        raise ProofError(f"{conflict.what}; set {conflict.remedy}")
    counts = sorted({1, *(counts or (2, 3))})
    if counts == [1]:
        raise ProofError("one copy alone has nothing to compare with: name more, such as --copies 1,2")
    settings = []
    for count in counts:  # each with threads and, on a GPU, memory
        try:
            parts = part_of_each(options, here, count)
        except TooSmall as fault:
            raise ProofError(f"{fault}: name fewer copies") from None
        changes = {f"device.{name}": value for name, value in parts.items()}
        settings.append(Setting(replicas=1, copies=count, changes=changes))
    shared = "the copies share the cores of one CPU" if on_cpu(options, here) else ""
    return ScalingSettings(settings=settings, shared=shared)
