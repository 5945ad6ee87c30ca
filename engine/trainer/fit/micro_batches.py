"""Steps that compute a batch in parts: loss and gradients are those of the whole, with the activations of one part
in memory. Exported scripts contain these functions as text (export/compile_and_fit.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import tensorflow as tf

from ...options import Options
from ..common.training_errors import TrainerError
from ..common.versions import get_keras_mask, unscale_loss_for_distribution
from ..data.finishing import rows_of, sample_count

_MEANS = {"sum_over_batch_size", "mean"}


def split_training(
    model: keras.Model, parts: int, prepare: Callable[[Any], Any] = lambda data: data, compiled: bool = False
) -> Callable[[Any], dict[str, Any]]:
    """Return a train_step that computes each batch in up to `parts` parts, and applies the gradients of the whole once.
    `prepare` is applied to each part. With `compiled`, XLA compiles the computation of a part, and the work after the
    parts, but not the loop, within which its code for CPUs computes a convolution with one thread only.
    """
    with_gradient: list[int] = []  # indexes of the weights that have a gradient

    def part(data: Any, share: Any) -> Any:
        with tf.GradientTape() as tape:
            loss, weight, divisor, logs = _forward(model, prepare(data), share, training=True)
            scaled = model.optimizer.scale_loss(loss)
        gradients = tape.gradient(scaled, model.trainable_weights)
        with_gradient[:] = [index for index, gradient in enumerate(gradients) if gradient is not None]
        return [weight * loss, divisor, *(_to_be_added(gradients[index], weight) for index in with_gradient)], logs

    def applied(loss: Any, divisor: Any, sums: Any, count: Any) -> Any:
        _count_loss(model, tf.math.divide_no_nan(loss, divisor), count)
        weights = model.trainable_weights
        gradients: list[Any] = [None] * len(weights)
        for index, total in zip(with_gradient, sums, strict=True):
            mean = tf.math.divide_no_nan(total, tf.cast(divisor, total.dtype))
            gradients[index] = tf.cast(mean, weights[index].dtype)
        if weights:
            model.optimizer.apply_gradients(zip(gradients, weights, strict=True))
        return model.get_metrics_result()

    apply = tf.function(applied, autograph=False, jit_compile=True) if compiled else applied

    def step(data: Any) -> dict[str, Any]:
        (loss, divisor, *sums), logs = _over_parts(part, data, parts, compiled)
        return logs | apply(loss, divisor, sums, tf.convert_to_tensor(sample_count(data)))

    return step


def split_testing(
    model: keras.Model, parts: int, prepare: Callable[[Any], Any] = lambda data: data, compiled: bool = False
) -> Callable[[Any], dict[str, Any]]:
    """Return a test_step that computes each batch in up to `parts` parts. `prepare` is applied to each part."""
    whole, custom = model.test_step, type(model).test_step is not keras.Model.test_step

    def part(data: Any, share: Any) -> Any:
        if custom:
            return [], whole(prepare(data))
        loss, weight, divisor, logs = _forward(model, prepare(data), share, training=False)
        return [weight * loss, divisor], logs

    def step(data: Any) -> dict[str, Any]:
        sums, logs = _over_parts(part, data, parts, compiled)
        if custom:
            return dict(logs)
        _count_loss(model, tf.math.divide_no_nan(*sums), sample_count(data))
        return logs | model.get_metrics_result()

    return step


def _forward(model: keras.Model, data: Any, share: Any, training: bool) -> tuple[Any, Any, Any, dict[str, Any]]:
    """Return the loss of a part, the weight of its gradients, its addend to their divisor, and the metrics."""
    x, y, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    predicted = model(x, training=training) if model._call_has_training_arg else model(x)
    loss = model._compute_loss(x=x, y=y, y_pred=predicted, sample_weight=sample_weight, training=training)
    logs = model.compute_metrics(x, y, predicted, sample_weight=sample_weight)
    if reductions(model) == {"sum"}:  # losses that layers add are in each part
        added = [model._aggregate_additional_loss(extra) for extra in model.losses]
        loss += sum(added, tf.zeros_like(loss)) * (tf.cast(share, loss.dtype) - 1)
        return loss, tf.ones_like(loss), tf.cast(share, loss.dtype), dict(logs)
    weight = tf.cast(_counts_as(model, data, predicted), loss.dtype)
    if not isinstance(rows := sample_count(data), int):  # without samples the losses of weights, such as L2, remain
        weight = tf.where(rows == 0, tf.ones_like(weight), weight)
    return loss, weight, weight, dict(logs)


def _counts_as(model: keras.Model, data: Any, predicted: Any) -> Any:
    """Return over what the loss of the part is a mean: its samples, the sum of their weights, or elements of a mask."""
    x, _, sample_weight = keras.utils.unpack_x_y_sample_weight(data)
    masks = [get_keras_mask(output) for output in tf.nest.flatten(predicted)]
    by_weight = "mean_with_sample_weight" in reductions(model)
    if len(masks) > 1 and (by_weight or any(mask is not None for mask in masks)):
        raise ValueError(
            "the losses of several outputs with masks or mean_with_sample_weight cannot be computed in parts: set "
            "train.micro_batches=1"
        )
    mask = None if masks[0] is None or not reductions(model) else tf.cast(masks[0], keras.config.floatx())
    if not by_weight or sample_weight is None:
        return sample_count(x) if mask is None else tf.reduce_sum(mask)
    weights = tf.cast(sample_weight, keras.config.floatx())
    if mask is None:
        return tf.reduce_sum(weights)
    missing = len(mask.shape) - len(weights.shape)
    return tf.reduce_sum(mask * tf.reshape(weights, tf.concat([tf.shape(weights), [1] * missing], 0)))


def reductions(model: keras.Model) -> set[Any]:
    """Return the names of the reductions by which the compiled losses make one number of the samples' losses; None
    stands for a loss without one. Empty if the model has no compiled loss or computes its own.
    """
    compiled = getattr(model, "_compile_loss", None)
    if compiled is None or type(model).compute_loss is not keras.Model.compute_loss:
        return set()
    return {getattr(each.loss, "reduction", None) for each in compiled._flat_losses or ()}


def _count_loss(model: keras.Model, loss: Any, samples: Any) -> None:
    """Add the loss of the whole batch, of `samples` samples, to the running mean, as Keras' own steps do."""
    model._loss_tracker.update_state(unscale_loss_for_distribution(loss), sample_weight=samples)


