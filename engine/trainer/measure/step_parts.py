"""How the time of the steps divides into waiting for input, the graph as a whole, and Python around it.

`GraphClock` measures inside the graph, `StepParts` between the graph's executions. The graph of an execution runs from
its first operation to the return of the call. All other time is Python's: the dispatch, Keras' loop, gputui's pulses.

On a CPU every execution has the clock in its graph. On a GPU a few of them have it, the samples. A GPU works
asynchronously: the call of the graph returns when the work has been enqueued, and the host prepares the next step while
the GPU computes. Therefore, on a GPU:

- Python's share is the host's time outside the graph. It is measured around each call. The part of it between the
  call and the graph's first operation is that of the last sample.
- Only a step that begins with an idle device shows how long the device waits for input: now and then the host waits
  for the device, and the input wait of the step that follows counts for all steps until the next sample.
- The clock's order of operations reaches from the CPU to the device and back, which waits until all devices are idle
  (TensorFlow 2.21, gpu_util.cc: copies of no bytes, too, wait for the device's stream). So of two graphs of the same
  steps the one without the clock runs all other executions.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import tensorflow as tf

from ..common.logs import floats

SET_SECONDS = 0.05  # between two readings: a larger difference means that the wall clock was set
TOGETHER_SECONDS = 0.001  # two clocks are read within this time, unless the process was interrupted in between
SAMPLE_AFTER = 3  # executions after a pulse, during which the input pipeline gets ahead again


class GraphClock:
    """Measures on the CPU, inside the graph, how long the host waited for input, and when executions began: sums since
    the last `take`, the latter relative to `zero`, a Unix time. With `first_only`, only the wait of each execution's
    first step counts. TensorFlow refuses to read the clock if operations must be deterministic: `counts` is then False.
    """

    def __init__(self, deterministic: bool, first_only: bool = False) -> None:
        self.counts, self._all = not deterministic, not deterministic and not first_only
        self.zero = time.time()
        with tf.device("/CPU:0"):
            self._sums = tf.Variable([0.0, 0.0], dtype=tf.float64, trainable=False)
            self.variables = [self._sums]
            self._nothing = tf.zeros([2], tf.float64)

    def take(self) -> tuple[float, float]:
        """Return the seconds waited, and the sum of the times at which executions began, since the last call."""
        waited, begun = self._sums.numpy().tolist()
        self._sums.assign(self._nothing, read_value=False)
        return waited, begun

    def first(self, iterator: Any) -> tuple[Any, Any, Any]:
        """Return the first batch of an execution, its begin and the seconds waited so far, for `next` and `end`."""
        if not self.counts:
            return iterator.get_next(), (), ()
        data, begun, end, waited = _timed(iterator)
        if self._all:
            return _after(end, data), begun, waited
        self._add(begun, waited)
        return data, (), ()

    def next(self, iterator: Any, waited: Any) -> tuple[Any, Any]:
        """Return the next batch of an execution, and `waited` plus the wait for this batch in seconds."""
        if not self._all:
            return iterator.get_next(), ()
        data, _, end, seconds = _timed(iterator)
        return _after(end, data), waited + seconds

    def end(self, begun: Any, waited: Any) -> None:
        """Add the times of an execution to the sums of the clock, once at its end, as it costs time."""
        if self._all:
            self._add(begun, waited)

    def _add(self, begun: Any, waited: Any) -> None:
        with tf.device("/CPU:0"):
            self._sums.assign_add(tf.stack([waited, begun - self.zero]), read_value=False)


def _timed(iterator: Any) -> tuple[Any, Any, Any, Any]:
    begun = tf.timestamp()
    with tf.control_dependencies([begun]):
        data = iterator.get_next()
    with tf.control_dependencies(_tensors(data)), tf.device("/CPU:0"):
        end = tf.timestamp()
        return data, begun, end, end - begun


def _after(moment: Any, data: Any) -> Any:
    # Otherwise the clock would be read late if the cores are busy.

    def delayed(tensor: Any) -> Any:
        with tf.device(tensor.device):
            return tf.identity(tensor)

    with tf.control_dependencies([moment]):
        return tf.nest.map_structure(delayed, data, expand_composites=True)


def _tensors(data: Any) -> list[Any]:
    tensors: list[Any] = []
    for item in tf.nest.flatten(data):
        distributed = isinstance(item, tf.distribute.DistributedValues)
        tensors.extend(tf.nest.flatten(item.values if distributed else item, expand_composites=True))
    return tensors


class StepParts:
    """Measures how long the executions of the step's graph took, and how long they waited for input, in seconds. The
    totals leave out those inside `left_out`. They are None if TensorFlow cannot measure.
    """

    samples = False  # whether only some executions have the clock in their graph

    def __init__(self, clock: GraphClock) -> None:
        self.clock = clock
        self._input_seconds = self._graph_seconds = 0.0
        self._ends = 0.0  # of the executions since the last reading, summed as the graph sums their beginnings
        self._called = 0.0  # when the graph was called last
        self._call_seconds = 0.0  # of the calls since the last reading, which include their dispatch
        self._last_logs: dict[str, Any] = {}
        self._wall_ahead = wall_ahead()
        self._counts: list[Any] = []  # samples of the executions since the last reading
        self._trained = self._trained_left_out = 0

    @property
    def sample_is_due(self) -> bool:
        """True if the next execution is a sample, an execution with the clock in its graph on a GPU."""
        return False

    def pulse(self) -> None:
        """To be called at a pulse, after the host has waited for the device and done other work."""

    def before(self) -> None:
        """To be called before an execution begins."""

    def begins(self) -> None:
        """To be called directly before the graph of an execution is called."""
        self._called = time.perf_counter()

    def after(self, _count: int, logs: Any, samples: Any) -> None:
        """To be called after an execution of `_count` steps has returned `logs` and `samples`, a scalar tensor."""
        self._ends += time.time() - self.clock.zero
        self._call_seconds += time.perf_counter() - self._called
        self._last_logs = logs
        self._counts.append(samples)

    def trained_samples(self) -> int:
        self._trained += sum(int(count) for count in self._counts)
        self._counts.clear()
        return self._trained

    def timed_samples(self) -> int:
        """Return the number of samples of all executions up to now, without those inside `left_out`."""
        return self.trained_samples() - self._trained_left_out

    def wait_for_device(self) -> dict[str, float]:
        """Wait until the device has finished all its work. Return the numbers in the logs of the last execution."""
        with self.not_python():
            return floats(self._last_logs)

    @contextlib.contextmanager
    def not_python(self) -> Iterator[None]:
        """A context for time between two executions in which the device works: the graph's time, not Python's."""
        begin = time.perf_counter()
        yield
        self._graph_seconds += time.perf_counter() - begin

    @contextlib.contextmanager
    def left_out(self) -> Iterator[None]:
        """A context around an execution whose times do not count, after the host has waited for the device."""
        before = self.trained_samples()
        with self._times_left_out():
            yield
        self._trained_left_out += self.trained_samples() - before

    @contextlib.contextmanager
    def _times_left_out(self) -> Iterator[None]:
        self.totals()
        before = self._input_seconds, self._graph_seconds
        yield
        if self.clock.counts:
            self._read()
        self._input_seconds, self._graph_seconds = before

    def _read(self) -> float:
        """Return the seconds waited since the last reading. If the wall clock, which the graph reads, was set
        meanwhile, the whole calls of the graph count, with their dispatch.
        """
        waited, begun = self.clock.take()
        calls, ends = self._call_seconds, self._ends
        self._call_seconds = self._ends = 0.0
        was_set = self._wall_clock_was_set()
        self._graph_seconds += calls if was_set else min(max(0.0, ends - begun), calls)
        return waited if 0.0 <= waited <= calls else 0.0

    def _wall_clock_was_set(self) -> bool:
        before, self._wall_ahead = self._wall_ahead, wall_ahead()
        return abs(self._wall_ahead - before) > SET_SECONDS

    def totals(self) -> tuple[float | None, float | None]:
        """Return the seconds of waiting for input, and of the graph, which include these. None if not measured."""
        if not self.clock.counts:
            return None, None
        self._input_seconds += self._read()
        return self._input_seconds, self._graph_seconds


class SampledParts(StepParts):
    """On a GPU: one execution soon after each report (a pulse) is measured, and its wait counts for all others."""

    samples = True

    def __init__(self) -> None:
        super().__init__(GraphClock(deterministic=False, first_only=True))
        self._until_sample = SAMPLE_AFTER
        self._pulsed = self._apart = self._sampled = False
        self._sample_seconds = self._dispatch_seconds = 0.0
        self._called_wall = 0.0

    @property
    def sample_is_due(self) -> bool:
        return self._pulsed and self._until_sample == 0

    def pulse(self) -> None:
        # Slow steps have a pulse each.
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

    def after(self, count: int, logs: Any, samples: Any) -> None:
        seconds = time.perf_counter() - self._called
        self._last_logs = logs
        self._counts.append(samples)
        if self.sample_is_due and not self._apart:
            self._take(seconds)
        self._until_sample -= 1
        self._graph_seconds += max(0.0, seconds - self._dispatch_seconds)
        self._input_seconds += count * self._sample_seconds

    def _take(self, seconds: float) -> None:
        waited, begun = self.clock.take()
        was_set = self._wall_clock_was_set()
        dispatch = self.clock.zero + begun - self._called_wall
        if not was_set and 0.0 <= dispatch <= seconds:
            self._sample_seconds, self._dispatch_seconds, self._sampled = waited, dispatch, True
        self._pulsed = False

    @contextlib.contextmanager
    def _times_left_out(self) -> Iterator[None]:
        before = self._input_seconds, self._graph_seconds
        self._apart = True
        yield
        self._apart = False
        self.clock.take()
        self._until_sample = SAMPLE_AFTER  # the pipeline may be behind again
        self._input_seconds, self._graph_seconds = before

    def totals(self) -> tuple[float | None, float | None]:
        if not self._sampled:
            return None, None
        return self._input_seconds, self._graph_seconds


def step_parts_for(deterministic: bool, on_gpu: bool) -> StepParts:
    return SampledParts() if on_gpu and not deterministic else StepParts(GraphClock(deterministic))


def wall_ahead() -> float:
    """Return the seconds by which the wall clock is ahead of the monotonic clock, read without an interruption."""
    while True:
        before, wall, after = time.monotonic(), time.time(), time.monotonic()
        if after - before < TOGETHER_SECONDS:
            return wall - before
