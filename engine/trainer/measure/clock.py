"""Measures step times without disturbing the steps: marks between executions, combined into windows.

A window is whole executions of at least `window_seconds`, so that short steps are measured in groups and long ones one
by one. A GPU works asynchronously, and the host sees the true time only where it waits for the device: there
`window_seconds` is infinite and `cut` ends a window. `pause` leaves out time between steps (evaluation, checkpoints).
"""

from __future__ import annotations

import statistics
from array import array
from collections import deque
from dataclasses import dataclass

WINDOW_SECONDS = 0.05
RECENT_WINDOWS = 100


@dataclass(frozen=True)
class Spent:
    """Seconds since the start: of the measured steps, of waiting for input, of the graph; None without a reading."""

    measured: float
    input_wait: float | None = None
    graph: float | None = None

    def shares_since(self, earlier: Spent) -> tuple[float | None, float | None]:
        """The share of the step time that was waiting for input, and the share that was Python outside the graph."""
        seconds = self.measured - earlier.measured
        if self.input_wait is None or earlier.input_wait is None or self.graph is None or earlier.graph is None:
            return None, None
        return (
            _share(self.input_wait - earlier.input_wait, seconds),
            _share(seconds - (self.graph - earlier.graph), seconds),
        )


class StepClock:
    """Takes a mark before each execution; knows the step time at any moment."""

    def __init__(self, warmup: int, window_seconds: float = WINDOW_SECONDS) -> None:
        self.warmup = warmup
        self.measured_steps = 0
        self.measured_seconds = 0.0
        self.step_seconds_total = 0.0  # all steps but the first execution, warm-up included
        self._window_seconds = window_seconds
        self._steps_seen = 0
        self._first = True
        self._cut = False
        self._since: float | None = None
        self._running = 0
        self._open_seconds, self._open_steps = 0.0, 0
        self._windows = array("d")
        self._recent: deque[float] = deque(maxlen=RECENT_WINDOWS)

    @property
    def warm(self) -> bool:
        """The warm-up is over: measure from now on."""
        return self._steps_seen >= self.warmup and not self._first

    @property
    def ended_steps(self) -> int:
        """Steps of all executions that have ended."""
        return self._steps_seen

    @property
    def begun_steps(self) -> int:
        """The same, with those of the present execution."""
        return self._steps_seen + (0 if self._since is None else self._running)

    def mark(self, now: float, count: int) -> None:
        """An execution of `count` steps begins at `now` (seconds of any steady clock)."""
        self._close_execution(now)
        self._since, self._running = now, count

    def pause(self, now: float) -> None:
        """No execution follows directly: the time until the next mark does not count as steps."""
        self._close_execution(now)
        self._since = None

    def measured_until(self, now: float) -> float:
        """`measured_seconds` including the part of the present execution that counts."""
        running = now - self._since if self._since is not None and self.warm else 0.0
        return self.measured_seconds + running

    def cut(self) -> None:
        """The host has waited for the device: the window ends with the present execution."""
        self._cut = True

    def _close_execution(self, now: float) -> None:
        if self._since is None:
            return
        seconds, steps = now - self._since, self._running
        was_warm = self.warm
        self._steps_seen += steps
        if self._first:
            self._first = False
            return
        self.step_seconds_total += seconds
        if was_warm:
            self._add(seconds, steps)

    def _add(self, seconds: float, steps: int) -> None:
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
        """Median and 95th percentile of the step time over the last windows."""
        return _percentiles(self._recent)

    def overall_ms(self) -> tuple[float | None, float | None]:
        """The same over the whole run; for a run shorter than one window, its mean."""
        if not self._windows and self._open_steps:
            mean = 1000 * self._open_seconds / self._open_steps
            return mean, mean
        return _percentiles(self._windows)


def _share(part: float, whole: float) -> float | None:
    return min(1.0, max(0.0, part / whole)) if whole > 0 else None


def _percentiles(values: array[float] | deque[float]) -> tuple[float | None, float | None]:
    if not values:
        return None, None
    if len(values) == 1:
        return values[0], values[0]
    return statistics.median(values), statistics.quantiles(values, n=20, method="inclusive")[18]
