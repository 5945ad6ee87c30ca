"""The arithmetic of a training step, counted once from the traced graph, and the peak that it is compared with
(MFU). The count is of a forward pass, and a step counts as three, as the backward pass computes each product twice:
recomputation and the optimizer make no training look better. TensorFlow's profiler counts all but Einsum. If a
product's operations are not known there is no figure.
"""

from __future__ import annotations

import math
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import keras
import tensorflow as tf

from ... import plan
from ...gpu import TrainingGpu
from ...job.environment_variables import tf32_overridden
from ...options import Options
from ...telemetry.chips import number_format, peak_flops

PASSES = 3
_PRODUCTS = ("MatMul", "Conv", "Einsum")  # in the names of operations, such as BatchMatMulV2 and Conv2D


def peak(options: Options, gpus: Sequence[TrainingGpu], replicas: int) -> float | None:
    """Return the dense FLOP/s of all training GPUs together, in the number format of their matrix products. None for
    an unknown chip, different ones, or a part of one (MIG). NVIDIA_TF32_OVERRIDE=0 overrules TensorFlow's setting.
    """
    used = plan.gpus_used(replicas, options.device.logical_devices)
    tf32 = options.precision.tf32 and not tf32_overridden()
    numbers = number_format(options.precision.policy, tf32)
    peaks = {None if gpu.mig else peak_flops(gpu.name, numbers) for gpu in gpus}
    peak_of_chip = peaks.pop() if len(peaks) == 1 else None  # different chips wait for the slowest: no common peak
    return peak_of_chip * used if peak_of_chip is not None else None


def per_step(model: keras.Model, global_batch_size: int) -> float | None:
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
    """Return the floating point operations of a forward pass with one sample. None if they cannot be counted."""
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
