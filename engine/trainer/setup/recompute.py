"""Recomputed activations (gradient checkpointing, Chen et al. 2016): of a Functional model only the tensors between its
segments are kept for the gradients, and a segment is computed again when its gradients are. Exported scripts contain
these functions as text. keras.RematScope, which is meant for this, fails with TensorFlow in Keras 3.15.
"""

from __future__ import annotations

import math
from typing import Any

import keras
import tensorflow as tf

from ..common.training_errors import TrainerError
from ..common.versions import get_keras_mask

RANDOM = ("RandomUniform", "RandomUniformInt", "RandomStandardNormal", "TruncatedNormal", "Multinomial")


def apply(model: keras.Model) -> None:
    """Raise TrainerError if the activations of the model cannot be computed again."""
    try:
        recompute(model)
    except ValueError as fault:
        what = f"compile.recompute cannot be used with the model {model.name}: {fault}"
        raise TrainerError("recompute", what, "set compile.recompute=false") from None


def recompute(model: keras.Model) -> None:
    """Let a training step of the model keep only what stands between its segments. ValueError says why it cannot."""
    graphs = [graph for layer in model._flatten_layers() if (graph := _graph_of(layer)) is not None]
    within = {id(_graph_of(layer)) for graph in graphs for layer in graph._flatten_layers(include_self=False)}
    if not graphs:
        raise ValueError("no part of it is a Functional or Sequential model")
    if not sum(_recompute_segments(graph) for graph in graphs if id(graph) not in within):
        raise ValueError("it has no place where a single tensor leads from one half of its layers to the other")


def _graph_of(layer: Any) -> Any:
    """Return the model if it is a Functional one, that of a Sequential one, or None."""
    layer = getattr(layer, "_functional", None) or layer
    is_own = type(layer).call.__module__ != "keras.src.models.functional"
    return None if is_own or not hasattr(layer, "_nodes_by_depth") else layer


def _recompute_segments(model: Any) -> int:
    """Return how many there are. Of a model that is mostly one within it, such as a backbone, that one is divided."""
    depths = sorted(model._nodes_by_depth, reverse=True)
    nodes = [node for depth in depths for node in model._nodes_by_depth[depth] if not node.is_input]
    sizes = _floats_of(model, nodes)
    for part in (node.operation for node in nodes):
        of_part = sum(size for node, size in zip(nodes, sizes, strict=True) if node.operation is part)
        if 2 * of_part > sum(sizes) and (graph := _graph_of(part)) is not None:
            return _recompute_segments(graph)
    segments, whole = _divided(model, nodes, sizes), model.call

    def call(inputs: Any, training: Any = None, mask: Any = None) -> Any:
        if not training or mask is not None:
            return whole(inputs, training=training, mask=mask)
        tensors = dict(zip(map(id, model.inputs), model._standardize_inputs(inputs), strict=True))
        for segment in segments[:-1]:
            tensors = _recomputed(segment, tensors)
        _compute(segments[-1], tensors)
        outputs = keras.tree.pack_sequence_as(model._outputs_struct, [tensors[id(output)] for output in model.outputs])
        return outputs[0] if isinstance(outputs, list | tuple) and len(outputs) == 1 else outputs

    model.call = call
    return len(segments) - 1


def _compute(nodes: list[Any], tensors: dict[int, Any]) -> None:
    """Add the outputs of the nodes to `tensors`, which has tensors by the ids of the model's symbolic ones."""
    for node in nodes:
        arguments, named = node.arguments.fill_in(tensors)
        if getattr(node.operation, "_call_has_training_arg", False):
            named["training"] = True
        outputs = node.operation(*arguments, **named)
        tensors.update(zip(map(id, node.outputs), tf.nest.flatten(outputs), strict=True))


