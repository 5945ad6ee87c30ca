"""How the time of the steps divides into waiting for input, the graph as a whole, and Python around it.

graph_clock.py measures inside the graph, this module between the graph's executions. The graph of an execution runs
from its first operation to the return of the call; everything else is Python: the dispatch, Keras' loop, gputui's own
pulses. Here every execution has the clock in its graph; a GPU has it in a few of them (sampled_parts.py).
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

from ..common.step_logs import floats
from .graph_clock import GraphClock

SET_SECONDS = 0.05  # between two readings: a larger difference means that the wall clock was set
TOGETHER_SECONDS = 0.001  # two clocks are read within this time, unless the process was interrupted in between


class StepParts:
    """Totals over all executions so far; None where TensorFlow refuses to measure (deterministic operations)."""

    def __init__(self, clock: GraphClock) -> None:
        self.clock = clock
        self._input_seconds = self._graph_seconds = 0.0
        self._ends = 0.0  # of the executions since the last reading, summed as the graph sums their beginnings
        self._called = 0.0  # when the graph was called last
        self._call_seconds = 0.0  # of the calls since the last reading, which include their dispatch
        self._last_logs: dict[str, Any] = {}
        self._wall_ahead = wall_ahead()

    @property
    def samples(self) -> bool:
        """Whether only some executions have the clock in their graph."""
        return False

    @property
    def sample_is_due(self) -> bool:
        """Whether the next execution is one of them."""
        return False

    def pulse(self) -> None:
        """The host has waited for the device and done other work."""

    def before(self) -> None:
        """An execution is about to begin."""

    def begins(self) -> None:
        """The graph of an execution is called."""
        self._called = time.perf_counter()

    def after(self, _count: int, logs: Any) -> None:
        """An execution of so many steps has returned."""
        self._ends += time.time() - self.clock.zero
        self._call_seconds += time.perf_counter() - self._called
        self._last_logs = logs

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
        """Read what the graph has measured; returns the seconds waited since the last reading.

        The graph reads the wall clock. Where that was set, the calls of the graph count with their dispatch.
        """
        waited, begun = self.clock.take()
        calls, ends = self._call_seconds, self._ends
        self._call_seconds = self._ends = 0.0
        was_set = self._wall_clock_was_set()
        self._graph_seconds += calls if was_set else min(max(0.0, ends - begun), calls)
        return waited if 0.0 <= waited <= calls else 0.0

    def _wall_clock_was_set(self) -> bool:
        """Whether it was since the last look, so that times of the graph that include the moment are useless."""
        before, self._wall_ahead = self._wall_ahead, wall_ahead()
        return abs(self._wall_ahead - before) > SET_SECONDS

    def totals(self) -> tuple[float | None, float | None]:
        """Seconds of waiting for input, and seconds of the graph, which include them."""
        if not self.clock.counts:
            return None, None
        self._input_seconds += self._read()
        return self._input_seconds, self._graph_seconds


def wall_ahead() -> float:
    """Seconds by which the wall clock is ahead of one that nobody sets; read again where an interruption came between
    the two.
    """
    while True:
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < TOGETHER_SECONDS:
            return wall - before
