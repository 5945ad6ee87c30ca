"""The function that `model.fit` calls for each execution: several steps in one graph, with the input wait measured.
It replaces Keras' own, which fails for strategies with several steps in an execution, runs too many steps if the
executions do not divide the epoch, and cannot separate waiting for input from computing.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from ..common.logs import flat
from ..common.training_errors import TrainerError
from ..common.versions import GLOBAL_SEED_GENERATOR, get_global_attribute, set_global_attribute
from ..data.finishing import first_cast, sample_count
from ..data.pipeline import Pipeline
from ..measure.step_parts import GraphClock, StepParts
from .micro_batches import split_testing, split_training

Logs = dict[str, Any]
Execution = Callable[[Any, Any], tuple[Logs, Any]]  # runs steps: the logs of the last, and the samples of all


def training(model: keras.Model, clocks: Sequence[GraphClock], scale: float | None = None, parts: int = 1) -> list[Any]:
    """A tf.function (an Execution) for each clock; all share XLA's code of a step. `scale` makes floats of bytes;
    `parts` of each batch.
    """
    step = _step(model, scale, parts, trains=True)
    return [_execution(model, step, clock) for clock in clocks]


def _step(model: keras.Model, scale: float | None, parts: int, trains: bool) -> Callable[[Any], Logs]:
    compiled, mirrored = bool(model.jit_compile), model.distribute_strategy.num_replicas_in_sync > 1
    if parts > 1:
        split, cast = split_training if trains else split_testing, first_cast(lambda data: data, scale)
        # The other parts stay bytes until they are computed.
        return _one_step(model, split(model, parts, cast, compiled and (trains or not mirrored)), False)
    of_keras = model.train_step if trains else model.test_step
    if trains and compiled and mirrored:
        of_keras = _gradients_compiled_step(model)
    return _one_step(model, first_cast(of_keras, scale), compiled and not mirrored)


def testing(model: keras.Model, scale: float | None, parts: int) -> Any:
    return _execution(model, _step(model, scale, parts, trains=False), GraphClock(deterministic=True))


def one(model: keras.Model, parts: int, trains: bool) -> Any:
    """A step on a batch that was already drawn, for train_on_batch and evaluations of an unknown number of batches: in
    a graph, the end of the data would count as a step.
    """
    return tf.function(_step(model, None, parts, trains), reduce_retracing=True)


def _execution(model: keras.Model, step: Callable[[Any], Logs], clock: GraphClock) -> Any:
    # A loop traces the step a second time, so there is none if an execution always has one step.
    of_one = int(model.steps_per_execution) == 1
    samples = functools.partial(_samples, strategy=model.distribute_strategy)

    def further(iterator: Any, done: Any, waited: Any, trained: Any) -> tuple[Any, Any, Any, Logs]:
        data, waited = clock.next(iterator, waited)
        return done + 1, waited, trained + samples(data), step(data)

    @tf.autograph.experimental.do_not_convert
    def execute(iterator: Any, count: Any) -> tuple[Logs, Any]:
        data, begun, waited = clock.first(iterator)
        logs = step(data)
        trained = samples(data)
        if not of_one:
            start = (tf.constant(1), waited, trained, logs)
            _, waited, trained, logs = tf.while_loop(
                lambda done, *_: done < count,
                lambda done, waited, trained, _: further(iterator, done, waited, trained),
                start,
                # A figure for each sample is shorter in a smaller last batch.
                shape_invariants=tf.nest.map_structure(
                    lambda each: tf.TensorShape(None if each.shape.rank is None else [None] * each.shape.rank), start
                ),
            )
        clock.end(begun, waited)
        return logs, trained

    return tf.function(execute, reduce_retracing=True)


def _samples(data: Any, strategy: tf.distribute.Strategy) -> Any:
    # On a GPU, numbers of 32 bits are in the host's memory: counting waits for no device. Each machine counts the same.
    first = next(part for part in tf.nest.flatten(data) if part is not None)
    parts = strategy.experimental_local_results(first)
    workers = strategy.num_replicas_in_sync // len(parts)
    return tf.convert_to_tensor(workers * sum(sample_count(part) for part in parts), tf.int32)


def _one_step(model: keras.Model, step: Callable[[Any], Logs], compiled: bool) -> Callable[[Any], Logs]:
    """Return a function that runs `step`, compiled by XLA or not, on one batch, and returns logs over all replicas."""
    strategy = model.distribute_strategy

    generator = get_global_attribute(GLOBAL_SEED_GENERATOR)

    def in_replica(data: Any) -> Logs:
        # Keras keeps the generator by thread, and a replica is traced in its own thread.
        set_global_attribute(GLOBAL_SEED_GENERATOR, generator)
        return step(data)

    threaded = tf.distribute.MirroredStrategy, tf.distribute.MultiWorkerMirroredStrategy
    mirrored = isinstance(strategy, threaded)
    of_replica = in_replica if mirrored and generator is not None else step

    @tf.autograph.experimental.do_not_convert
    def distributed_step(data: Any) -> Logs:
        returned = strategy.run(of_replica, args=(data,))
        logs = flat(returned) if isinstance(returned, dict) else {}
        figures = {name: _mean(value, strategy) for name, value in logs.items() if _is_figure(value, strategy)}
        if not figures:
            what = f"the train_step or test_step of {type(model).__name__} returns no figures"
            raise TrainerError("user_code", what, "return a dict of metrics, such as {'loss': loss}")
        return figures

    if not compiled:
        return distributed_step
    return tf.function(distributed_step, jit_compile=True, reduce_retracing=True)


def _mean(value: Any, strategy: tf.distribute.Strategy) -> Any:
    if isinstance(value, tf.distribute.DistributedValues):
        parts = strategy.experimental_local_results(value)
        return tf.reduce_mean(tf.stack([_float(part) for part in parts]), axis=0)
    return _float(value)


def _float(value: Any) -> Any:
    tensor = tf.convert_to_tensor(value)
    return tensor if tensor.dtype == tf.float64 else tf.cast(tensor, tf.float32)


def _is_figure(value: Any, strategy: tf.distribute.Strategy) -> bool:
    try:
        kind = tf.convert_to_tensor(strategy.experimental_local_results(value)[0]).dtype
    except (TypeError, ValueError):
        return False
    return bool(kind.is_floating or kind.is_integer or kind.is_bool)


def _gradients_compiled_step(model: keras.Model) -> Callable[[Any], Logs]:
    """Variables of a strategy cannot be assigned in compiled code: values go in, and come out as tensors."""
    optimizer = model.optimizer
    scaled = hasattr(optimizer, "dynamic_scale")

    def pure(weights: Any, others: Any, data: Any, scale: Any) -> tuple[Any, Any, Any, Any]:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        with tf.GradientTape() as tape:
            tape.watch(weights)
            predicted, new_others = model.stateless_call(weights, others, x, training=True)
            loss = model.compute_loss(x=x, y=y, y_pred=predicted, sample_weight=sample_weight, training=True)
            to_differentiate = loss * scale
        return loss, predicted, tape.gradient(to_differentiate, weights), new_others

    by_replica: dict[int, Any] = {}

    def step(data: Any) -> Logs:
        x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
        replica = int(tf.get_static_value(tf.distribute.get_replica_context().replica_id_in_sync_group))
        # Traced once for each replica: a trace remembers the device it was made on.
        compiled = by_replica.setdefault(replica, tf.function(pure, jit_compile=True, reduce_retracing=True))
        weights = [tf.convert_to_tensor(v.value) for v in model.trainable_variables]
        others = [tf.convert_to_tensor(v.value) for v in model.non_trainable_variables]
        scale = tf.convert_to_tensor(optimizer.dynamic_scale.value) if scaled else tf.constant(1.0)
        loss, predicted, gradients, new_others = compiled(weights, others, data, scale)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables, strict=True))
        for variable, value in zip(model.non_trainable_variables, new_others, strict=True):
            variable.assign(value)
        replicas = model.distribute_strategy.num_replicas_in_sync
        model._loss_tracker.update_state(loss * replicas, sample_weight=tf.shape(tf.nest.flatten(x)[0])[0])
        return model.compute_metrics(x, y, predicted, sample_weight)

    return step


@functools.cache
def constant(count: int) -> Any:
    """Return a number of steps as a tensor on the CPU, which is the form that the graph takes."""
    with tf.device("/CPU:0"):
        return tf.constant(count)


class Executions:
    """The function of the training steps, traced once. If only some executions have a clock in their graph (on a
    GPU), that is a second graph, which is traced when it is first needed.
    """

    def __init__(self, model: keras.Model, pipeline: Pipeline, parts: StepParts, micro_batches: int) -> None:
        clocks = [GraphClock(deterministic=True), parts.clock] if parts.samples else [parts.clock]
        functions = training(model, clocks, pipeline.train.device_scale, micro_batches)
        self.run_steps: Execution = functions[0]
        self._traced = functions[0]
        self._clocked, self._clock_has_run = functions[-1], not parts.samples
        self._parts = parts
        self.run_one = one(model, micro_batches, trains=True)
        self._batches_per_pass = pipeline.batches_per_pass
        self._sizes_differ = pipeline.replicas > 1 and pipeline.smaller_last_batch

    def traces(self) -> int:
        """Return the number of times that TensorFlow has traced the steps, without the graph with the clock."""
        return self._traced.experimental_get_tracing_count()

    def always_with_clock(self) -> None:
        """An operation that draws random numbers has another state in each of two graphs."""
        self.run_steps = self._traced = self._clocked
        self._clock_has_run = True

    @property
    def clock_is_due(self) -> bool:
        """True if the next execution has to trace the graph with the clock, which it is the first to use."""
        return self._parts.sample_is_due and not self._clock_has_run

    def run(self, iterator: Any, step: int, count: int) -> Any:
        """Run the `count` steps after `step`. Replicas exchange gradients of embeddings by their size, which must not
        change within an execution: a smaller last batch is then executed separately.
        """
        logs: Any = {}
        for part in self._same_size(step, count) if self._sizes_differ else (count,):
            run_steps = self.run_steps
            if self._parts.sample_is_due:
                run_steps, self._clock_has_run = self._clocked, True
            self._parts.begins()
            logs, samples = run_steps(iterator, constant(part))
            self._parts.after(part, logs, samples)
        return logs

    def trace(self, iterator: Any, count: int, with_clock: bool = False) -> Any:
        return (self._clocked if with_clock else self._traced).get_concrete_function(iterator, constant(count))

    def _same_size(self, step: int, count: int) -> Iterator[int]:
        beyond, batches = step + count, self._batches_per_pass
        while step < beyond:
            before_last = batches - 1 - step % batches
            part = min(beyond - step, before_last or 1)
            yield part
            step += part
