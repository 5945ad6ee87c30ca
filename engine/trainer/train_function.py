"""The function `model.fit` calls for each execution: several steps in one graph, the input wait measured in it.

Separates the graph (built once, here) from the loop around it (loop.py). It replaces Keras' own because that one
fails with strategies and several steps an execution, overruns an epoch that the executions do not divide, and
cannot tell waiting for input from computing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

Logs = dict[str, Any]
Execute = Callable[[Any, Any], Logs]


class WaitMeter:
    """Seconds that the host waited for input, counted on the CPU inside the graph: all of them, or with `first_only`
    those of the first step of the last execution.

    TensorFlow refuses to read the clock in a graph when operations must be deterministic: then there is no reading.
    """

    def __init__(self, deterministic: bool, first_only: bool = False) -> None:
        self._measures, self._first_only = not deterministic, first_only
        with tf.device("/CPU:0"):
            self._seconds = tf.Variable(0.0, dtype=tf.float64, trainable=False)

    def read(self) -> float | None:
        return float(self._seconds.numpy()) if self._measures else None

    def first(self, iterator: Any) -> tuple[Any, Any]:
        """The first batch of an execution, and the seconds that it was waited for."""
        return _timed(iterator) if self._measures else _untimed(iterator)

    def next(self, iterator: Any) -> tuple[Any, Any]:
        """Any further batch, and its seconds."""
        return _timed(iterator) if self._measures and not self._first_only else _untimed(iterator)

    def add(self, seconds: Any) -> None:
        """Once an execution: what it waited. The sum of its steps stays in the loop, where it costs least."""
        if self._measures and self._first_only:
            self._seconds.assign(seconds, read_value=False)
        elif self._measures:
            self._seconds.assign_add(seconds, read_value=False)


def _timed(iterator: Any) -> tuple[Any, Any]:
    """`iterator.get_next()` between two readings of the clock."""
    begin = tf.timestamp()
    with tf.control_dependencies([begin]):
        data = iterator.get_next()
    with tf.control_dependencies(_tensors(data)):
        return data, tf.timestamp() - begin


def _untimed(iterator: Any) -> tuple[Any, Any]:
    return iterator.get_next(), tf.constant(0.0, tf.float64)


def training(model: keras.Model, meter: WaitMeter) -> Execute:
    """execute(iterator, count) runs `count` training steps and returns the logs of the last."""
    strategy = model.distribute_strategy
    compiled = bool(model.jit_compile)
    mirrored = strategy.num_replicas_in_sync > 1
    step = _gradients_compiled_step(model) if compiled and mirrored else model.train_step
    return _repeated(_one_step(model, step, compiled and not mirrored), meter)


def testing(model: keras.Model) -> Execute:
    """execute(iterator, count) runs `count` evaluation steps."""
    compiled = bool(model.jit_compile) and model.distribute_strategy.num_replicas_in_sync == 1
    return _repeated(_one_step(model, model.test_step, compiled), WaitMeter(deterministic=True))


def _repeated(one: Callable[[Any], Logs], meter: WaitMeter) -> Execute:
    def further(iterator: Any, done: Any, waited: Any) -> tuple[Any, Any, Logs]:
        data, seconds = meter.next(iterator)
        return done + 1, waited + seconds, one(data)

    @tf.autograph.experimental.do_not_convert
    def execute(iterator: Any, count: Any) -> Logs:
        data, waited = meter.first(iterator)
        logs = one(data)
        _, waited, logs = tf.while_loop(
            lambda done, *_: done < count,
            lambda done, waited, _: further(iterator, done, waited),
            (tf.constant(1), waited, logs),
        )
        meter.add(waited)
        return logs

    return tf.function(execute, reduce_retracing=True)


def _one_step(model: keras.Model, step: Callable[[Any], Logs], compiled: bool) -> Callable[[Any], Logs]:
    """A step on one (distributed) batch, its logs reduced over the replicas."""
    strategy = model.distribute_strategy

    @tf.autograph.experimental.do_not_convert
    def one(data: Any) -> Logs:
        logs = strategy.run(step, args=(data,))
        return {name: _mean(value, strategy) for name, value in logs.items()}

    if not compiled:
        return one
    return tf.function(one, jit_compile=True, reduce_retracing=True)


def _mean(value: Any, strategy: tf.distribute.Strategy) -> Any:
    if isinstance(value, tf.distribute.DistributedValues):
        parts = strategy.experimental_local_results(value)
        return tf.reduce_mean(tf.stack([tf.cast(part, tf.float32) for part in parts]))
    return tf.cast(value, tf.float32)


def _tensors(data: Any) -> list[Any]:
    found: list[Any] = []
    for item in tf.nest.flatten(data):
        found.extend(item.values if isinstance(item, tf.distribute.DistributedValues) else [item])
    return found


def _gradients_compiled_step(model: keras.Model) -> Callable[[Any], Logs]:
    """A training step for several replicas of which only the pure part, loss and gradients, is compiled by XLA.

    Variables of a strategy cannot be assigned inside compiled code, so their values go in and come out as tensors.
    """
    optimizer = model.optimizer
    scaled = hasattr(optimizer, "dynamic_scale")

    def pure(weights: Any, others: Any, x: Any, y: Any, scale: Any) -> tuple[Any, Any, Any, Any]:
        with tf.GradientTape() as tape:
            tape.watch(weights)
            predicted, new_others = model.stateless_call(weights, others, x, training=True)
            loss = model.compute_loss(x=x, y=y, y_pred=predicted, training=True)
            to_differentiate = loss * scale
        return loss, predicted, tape.gradient(to_differentiate, weights), new_others

    by_replica: dict[int, Any] = {}

    def step(data: Any) -> Logs:
        x, y = data
        replica = int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))
        # Traced once for each replica: a trace remembers the device it was made on.
        compiled = by_replica.setdefault(replica, tf.function(pure, jit_compile=True, reduce_retracing=True))
        weights = [tf.convert_to_tensor(v.value) for v in model.trainable_variables]
        others = [tf.convert_to_tensor(v.value) for v in model.non_trainable_variables]
        scale = tf.convert_to_tensor(optimizer.dynamic_scale.value) if scaled else tf.constant(1.0)
        loss, predicted, gradients, new_others = compiled(weights, others, x, y, scale)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        for variable, value in zip(model.non_trainable_variables, new_others, strict=True):
            variable.assign(value)
        replicas = model.distribute_strategy.num_replicas_in_sync
        model._loss_tracker.update_state(loss * replicas, sample_weight=tf.shape(x)[0])
        return model.compute_metrics(x, y, predicted)

    return step
