"""Measures step times without disturbing the steps: marks between executions, combined into windows.

A window is whole executions of at least `window_seconds`, so that short steps are measured in groups and long ones one
by one. A GPU works asynchronously, and the host sees the true time only when it waits for the device: its
`window_seconds` is infinite, and `device_was_waited_for` ends a window. `pause` leaves out time between steps
(evaluation, checkpoints). step_parts.py divides the time of a step into its parts.
"""

from __future__ import annotations

import math
import statistics
from array import array
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

WINDOW_SECONDS = 0.05
RECENT_WINDOWS = 100
Totals = Callable[[], tuple[float | None, float | None]]  # seconds of waiting for input, and of the graph
Samples = Callable[[], int | None]


@dataclass(frozen=True)
class Spent:
    """The seconds since the start: of the measured steps, of waiting for input, and of the graph.

    `samples` is the number of samples of the measured steps and of the steps before them. None without a reading.
    """

    measured: float
    input_wait: float | None = None
    graph: float | None = None
    samples: int | None = None

    def shares_since(self, earlier: Spent) -> tuple[float | None, float | None]:
        """Return the share (0 to 1) of the step time since `earlier` that was spent waiting for input, and the share
        that Python took outside the graph.

        None without readings.
        """
        seconds = self.measured - earlier.measured
        waited, ran = _difference(self.input_wait, earlier.input_wait), _difference(self.graph, earlier.graph)
        return (
            None if waited is None else _share(waited, seconds),
            None if ran is None else _share(seconds - ran, seconds),
        )

    def samples_per_second_since(self, earlier: Spent) -> float | None:
        """Return the samples trained in a second of step time since `earlier`. None without readings."""
        seconds, samples = self.measured - earlier.measured, _difference(self.samples, earlier.samples)
        return samples / seconds if samples and seconds > 0 else None


class StepClock:
    """Measures the step time. It takes a mark before each execution, and can be read at any moment.

    `warmup` is the number of first steps that are left out. A window has at least `window_seconds`. `totals` returns
    the seconds of waiting for input and of the graph (`totals` of step_parts.py). Without it only the time of whole
    steps is known. `samples` returns the number of samples of the steps that have ended.
    """

    def __init__(
        self,
        warmup: int,
        window_seconds: float = WINDOW_SECONDS,
        totals: Totals = lambda: (None, None),
        samples: Samples = lambda: None,
    ) -> None:
        self.warmup = warmup
        self.warm = False  # the warm-up is over: measure from now on
        self.ended_steps = 0  # of all executions that have ended
        self.measured_steps = 0
        self.measured_seconds = 0.0
        self.step_seconds_total = 0.0  # all steps but the first execution, warm-up included
        self._window_seconds, self._totals, self._samples = window_seconds, totals, samples
        self._first = True
        self._cut = False
        self._since: float | None = None
        self._running = 0
        self._open_seconds, self._open_steps = 0.0, 0
        self._windows = array("d")
        self._recent: deque[float] = deque(maxlen=RECENT_WINDOWS)

    @property
    def begun_steps(self) -> int:
        """The number of steps that have begun: `ended_steps`, plus the steps of the present execution."""
        return self.ended_steps + (0 if self._since is None else self._running)

    def mark(self, now: float, count: int) -> None:
        """Record that an execution of `count` steps begins at `now` (seconds of any steady clock), and the one before
        it ends.
        """
        self._close_execution(now)
        self._since, self._running = now, count

    def pause(self, now: float) -> None:
        """Record that no execution follows directly. The time from `now` until the next mark does not count as time of
        steps.
        """
        self._close_execution(now)
        self._since = None

    def measured_until(self, now: float) -> float:
        """Return the measured seconds up to `now`, including the present execution if the warm-up is over."""
        running = now - self._since if self._since is not None and self.warm else 0.0
        return self.measured_seconds + running

    def step_seconds_until(self, now: float) -> float:
        """Return the seconds of all steps up to `now` but the first execution, including the present execution."""
        return self.step_seconds_total + (0.0 if self._since is None or self._first else now - self._since)

    def spent(self, now: float) -> Spent:
        return Spent(self.measured_until(now), *self._totals(), self._samples())

    def device_was_waited_for(self) -> None:
        """Record that the host has waited for the device.

        On a GPU the window, which is the executions that are timed together, then ends with the present execution. On a
        CPU this has no effect.
        """
        self._cut = self._window_seconds == math.inf

    def _close_execution(self, now: float) -> None:
        if self._since is None:
            return
        seconds, steps, was_warm = now - self._since, self._running, self.warm
        self.ended_steps += steps
        self.warm = self.ended_steps >= self.warmup
        if self._first:
            self._first = False
            return
        self.step_seconds_total += seconds
        if not was_warm:
            return
        self.measured_seconds += seconds
        self.measured_steps += steps
        self._open_seconds += seconds
        self._open_steps += steps
        if self._open_seconds >= self._window_seconds or self._cut:
            self._cut = False
            step_ms = 1000 * self._open_seconds / self._open_steps
            self._windows.append(step_ms)
            self._recent.append(step_ms)
            self._open_seconds, self._open_steps = 0.0, 0

    def recent_ms(self) -> tuple[float | None, float | None]:
        """Return the median and the 95th percentile of the step time in ms, over the last RECENT_WINDOWS windows. None
        without a window.
        """
        return _percentiles(self._recent)

    def overall_ms(self) -> tuple[float | None, float | None]:
        """Return the median and the 95th percentile of the step time in ms over the whole run. For a run shorter than
        one window, its mean.

        None if no step was measured.
        """
        if not self._windows and self._open_steps:
            mean = 1000 * self._open_seconds / self._open_steps
            return mean, mean
        return _percentiles(self._windows)


def _difference(now: float | None, earlier: float | None) -> float | None:
    return None if now is None or earlier is None else now - earlier


def _share(part: float, whole: float) -> float | None:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None


def _percentiles(values: array[float] | deque[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    if len(values) == 1:
        return values[0], values[0]
    return statistics.median(values), statistics.quantiles(values, n=20, method="inclusive")[18]
