"""Runs the training steps of an execution: one graph, or several where replicas need batches of one size in each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import keras
import tensorflow as tf

from ..data.batches import Batches
from ..measure.step_parts import StepParts
from . import train_function


@functools.cache
def constant(count: int) -> Any:
    """A number of steps in the form that the graph takes."""
    with tf.device("/CPU:0"):
        return tf.constant(count)


class Executions:
    """The function of the training steps, traced once."""

    def __init__(self, model: keras.Model, pipeline: Batches, parts: StepParts) -> None:
        function = train_function.training(model, parts.clock)
        self.run_steps: Callable[[Any, Any], dict[str, Any]] = function
        self._trace, self._parts = function.get_concrete_function, parts
        self.traces = function.experimental_get_tracing_count
        self._batches_per_pass = pipeline.batches_per_pass
        self._sizes_differ = pipeline.replicas > 1 and pipeline.smaller_last_batch

    def run(self, iterator: Any, step: int, count: int) -> Any:
        """Run the `count` steps after `step`; returns the logs of the last one.

        Replicas exchange gradients of embeddings by their size, which must not change within an execution of the graph:
        there a smaller last batch of a pass is executed separately.
        """
        logs: Any = {}
        for part in self._same_size(step, count) if self._sizes_differ else (count,):
            logs = self.run_steps(iterator, constant(part))
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
