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


class StepParts:
    """Totals over all executions so far; None where TensorFlow refuses to measure (deterministic operations)."""

    def __init__(self, clock: GraphClock) -> None:
        self.clock = clock
        self._input_seconds = self._graph_seconds = 0.0
        self._ends = 0.0  # of the executions since the last reading, summed as the graph sums their beginnings
        self._last_logs: dict[str, Any] = {}
        self._read_at, self._wall_ahead = time.monotonic(), time.time() - time.monotonic()

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

    def after(self, count: int, logs: Any) -> None:
        """An execution of `count` steps has returned."""
        self._ends += time.time() - self.clock.zero
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
        """Read what the graph has measured; returns the seconds waited since the last reading."""
        waited, begun = self.clock.take()
        was_set, seconds = self._wall_clock_was_set()
        self._graph_seconds += seconds if was_set else self._ends - begun
        self._ends = 0.0
        return 0.0 if was_set else waited

    def _wall_clock_was_set(self) -> tuple[bool, float]:
        """Whether it was, so that the graph's figures, which use it, are useless; and the time since the last look."""
        read_at, self._read_at = self._read_at, time.monotonic()
        ahead, self._wall_ahead = self._wall_ahead, time.time() - self._read_at
        return abs(self._wall_ahead - ahead) > SET_SECONDS, self._read_at - read_at

    def totals(self) -> tuple[float | None, float | None]:
        """Seconds of waiting for input, and seconds of the graph, which include them."""
        if not self.clock.counts:
            return None, None
        self._input_seconds += self._read()
        return self._input_seconds, self._graph_seconds
