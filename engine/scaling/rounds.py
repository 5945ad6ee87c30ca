"""Rounds of one trial for each number of replicas or copies, up and down in turn, so that drift hits all alike. A
number that runs out of memory or ends with an error is not repeated, another failure once. If one alone fails, the
proof ends.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable

from ..proof import duration
from ..proof.request import Request
from ..runs.event_reading import read_events
from ..runs.events import EVENTS_FILE, Started
from ..trials import proof_sentences, scaling_sentences
from ..trials.comparing import CHANCES, FINAL, BaselineFailed, Stopped
from ..trials.record import Point, Record, Scaling, ScalingSettings, Trial, medians
from ..trials.scaling_sentences import efficiency
from ..trials.trial_preset import with_changes
from ..trials.trial_runner import Measures
from . import copies


class Rounds:
    """Carries out a measurement of scaling on `bench`, whose record it updates; `earlier` are trials to resume with."""

    def __init__(self, request: Request, record: Record, bench: Measures, earlier: Iterable[Trial] = ()) -> None:
        self.request, self.record, self.bench = request, record, bench
        self._known = {trial.key: trial for trial in earlier if trial.key and trial.outcome != "crashed"}
        self._guessed_seconds = duration.of_request(request)
        self._preset = request.baseline()
        asked = request.scaling or ScalingSettings(settings=())
        points = [Point(replicas=setting.replicas, copies=setting.copies, changes=dict(setting.changes))
                  for setting in asked.settings]  # fmt: skip
        self.scaling = record.scaling = Scaling(keep=asked.keep, shared=asked.shared, points=points)

    def measure(self) -> None:
        self.record.write(f"measuring {self._what(self.scaling.points[0])}")
        try:
            for number in range(1, self.request.repeats + 1):
                if not self._time_left(number):
                    minutes = (self.request.limit_seconds or 0) / 60
                    self.record.ended_because = (
                        f"{proof_sentences.OUT_OF_TIME} of {minutes:g} min allows no further round"
                    )
                    break
                self._round(number)
                self.scaling.rounds = number
        finally:
            for point in self._going:
                point.decision = "measured" if point.efficiency is not None else "failed"
                point.why = point.why or ("" if point.efficiency is not None else "the measurement ended before it")
            if kept := copies.changes_for_queue(self.record, self._preset.options):
                self.record.changes_kept = kept
                self.record.preset_after = with_changes(self._preset, kept).to_yaml()

    @property
    def _going(self) -> list[Point]:
        return [point for point in self.scaling.points if point.decision == "running"]

    def _time_left(self, number: int) -> bool:
        # trials from before the proof was resumed take no time
        missing = sum(_key(point, number, 1) not in self._known for point in self._going)
        needed = duration.remaining_seconds(self.record, missing, self._guessed_seconds)
        limit = self.request.limit_seconds
        return limit is None or self.record.elapsed + needed <= limit

    def _round(self, number: int) -> None:
        for point in self._going if number % 2 else reversed(self._going):
            self._measured(point, number)
            self._work_out()
            self.record.write()

    def _measured(self, point: Point, number: int) -> None:
        """If no trial is successful, the point has failed. Raises Stopped, and BaselineFailed for one replica."""
        for attempt in range(1, CHANCES + 1):
            trial = self._trial(point, number, attempt)
            point.trials.append(trial)
            self._report("")
            if trial.good:
                self._note(point, trial)
                return
            if self.bench.stop.count:
                trial.key = ""  # a resumed measurement measures it again
                raise Stopped
            if trial.outcome in FINAL:
                break
        point.decision, point.why = "failed", proof_sentences.outcome(trial)
        if point is self.scaling.points[0]:
            what = self._what(point)
            raise BaselineFailed(f"{what} could not be measured, with which all are compared: {point.why}")

    def _trial(self, point: Point, number: int, attempt: int) -> Trial:
        """`attempt` is 1, or 2 for the repetition. Raises Stopped."""
        key = _key(point, number, attempt)
        if key in self._known:
            return self._known[key]
        if self.bench.stop.count:
            raise Stopped
        self._report(f"round {number} of {self.request.repeats}: {self._what(point)}")
        preset = with_changes(self._preset, point.changes)
        if self.scaling.is_of_copies:
            trial = copies.measure(self.bench, preset, point.copies, number, self.request.measure_seconds)
        else:
            trial = self.bench.measure(preset, str(point.replicas), number)
        trial.key = key
        return trial

    def _what(self, point: Point) -> str:
        return scaling_sentences.what(point, self.scaling.is_of_copies)

    def _note(self, point: Point, trial: Trial) -> None:
        started = read_events(self.bench.run_of(trial).path, [EVENTS_FILE]).last(Started)
        if started is None:
            return
        self.record.versions = self.record.versions or dict(started.versions)
        point.global_batch_size = started.global_batch_size
        compiled = started.actual.get("jit_compile")
        point.xla = compiled if isinstance(compiled, bool) else None

    def _work_out(self) -> None:
        first, record = self.scaling.points[0], self.record
        for point in self.scaling.points:
            work_out(point, first)
        record.before = medians([trial for trial in first.trials if trial.good])
        measured = [point for point in self.scaling.points[1:] if point.speedup is not None]
        if measured:
            record.after = medians([trial for trial in measured[-1].trials if trial.good])
            record.gain_total = measured[-1].speedup

    def _report(self, doing: str) -> None:
        left = max(0, len(self._going) * self.request.repeats - sum(len(point.trials) for point in self._going))
        seconds = duration.remaining_seconds(self.record, left, self._guessed_seconds)
        self.record.budget_seconds = self.record.elapsed + seconds
        self.record.write(doing or None)


def work_out(point: Point, first: Point) -> None:
    """Store in `point` its medians, speed-up, efficiency and spread against `first` in the same round."""
    good = [trial for trial in point.trials if trial.good]
    figures = medians(good)
    point.samples_per_second, point.step_ms, point.input_wait = (
        figures[name] for name in ("samples_per_second", "step_ms", "input_wait")
    )
    if not (ratios := point.ratios(first)):
        return
    point.speedup = statistics.median(ratios)
    efficiencies = [efficiency(ratio, point.number) for ratio in ratios]
    point.efficiency = statistics.median(efficiencies)
    point.spread = None if point is first or len(efficiencies) < 2 else statistics.stdev(efficiencies)


def _key(point: Point, number: int, attempt: int) -> str:
    return f"{point.number} {number} {attempt}"