def _to_be_added(gradient: Any, weight: Any) -> Any:
    """Return the gradient times its weight, a dense tensor of at least 32 bits, whose sum is more precise."""
    dense = tf.convert_to_tensor(gradient)
    if dense.dtype in (tf.float16, tf.bfloat16):
        dense = tf.cast(dense, keras.config.floatx())
    return dense * tf.cast(weight, dense.dtype)


def _over_parts(part: Callable[[Any, Any], Any], data: Any, parts: int, compiled: bool) -> Any:
    """Return the sums of what `part` returns for the parts of the batch `data`, and the logs of the last part."""
    traced = tf.function(part, autograph=False, reduce_retracing=True, jit_compile=True if compiled else None)
    rows = sample_count(data)
    size = -(-rows // parts)
    if not isinstance(rows, int):
        size = tf.maximum(size, 1)  # a replica may get no sample of a small last batch
    whole = rows // size

    def of(first: Any, count: Any) -> Any:
        taken = tf.nest.map_structure(lambda tensor: rows_of(tensor, first, count), data)
        at_least_one = (tf.cast(tf.maximum(number, 1), keras.config.floatx()) for number in (count, rows))
        return traced(taken, tf.divide(*at_least_one))

    def added(state: Any, first: Any, count: Any) -> Any:
        """Return `state` (sums and logs) with the part of `count` rows from `first` added. It begins after the parts
        before it, as otherwise TensorFlow would compute several at once.
        """
        with tf.control_dependencies(tf.nest.flatten(state)):
            first = tf.identity(first)
        sums, logs = of(first, count)
        return [total + part_sum for total, part_sum in zip(state[0], sums, strict=True)], logs

    start = of(0, size if isinstance(rows, int) else tf.minimum(size, rows))
    shapes = tf.nest.map_structure(lambda tensor: tf.TensorShape([None] * len(tensor.shape)), start[1])
    fixed = [tensor.shape for tensor in start[0]]
    _, state = tf.while_loop(
        lambda number, _state: number < whole,
        lambda number, state: (number + 1, added(state, number * size, size)),
        (tf.constant(1), start),
        shape_invariants=(tf.TensorShape([]), (fixed, shapes)),
        parallel_iterations=1,
    )
    left = rows - whole * size
    if isinstance(left, int):
        return added(state, whole * size, left) if left else state
    return tf.cond(left > 0, lambda: added(state, whole * size, left), lambda: state)


def require_divisible(options: Options, model: keras.Model, replicas: int) -> None:
    """Raise TrainerError if the options ask for parts, but batches of this model cannot be computed in parts."""
    asked = [f"train.micro_batches={options.train.micro_batches}"] if options.train.micro_batches > 1 else []
    if options.run.on_oom == "accumulate":
        asked.append("run.on_oom=accumulate")
    if asked and (reason := obstacle_to_parts(model, replicas)):
        hint = "set train.micro_batches=1, and run.on_oom to stop or halve"
        raise TrainerError("micro_batches", f"{' and '.join(asked)} cannot be used: {reason}", hint)


def obstacle_to_parts(model: keras.Model, replicas: int) -> str:
    """Return the reason why batches of this model cannot be computed in parts on `replicas` replicas, if any."""
    name = type(model).__name__
    if type(model).train_step is not keras.Model.train_step or "train_step" in vars(model):
        return f"{name} has a train_step of its own, which applies its gradients itself"
    if replicas > 1 and model.jit_compile:
        return "XLA compiles it for whole batches only over several replicas (compile.xla)"
    if any(tensor.shape[0] is not None for tensor in getattr(model, "inputs", None) or ()):
        return "its inputs have a fixed batch size"
    if any(getattr(layer, "stateful", False) for layer in model._flatten_layers()):
        return "it has stateful layers, which keep a state for each sample of a whole batch"
    kinds = reductions(model)
    if kinds - _MEANS and len(kinds) > 1:
        return f"its losses have several reductions ({', '.join(sorted(map(str, kinds)))})"
    if kinds & {None, "none"}:
        return "its loss has no reduction, so that it is not a single number"
    if kinds and len(model._compile_loss._flat_losses) > 1 and "mean_with_sample_weight" in kinds:
        return "its losses are means by sample weights that differ from output to output"
    return ""
