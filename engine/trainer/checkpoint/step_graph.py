"""Reads the graph of a traced step: which variables it writes, and which of its operations draw random numbers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

_READS = {"ReadVariableOp", "ResourceGather", "ResourceGatherNd", "VariableShape", "VarIsInitializedOp"}
_CALLS = {  # operations that run a function: the attributes that name it, and the index of its first input
    "PartitionedCall": (("f",), 0),
    "StatefulPartitionedCall": (("f",), 0),
    "While": (("body", "cond"), 0),
    "StatelessWhile": (("body", "cond"), 0),
    "If": (("then_branch", "else_branch"), 1),
    "StatelessIf": (("then_branch", "else_branch"), 1),
}
# Their state is inside TensorFlow's kernels: it can be neither read nor set.
DRAWS = {
    "RandomStandardNormal": "tf.random.normal",
    "RandomUniform": "tf.random.uniform",
    "RandomUniformInt": "tf.random.uniform",
    "TruncatedNormal": "tf.random.truncated_normal",
    "ParameterizedTruncatedNormal": "tf.random.truncated_normal",
    "RandomShuffle": "tf.random.shuffle",
    "Multinomial": "tf.random.categorical",
    "RandomGamma": "tf.random.gamma",
    "RandomPoissonV2": "tf.random.poisson",
    "RandomCrop": "tf.image.random_crop",
    "SampleDistortedBoundingBoxV2": "tf.image.sample_distorted_bounding_box",
    "LogUniformCandidateSampler": "a sampled loss",
    "UniformCandidateSampler": "a sampled loss",
    "LearnedUnigramCandidateSampler": "a sampled loss",
}


@dataclass(frozen=True)
class Draw:
    """An operation that draws random numbers from a state of its own. `lines` are the lines of Python that made the
    operation, the outermost first.
    """

    name: str
    lines: tuple[tuple[str, int, str], ...]


def written(graph: Any) -> list[tf.Variable]:
    """The variables that the graph captures from outside and writes."""
    inner = {id(placeholder): outer for outer, placeholder in graph.captures}
    handles = {id(inner[id(tensor)]) for tensor in graph.inputs if id(tensor) in inner and _is_written(graph, tensor)}
    return [variable for variable in graph.variables if id(variable.handle) in handles]


def _is_written(graph: Any, tensor: Any) -> bool:
    return any(_writes(graph, operation, tensor) for operation in tensor.consumers())


def _writes(graph: Any, operation: Any, tensor: Any) -> bool:
    if operation.type in _READS:
        return False
    if operation.type == "Identity":
        return _is_written(graph, operation.outputs[0])
    called = _called(graph, operation)
    if not called:
        return True
    first = _CALLS[operation.type][1]
    inputs = [index - first for index, given in enumerate(operation.inputs) if given is tensor and index >= first]
    return any(_is_written(inner, inner.inputs[index]) for inner in called for index in inputs)


def draws(graph: Any) -> list[Draw]:
    """The operations whose random state cannot be saved, including those in functions that the graph calls."""
    return list(dict.fromkeys(_draws(graph, set())))


def _draws(graph: Any, seen: set[int]) -> Iterator[Draw]:
    if id(graph) in seen:
        return
    seen.add(id(graph))
    for operation in graph.get_operations():
        if operation.type in DRAWS:
            lines = tuple((frame.filename, frame.lineno, frame.name) for frame in operation.traceback)
            yield Draw(DRAWS[operation.type], lines)
        for inner in _called(graph, operation):
            yield from _draws(inner, seen)


def _called(graph: Any, operation: Any) -> list[Any]:
    names = _CALLS.get(operation.type, ((), 0))[0]
    functions = [graph._get_function(operation.get_attr(name).name) for name in names]
    return [function.graph for function in functions if function is not None and hasattr(function, "graph")]
