"""The arithmetic of a training step, counted once from the traced graph, and the peak it is measured against (MFU).

Separates what the model needs from what the device does: the count is of one forward pass, and a training step is taken
as three of them (the backward pass computes each product twice, once for the inputs and once for the weights), so that
recomputation and the optimizer do not make a training look better used than it is.
"""

from __future__ import annotations

import traceback

import keras
import tensorflow as tf

from ..machine import Gpu
from ..options import Options
from ..telemetry.chips import number_format, peak_flops

PASSES = 3
_PRODUCTS = ("MatMul", "Conv", "Einsum")


def peak(options: Options, gpus: list[Gpu], replicas: int) -> float | None:
    """Dense FLOP/s of all GPUs that train, in the number format of their products; None where a chip is unknown."""
    used = -(-replicas // options.device.logical_devices)
    wanted = number_format(options.precision.policy, options.precision.tf32)
    peaks = {peak_flops(gpu.name, wanted) for gpu in gpus}
    one = peaks.pop() if len(peaks) == 1 else None  # of mixed chips it is not known which ones train
    return one * used if one is not None else None


def per_step(model: keras.Model, global_batch_size: int) -> float | None:
    """Floating point operations of a training step, or None where they cannot be counted."""
    if type(model).train_step is not keras.Model.train_step:
        return None  # a step of the user's own may pass through the model any number of times
    try:
        forward = _forward(model)
    except Exception:  # the training itself does not need the count; engine.log tells why there is none
        traceback.print_exc()
        return None
    return float(PASSES * forward * global_batch_size) if forward else None


def _forward(model: keras.Model) -> int | None:
    """Operations of a forward pass with one sample."""
    sample = tf.TensorSpec((1, *model.input_shape[1:]), model.inputs[0].dtype)
    graph = tf.function(lambda x: model(x, training=False), autograph=False).get_concrete_function(sample).graph
    library = graph.as_graph_def().library.function
    if any(product in node.op for function in library for node in function.node_def for product in _PRODUCTS):
        return None  # products in a loop or a function of their own are run who knows how often
    profiler = tf.compat.v1.profiler
    options = profiler.ProfileOptionBuilder(profiler.ProfileOptionBuilder.float_operation())
    found = profiler.profile(graph, options=options.with_empty_output().build())
    return int(found.total_float_ops) if found else None
