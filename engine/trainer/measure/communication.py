"""Times communication that a step contains: gradients between machines, and the copy of a batch to a GPU. Within a
step TensorFlow runs both in one graph with computing. So now and then, between two executions and at the same step
on all workers, the trainable weights, as large as their gradients, are summed up over all replicas.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Sequence
from typing import Any

import keras
import tensorflow as tf

from ...runs import events
from ..cluster.exchange import Exchange
from .run_report import RunReport

TIMES = 3  # after one that is not counted
LEAST_STEPS = 100  # between two measurements; then twice as many steps as before, so that they cost little
COPIES = 5


class ExchangeTimer:
    """Times the exchange of the gradients after the warm-up, and again when the number of trained steps has doubled."""

    def __init__(self, model: keras.Model, exchange: Exchange, report: RunReport) -> None:
        self._model, self._exchange, self._report = model, exchange, report
        self._function: Any = None
        self._begun = 0
        self._next: int | None = None

    def begin(self, step: int, warmup: int) -> None:
        """To be called when the training begins after `step` steps, of which `warmup` further are not timed."""
        self._begun = step
        # Gradients of embeddings have the size of the rows that a batch reads, which differs from batch to batch.
        looks_up = any(isinstance(layer, keras.layers.Embedding) for layer in self._model._flatten_layers())
        self._next = step + warmup if self._model.trainable_variables and not looks_up else None

    def due(self, step: int) -> bool:
        return self._next is not None and step >= self._next

    def measure(self, step: int) -> None:
        """Time the exchange while the devices are idle, and report it. All workers call this at the same step."""
        self._next = step + max(LEAST_STEPS, step - self._begun)
        seconds = statistics.median([self._seconds() for _ in range(1 + TIMES)][1:])
        weights = self._model.trainable_variables
        size = sum(math.prod(weight.shape) * tf.as_dtype(weight.dtype).size for weight in weights)
        self._report.speed.exchange_ms = 1000 * seconds
        self._report.writer.emit(events.GradientExchange(ms=1000 * seconds, bytes=size, step=step))

    def _seconds(self) -> float:
        if self._function is None:

            def in_replica() -> Any:
                # Copies, as the strategy exchanges values computed on the replica's device.
                weights = [tf.identity(variable.value) for variable in self._model.trainable_variables]
                sums = tf.distribute.get_replica_context().all_reduce(tf.distribute.ReduceOp.SUM, weights)
                return tf.add_n([tf.reduce_sum(tf.cast(tf.reshape(total, [-1])[:1], tf.float32)) for total in sums])

            self._function = tf.function(lambda: self._model.distribute_strategy.run(in_replica), autograph=False)
        self._exchange.wait()  # begin together: waiting for another worker is no part of the exchange
        began = time.perf_counter()
        for part in self._model.distribute_strategy.experimental_local_results(self._function()):
            part.numpy()
        self._report.heartbeat.beat()
        return time.perf_counter() - began


def transfer_seconds(spec: Any, samples: int, devices: Sequence[str]) -> float | None:
    """Return the time of copying a batch to the slowest idle GPU. None without one, for an unknown size, or if it
    fails: a copy without memory raises InternalError (TensorFlow 2.21: "Dst tensor is not initialized").
    """
    sizes = []
    for part in tf.nest.flatten(spec):
        if not isinstance(part, tf.TensorSpec) or part.shape.rank in (None, 0) or None in part.shape[1:]:
            return None
        sizes.append(samples * math.prod(part.shape[1:]) * part.dtype.size)
    try:
        with tf.device("/CPU:0"):
            batch = [tf.zeros([size], tf.uint8) for size in sizes if size]
        seconds = []
        for device in devices:
            _copy(device, batch)  # the first one also takes memory for the copies
            times = [_copy(device, batch) for _ in range(COPIES)]
            copying, reading = map(statistics.median, zip(*times, strict=True))
            seconds.append(max(0.0, copying - reading))
        return max(seconds, default=None)
    except tf.errors.OpError:
        return None


def _copy(device: str, batch: list[Any]) -> tuple[float, float]:
    """Return the seconds of copying the batch to the device and reading a byte back, and of reading it once more."""
    with tf.device("/CPU:0"):
        fresh = [tf.identity(part) for part in batch]  # a tensor keeps its first copy, and is not copied again
    with tf.device(device):
        times, there = [time.perf_counter()], [tf.identity(part) for part in fresh]
        for _ in range(2):
            for part in there:
                part[-1:].numpy()
            times.append(time.perf_counter())
        return times[1] - times[0], times[2] - times[1]
