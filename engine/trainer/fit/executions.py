"""Runs the training steps of an execution: one graph, or several where replicas need batches of one size in each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from ..data.batches import Batches
from ..measure.graph_clock import GraphClock
from ..measure.step_parts import StepParts
from . import train_function


@functools.cache
def constant(count: int) -> Any:
    """A number of steps in the form that the graph takes."""
    with tf.device("/CPU:0"):
        return tf.constant(count)


class Executions:
    """The function of the training steps, traced once; where the clock has a graph of its own, this one is traced when
    it is first wanted.
    """

    def __init__(self, model: keras.Model, pipeline: Batches, parts: StepParts, micro_batches: int) -> None:
        clocks = [GraphClock(deterministic=True), parts.clock] if parts.samples else [parts.clock]
        functions = train_function.training(model, clocks, pipeline.device_scale, micro_batches)
        self._take(functions[0])
        self._clocked, self._clock_has_run = functions[-1], not parts.samples
        self._parts = parts
        self._batches_per_pass = pipeline.batches_per_pass
        self._sizes_differ = pipeline.replicas > 1 and pipeline.smaller_last_batch

    def _take(self, function: train_function.Execute) -> None:
        self.run_steps: Callable[[Any, Any], dict[str, Any]] = function
        self._trace, self._count_traces = function.get_concrete_function, function.experimental_get_tracing_count

    def traces(self) -> int:
        """How often the steps were traced, apart from the graph with the clock."""
        return self._count_traces()

    def always_with_clock(self) -> None:
        """Before the first step: all executions run the same graph.

        Operations that draw random numbers have a state for each graph, and which steps are samples is chance.
        """
        self._take(self._clocked)
        self._clock_has_run = True

    @property
    def clock_is_wanted(self) -> bool:
        """Whether the next execution is the first one with the clock, which is traced and compiled first."""
        return self._parts.sample_is_due and not self._clock_has_run

    def run_clock_first(self, iterator: Any, step: int, count: int) -> Any:
        """Trace the graph with the clock, and run the `count` steps after `step` by it."""
        self._clock_has_run = True
        return self.run(iterator, step, count)

    def run(self, iterator: Any, step: int, count: int) -> Any:
        """Run the `count` steps after `step`; returns the logs of the last one.

        Replicas exchange gradients of embeddings by their size, which must not change within an execution of the graph:
        there a smaller last batch of a pass is executed separately.
        """
        logs: Any = {}
        for part in self._same_size(step, count) if self._sizes_differ else (count,):
            run_steps = self._clocked if self._parts.sample_is_due and self._clock_has_run else self.run_steps
            self._parts.begins()
            logs = run_steps(iterator, constant(part))
            self._parts.after(part, logs)
        return logs

    def trace(self, iterator: Any, count: int) -> Any:
        """The traced function of such an execution, without running it."""
        return self._trace(iterator, constant(count))

    def _same_size(self, step: int, count: int) -> Iterator[int]:
        beyond, batches = step + count, self._batches_per_pass
        while step < beyond:
            before_last = batches - 1 - step % batches
            part = min(beyond - step, before_last or 1)
            yield part
            step += part
