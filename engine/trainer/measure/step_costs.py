"""What a step costs, found once. Its arithmetic is counted in the traced graph and compared with the peak of the GPUs
(MFU): a step counts as three forward passes, as the backward pass computes each product twice, so that recomputation
and the optimizer make no training look better. Its communication is within one graph with computing, so it is timed
between two executions, at the same step on all workers: the trainable weights, as large as their gradients, are summed
up over all replicas, and a batch is copied to a GPU.
"""

from __future__ import annotations

import math
import statistics
import time
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from ... import plan
from ...gpu import TrainingGpu
from ...job.environment_variables import tf32_overridden
from ...options import Options
from ...runs import events
from ...telemetry.chips import number_format, peak_flops
from ..cluster.exchange import Exchange
from .run_report import RunReport

PASSES = 3
_PRODUCTS = ("MatMul", "Conv", "Einsum")  # in the names of operations, such as BatchMatMulV2 and Conv2D


def peak_flops_per_second(options: Options, gpus: Sequence[TrainingGpu], replicas: int) -> float | None:
    """Return the dense FLOP/s of all training GPUs together, in the number format of their matrix products. None for
    an unknown chip, different ones, or a part of one (MIG). NVIDIA_TF32_OVERRIDE=0 overrules TensorFlow's setting.
    """
    used = plan.gpus_used(replicas, options.device.logical_devices)
    tf32 = options.precision.tf32 and not tf32_overridden()
    numbers = number_format(options.precision.policy, tf32)
    peaks = {None if gpu.mig else peak_flops(gpu.name, numbers) for gpu in gpus}
    peak_of_chip = peaks.pop() if len(peaks) == 1 else None  # different chips wait for the slowest: no common peak
    return peak_of_chip * used if peak_of_chip is not None else None


def flops_per_step(model: keras.Model, global_batch_size: int) -> float | None:
    """Return the floating point operations of a training step. None if they cannot be counted."""
    if type(model).train_step is not keras.Model.train_step:
        return None  # the user's own step may run the model any number of times
    try:
        forward = _forward(model)
    except Exception:  # noqa: BLE001 - the training does not need the count; engine.log says why there is none
        traceback.print_exc()
        return None
    return float(PASSES * forward * global_batch_size) if forward else None


def _forward(model: keras.Model) -> int | None:
    """Of one sample, by TensorFlow's profiler, which counts all but Einsum. None if they cannot be counted."""
    sample = tf.TensorSpec((1, *model.input_shape[1:]), model.inputs[0].dtype)
    graph = tf.function(lambda x: model(x, training=False), autograph=False).get_concrete_function(sample).graph
    library = graph.as_graph_def().library.function
    if any(_is_product(node.op) for function in library for node in function.node_def):
        return None  # products in a loop or a separate function run an unknown number of times
    counted = dict(_counted(graph)) | {op.name: _einsum(op) for op in graph.get_operations() if op.type == "Einsum"}
    if any(_is_product(op.type) and len(op.inputs) > 1 and not counted.get(op.name) for op in graph.get_operations()):
        return None
    return sum(count for count in counted.values() if count is not None)


def _is_product(kind: str) -> bool:
    return any(product in kind for product in _PRODUCTS)


def _counted(graph: tf.Graph) -> Iterator[tuple[str, int | None]]:
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation())
    scopes = [profiler.profile(graph, options=options.with_empty_output().build())]
    while scopes:
        scope = scopes.pop()
        scopes.extend(scope.children)
        yield scope.name, scope.float_ops


def _einsum(op: Any) -> int | None:
    """A multiplication and an addition for each combination of indices (letters, or axes of "...", from the last)."""
    if len(op.inputs) < 2:
        return 0
    sizes: dict[str, int] = {}
    for letters, tensor in zip(op.get_attr("equation").decode().split("->")[0].split(","), op.inputs, strict=True):
        if not tensor.shape.is_fully_defined():
            return None
        before, _, after = letters.partition("...")
        more = tensor.shape.rank - len(before) - len(after)
        labels = [*before, *(f"...{number}" for number in range(more, 0, -1)), *after]
        for label, size in zip(labels, tensor.shape.as_list(), strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    return 2 * math.prod(sizes.values())


# ---- communication ----------------------------------------------------------------------------------


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
