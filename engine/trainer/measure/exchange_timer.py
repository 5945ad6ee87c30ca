"""Times the exchange of gradients between the workers of a training on several machines.

Within a step it cannot be told from computing: TensorFlow runs both in one graph. So it is timed now and then, between
two executions: the trainable weights, which are as large as their gradients, are summed up over all replicas by the
same strategy, with nothing else to do. All workers time it at the same step.
"""

from __future__ import annotations

import math
import statistics
import time
from typing import Any

import keras
import tensorflow as tf

from ...runs import events
from ..cluster.exchange import Exchange
from .run_report import RunReport

TIMES = 3  # after one that is not counted
LEAST_STEPS = 100  # between two measurements; then twice as many steps as before, so that they cost little


class ExchangeTimer:
    """Times it after the warm-up, and each time the training has become twice as long."""

    def __init__(self, model: keras.Model, exchange: Exchange, report: RunReport) -> None:
        self._model, self._exchange, self._report = model, exchange, report
        self._function: Any = None
        self._begun = 0
        self._next: int | None = None

    def begin(self, step: int, warmup: int) -> None:
        """Training begins with the step after `step`."""
        self._begun = step
        self._next = step + warmup if self._can_be_timed() else None

    def due(self, step: int) -> bool:
        """Whether to time it before the execution after `step`: the same on all workers."""
        return self._next is not None and step >= self._next

    def measure(self, step: int) -> None:
        """Time it, with idle devices; all workers call it at the same step."""
        self._next = step + max(LEAST_STEPS, step - self._begun)
        seconds = statistics.median([self._seconds() for _ in range(1 + TIMES)][1:])
        size = sum(math.prod(one.shape) * tf.as_dtype(one.dtype).size for one in self._model.trainable_variables)
        self._report.speed.exchange_ms = 1000 * seconds
        self._report.writer.emit(events.GradientExchange(ms=1000 * seconds, bytes=size, step=step))

    def _can_be_timed(self) -> bool:
        """Gradients of embeddings are as large as what a batch looks up, which differs from batch to batch."""
        looks_up = any(isinstance(layer, keras.layers.Embedding) for layer in self._model._flatten_layers())
        return bool(self._model.trainable_variables) and not looks_up

    def _seconds(self) -> float:
        if self._function is None:
            self._function = tf.function(self._summed_up, autograph=False)
        self._exchange.wait()  # begin together: the time in which one waits for another is none of the exchange's
        began = time.perf_counter()
        for part in self._model.distribute_strategy.experimental_local_results(self._function()):
            part.numpy()
        self._report.heartbeat.beat()
        return time.perf_counter() - began

    def _summed_up(self) -> Any:
        return self._model.distribute_strategy.run(self._in_replica)

    def _in_replica(self) -> Any:
        """One number of all sums, which the host can wait for."""
        # Copies, as the strategy exchanges what has been computed on the replica's device.
        weights = [tf.identity(variable.value) for variable in self._model.trainable_variables]
        sums = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, weights)
        return tf.add_n([tf.reduce_sum(tf.cast(tf.reshape(one, [-1])[:1], tf.float32)) for one in sums])
