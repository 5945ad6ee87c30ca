"""Measures executions: their time, what it is spent on, and a profile of some of them."""

from __future__ import annotations

import time

from ... import plan
from ...options import Options
from ..measure import sampled_parts
from ..measure.profile import Profiler
from ..measure.run_report import RunReport
from ..measure.step_timer import StepTimer


class Timing:
    """Is notified of each execution before it begins, and of everything that happens between executions."""

    def __init__(self, options: Options, report: RunReport, on_gpu: bool) -> None:
        self._report, self._measure_seconds = report, options.run.measure_seconds
        self.parts = sampled_parts.of(options.train.deterministic, on_gpu)
        self.timer = StepTimer(report.speed, on_gpu, self.parts.totals)
        self.profiler = Profiler(report, options.run.profile_steps)

    def now(self) -> float:
        """When the next execution begins; the first measured one begins with an idle device."""
        if self.timer.on_gpu and not self._report.speed.warm:
            self.parts.wait_for_device()
        return time.perf_counter()

    def has_enough(self, now: float) -> bool:
        """Whether the time of run.measure_seconds has been measured."""
        clock, wanted = self._report.speed.clock, self._measure_seconds
        return wanted is not None and plan.enough(clock.measured_until(now), clock.measured_steps, wanted)

    def start_profile(self, number: int, count: int, now: float) -> float:
        """Start the profile where it is due with the steps from `number` on; returns when the execution begins."""
        if not self.profiler.begins(number, count):
            return now
        self.stand_still()
        self.profiler.start()
        return time.perf_counter()

    def begin(self, number: int, count: int, now: float, apart: bool) -> None:
        """The execution of the steps from `number` on begins; `apart`: its time does not count as a step."""
        if apart:
            self.stand_still()
        else:
            self.timer.mark(now, count)
        self.profiler.begin_step(number)
        if self.timer.may_measure:
            self.timer.measure(now)

    def end(self, step: int, epoch_ends: bool) -> None:
        """The work of step `step` has been passed to the device."""
        if self.profiler.ends(step):
            self.stand_still()
            self.profiler.close()
        if epoch_ends:
            self.stand_still()  # before evaluating, Keras frees the last evaluation's data: up to a second

    def pause(self) -> None:
        """No execution follows directly: the time until the next one does not count as steps."""
        self.timer.pause()
        self.profiler.end_step()

    def stand_still(self) -> dict[str, float]:
        """Wait until the device has finished; the time after it does not count as steps. Returns the metrics."""
        metrics = self.parts.wait_for_device()
        self.pause()
        return metrics
