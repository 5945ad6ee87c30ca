"""How the time of the steps divides into waiting for input, the graph as a whole, and Python around it.

graph_clock.py measures inside the graph, this module between the graph's executions. The graph of an execution runs
from its first operation to the return of the call; everything else is Python: the dispatch, Keras' loop, gputui's own
pulses. A GPU works asynchronously, so that there:

- the call returns when the work has been enqueued, and the share called Python is the host's time outside the graph;
- the host waits for the next batch while the GPU still computes. Only a step that begins with an idle device shows how
  long the device waits: now and then the host waits for the device, and the input wait of the step that follows counts
  for all steps until the next time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from ..common.step_logs import floats
from .graph_clock import GraphClock

SET_SECONDS = 0.05  # between two readings: a larger difference means that the wall clock was set
SAMPLE_AFTER = 3  # executions after a pulse, during which the input pipeline gets ahead again


class StepParts:
    """Totals over all executions so far; None where TensorFlow refuses to measure (deterministic operations)."""

    def __init__(self, deterministic: bool, on_gpu: bool) -> None:
        self.clock = GraphClock(deterministic, first_only=on_gpu)
        self._sampled = on_gpu and not deterministic
        self._until_sample = 0
        self._sample_seconds = self._input_seconds = self._graph_seconds = 0.0
        self._ends = 0.0  # of the executions since the last reading, summed as the graph sums their beginnings
        self._last_logs: dict[str, Any] = {}
        self._read_at, self._wall_ahead = time.monotonic(), time.time() - time.monotonic()

    def pulse(self) -> None:
        """The host has waited for the device and done other work: take a sample soon."""
        self._until_sample = SAMPLE_AFTER

    def before(self) -> None:
        """An execution is about to begin."""
        if self._sampled and self._until_sample == 0:
            self.wait_for_device()
            self._read()

    def after(self, count: int, logs: Any) -> None:
        """An execution of `count` steps has returned."""
        self._ends += time.time() - self.clock.zero
        self._last_logs = logs
        if self._sampled:
            self._sample(count)

    def _sample(self, count: int) -> None:
        if self._until_sample == 0:
            self._sample_seconds = self._read()
        self._until_sample -= 1
        self._input_seconds += count * self._sample_seconds

    def wait_for_device(self) -> dict[str, float]:
        """The figures of the last execution, which are available when the GPU has finished all its work."""
        with self.not_python():
            return floats(self._last_logs)

    @contextlib.contextmanager
    def not_python(self) -> Iterator[None]:
        """Time between two executions in which the device works or is waited for."""
        begin = time.perf_counter()
        yield
        self._graph_seconds += time.perf_counter() - begin

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """An unusual execution: nothing of it counts. The host has waited for the device."""
        self.totals()
        before = self._input_seconds, self._graph_seconds
        yield
        if self.clock.counts:
            self._read()
        self._input_seconds, self._graph_seconds = before

    def _read(self) -> float:
        """Read what the graph has measured; returns the seconds waited since the last reading."""
        waited, begun = self.clock.take()
        read_at, self._read_at = self._read_at, time.monotonic()
        ahead, self._wall_ahead = self._wall_ahead, time.time() - self._read_at
        if abs(self._wall_ahead - ahead) > SET_SECONDS:  # the graph's figures, which use the wall clock, are useless
            self._graph_seconds += self._read_at - read_at
            self._ends = 0.0
            return 0.0
        self._graph_seconds += self._ends - begun
        self._ends = 0.0
        return waited

    def totals(self) -> tuple[float | None, float | None]:
        """Seconds of waiting for input, and seconds of the graph, which include them."""
        if not self.clock.counts:
            return None, None
        waited = self._read()
        if not self._sampled:
            self._input_seconds += waited
        return self._input_seconds, self._graph_seconds
