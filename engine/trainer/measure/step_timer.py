"""The clock of a run's steps: when it starts to measure, when it is stopped, and where a GPU's windows end."""

from __future__ import annotations

import math
import time
from collections.abc import Callable

from .clock import WINDOW_SECONDS, Spent, StepClock
from .run_figures import Speed

Totals = Callable[[], tuple[float | None, float | None]]  # seconds of waiting for input, and of the graph


def no_totals() -> tuple[None, None]:
    """Where nothing is counted within the graph."""
    return None, None


class StepTimer:
    """Takes the marks of a run's clock; a GPU, which works behind the host, is timed where the host waits for it."""

    def __init__(self, speed: Speed, on_gpu: bool, totals: Totals = no_totals) -> None:
        self._speed, self.on_gpu, self._totals = speed, on_gpu, totals

    def begin(self, warmup_steps: int) -> None:
        """A training begins; of its figures the first steps are left out."""
        self._speed.clock = StepClock(warmup_steps, math.inf if self.on_gpu else WINDOW_SECONDS)

    @property
    def may_measure(self) -> bool:
        """The warm-up is over, and measuring has not begun."""
        return not self._speed.warm and self._speed.clock.warm

    def measure(self, now: float) -> None:
        """What comes from now on is measured."""
        self._speed.begin_measuring(self.spent(now))

    def mark(self, now: float, count: int) -> None:
        """An execution of `count` steps begins."""
        self._speed.clock.mark(now, count)

    def pause(self) -> None:
        """No execution follows directly: the time until the next one is not the steps'."""
        self._speed.clock.pause(time.perf_counter())

    def device_was_waited_for(self) -> None:
        if self.on_gpu:
            self._speed.clock.cut()

    def spent(self, now: float) -> Spent:
        return Spent(self._speed.clock.measured_until(now), *self._totals())