def _recomputed(nodes: list[Any], tensors: dict[int, Any]) -> dict[int, Any]:
    """Return the one tensor to which the nodes lead. Inputs of other types than floats have no gradient, and what
    comes of them alone is kept.
    """
    if not all(tensor.dtype.is_floating for tensor in tensors.values()):
        _compute(nodes, tensors)
        return {id(nodes[-1].outputs[0]): tensors[id(nodes[-1].outputs[0])]}
    layers = {id(node.operation): node.operation for node in nodes}.values()
    state = [each for layer in layers for each in getattr(layer, "variables", ()) if not each.trainable]
    before = [(each, tf.identity(each.value)) for each in state]
    is_first = iter((True,))

    def segment(*values: Any) -> Any:
        inner = dict(zip(tensors, values, strict=True))
        if next(is_first, False):
            _compute(nodes, inner)
        else:  # with the seeds and averages of before, and without a change of them
            with keras.StatelessScope(state_mapping=before):
                _compute(nodes, inner)
        return inner[id(nodes[-1].outputs[0])]

    return {id(nodes[-1].outputs[0]): tf.recompute_grad(segment)(*tensors.values())}


def _floats_of(model: Any, nodes: list[Any]) -> list[int]:
    """Return of each node how many floats of a sample its operations make. ValueError for what recomputing changes:
    losses and random numbers of layers that are computed twice, and masks, which do not pass from segment to segment.
    """
    sizes, masked = list[int](), list[str]()

    @tf.function(autograph=False)
    def traced(*inputs: Any) -> None:
        tensors = dict(zip(map(id, model.inputs), inputs, strict=True))
        graph = tf.compat.v1.get_default_graph()
        for node in nodes:
            before = len(graph.get_operations())
            _compute([node], tensors)
            operations = graph.get_operations()[before:]
            if drawn := [operation.type for operation in operations if operation.type in RANDOM]:
                raise ValueError(f"{node.operation.name} draws random numbers by {drawn[0]}, without a seed of Keras")
            if any(get_keras_mask(tensors[id(output)]) is not None for output in node.outputs):
                masked.append(node.operation.name)
            made = (output for operation in operations for output in operation.outputs if output.dtype.is_floating)
            of_samples = (each.shape for each in made if each.shape.rank and each.shape[0] == inputs[0].shape[0])
            sizes.append(sum(math.prod(size or 1 for size in shape) for shape in of_samples))

    with keras.StatelessScope(collect_losses=True) as scope:
        traced.get_concrete_function(*(tf.TensorSpec(each.shape, each.dtype) for each in model.inputs))
    if scope.losses:
        raise ValueError("a layer of it adds a loss of its own (add_loss, activity_regularizer)")
    if masked:
        raise ValueError(f"{masked[0]} gives a mask to the layers after it")
    return sizes


def _divided(model: Any, nodes: list[Any], sizes: list[int]) -> list[list[Any]]:
    """Return the nodes in segments, each of which leads to a single tensor, so that those tensors and the largest
    segment together are as small as possible.
    """
    last_use = {id(tensor): number for number, node in enumerate(nodes) for tensor in node.input_tensors}
    last_use |= {id(output): len(nodes) for output in model.outputs}
    live, parts, part = set(map(id, model.inputs)), list[tuple[int, int, int]](), 0
    for number, node in enumerate(nodes):
        live |= set(map(id, node.outputs))
        live = {tensor for tensor in live if last_use.get(tensor, -1) > number}
        part += sizes[number]
        is_cut = live == {id(node.outputs[0])} and keras.backend.is_float_dtype(node.outputs[0].dtype)
        if is_cut or number == len(nodes) - 1:
            parts.append((number + 1, part, math.prod(size or 1 for size in node.outputs[0].shape)))
            part = 0

    is_first_kept = not all(keras.backend.is_float_dtype(each.dtype) for each in model.inputs)
    first, rest = parts[:is_first_kept], parts[is_first_kept:]

    def ends(most: float) -> tuple[float, list[int]]:
        chosen, kept, largest, present, before = [end for end, _, _ in first], 0, 0, 0, (0, 0)
        for end, size, boundary in rest:
            if present and present + size > most:
                chosen.append(before[0])
                kept, present = kept + before[1], 0
            present += size
            largest, before = max(largest, present), (end, boundary)
        return kept + largest, [*chosen, len(nodes)]

    whole = sum(size for _, size, _ in rest)
    _, best = min((ends(whole / count) for count in range(1, len(rest) + 1)), default=(0, [len(nodes)]))
    return [list(nodes[begin:end]) for begin, end in zip([0, *best], best, strict=False)]
