"""The parts of the steps' time on a GPU, from samples: a few executions have the clock in their graph.

A GPU works asynchronously: the call of the graph returns when the work has been enqueued, and the host prepares the
next step while the GPU computes.

- The share called Python is the host's time outside the graph. It is measured around each call; the part of it between
  the call and the graph's first operation is that of the last sample.
- Only a step that begins with an idle device shows how long the device waits for input: now and then the host waits for
  the device, and the input wait of the step that follows counts for all steps until the next time.
- The clock's order of operations reaches from the CPU to the device and back, which waits until all devices are idle
  (TensorFlow 2.21, gpu_util.cc: copies of no bytes, too, wait for the device's stream). Of two graphs of the same steps
  the one without the clock runs all others.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from .graph_clock import GraphClock
from .step_parts import StepParts

SAMPLE_AFTER = 3  # executions after a pulse, during which the input pipeline gets ahead again


class SampledParts(StepParts):
    """Takes a sample a few executions after each pulse."""

    def __init__(self) -> None:
        super().__init__(GraphClock(deterministic=False, first_only=True))
        self._until_sample = SAMPLE_AFTER
        self._pulsed = self._apart = self._sampled = False
        self._sample_seconds = self._dispatch_seconds = 0.0
        self._called_wall = 0.0

    @property
    def samples(self) -> bool:
        return True

    @property
    def sample_is_due(self) -> bool:
        return self._pulsed and self._until_sample == 0

    def pulse(self) -> None:
        """Take a sample soon; where steps are slow, a pulse follows each of them, and only the first one counts."""
        if not self._pulsed:
            self._pulsed, self._until_sample = True, SAMPLE_AFTER

    def before(self) -> None:
        if self.sample_is_due:
            self.wait_for_device()
            self.clock.take()
            self._wall_clock_was_set()

    def begins(self) -> None:
        super().begins()
        self._called_wall = time.time()

    def after(self, count: int, logs: Any) -> None:
        seconds = time.perf_counter() - self._called
        self._last_logs = logs
        if self.sample_is_due and not self._apart:
            self._take(seconds)
        self._until_sample -= 1
        self._graph_seconds += max(0.0, seconds - self._dispatch_seconds)
        self._input_seconds += count * self._sample_seconds

    def _take(self, seconds: float) -> None:
        """Read the clock of an execution whose call took so long."""
        waited, begun = self.clock.take()
        was_set = self._wall_clock_was_set()
        dispatch = self.clock.zero + begun - self._called_wall
        if not was_set and 0.0 <= dispatch <= seconds:
            self._sample_seconds, self._dispatch_seconds, self._sampled = waited, dispatch, True
        self._pulsed = False

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        before = self._input_seconds, self._graph_seconds
        self._apart = True
        yield
        self._apart = False
        self.clock.take()
        self._until_sample = SAMPLE_AFTER  # the pipeline may be behind again
        self._input_seconds, self._graph_seconds = before

    def totals(self) -> tuple[float | None, float | None]:
        """The same; None until a sample has been taken."""
        if not self._sampled:
            return None, None
        return self._input_seconds, self._graph_seconds


def of(deterministic: bool, on_gpu: bool) -> StepParts:
    """What measures the parts of the steps' time here."""
    return SampledParts() if on_gpu and not deterministic else StepParts(GraphClock(deterministic))
