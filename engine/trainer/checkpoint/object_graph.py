"""Finds variables, optimizers and random generators in the objects of a user's code, and what the graph of a step
does. Only Keras' objects, containers, and the objects, functions and classes of the user's own code are searched.
"""

from __future__ import annotations

import functools
import random
import types
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from ..common.versions import GLOBAL_SEED_GENERATOR, get_global_attribute

HOLDERS = (
    keras.layers.Layer,
    keras.metrics.Metric,
    keras.losses.Loss,
    keras.optimizers.Optimizer,
    keras.callbacks.Callback,
    tf.Module,
)
GENERATORS = (np.random.Generator, np.random.RandomState, random.Random)
_OF_FIT = ("built", "stop_training", "stop_evaluating", "stop_predicting")  # attributes that Keras itself changes
_LEAVES = (str, bytes, int, float, np.ndarray, np.generic, tf.Tensor, types.ModuleType, type(None))
MOST_ITEMS = 10_000  # a container with more entries is data


@dataclass
class Collected:
    """The variables and random generators of a search, in the order of the user's code, the same in each process."""

    variables: list[tuple[str, Any]] = field(default_factory=list)  # each with its name, which others may have too
    generators: list[Any] = field(default_factory=list)  # random generators of NumPy and Python
    attributes: list[tuple[str, Any, str]] = field(default_factory=list)  # that code may set: path, object and name


@dataclass(frozen=True)
class Module:
    """A module of the user's code: searched for random generators, but not for models that it has loaded."""

    values: dict[str, Any]


Named = tuple[str, Any]  # an object, and the path of attributes that leads to it, such as Average.shadow[0]


def walk(roots: Iterable[Any], theirs: Callable[[str], bool]) -> Collected:
    """Return all variables and random generators that can be reached from `roots`. `theirs` says if a module is the
    user's. A variable of Keras is named by its path, another one by the attributes that lead to it.
    """
    parts = Collected()
    seen: dict[int, Any] = {}
    # Last the generator of keras.random without a seed; its first draw creates it.
    of_keras = get_global_attribute(GLOBAL_SEED_GENERATOR)
    left = [("", of_keras, True)]
    for root in reversed([*roots]):
        is_module = isinstance(root, Module)
        name = str(root.values.get("__name__", "")) if is_module else type(root).__name__
        left.append((name, root, not is_module))
    while left:
        name, value, whole = left.pop()
        if isinstance(value, _LEAVES) or id(value) in seen:
            continue
        seen[id(value)] = value  # kept alive, so that no other object gets its id
        if whole or not isinstance(value, HOLDERS):
            parts.attributes += [(f"{name}.{each}", value, each) for each in _settable(value, theirs)]
        if isinstance(value, GENERATORS):
            parts.generators.append(value)
        elif isinstance(value, keras.Variable):
            if whole:
                parts.variables.append((value.path, value.value))
        elif isinstance(value, tf.Variable):
            if whole:
                parts.variables.append((name, value))
        elif isinstance(value, keras.random.SeedGenerator):
            parts.variables.append((value.state.path, value.state.value))
        elif isinstance(value, tf.random.Generator):
            parts.variables.append((name, value.state))
        elif whole or not isinstance(value, HOLDERS):
            inside = reversed(list(_inside(value, theirs)))
            left.extend((f"{name}{step}", inner, whole) for step, inner in inside)
    return parts


def _inside(value: Any, theirs: Callable[[str], bool]) -> Iterable[Named]:
    """Return the objects in `value`, each with what is added to the path, such as `.shadow` or `[0]`."""
    if isinstance(value, Module):
        return _attributes(value.values)
    if isinstance(value, dict | list | tuple | deque):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [(f"[{key!r}]", item) for key, item in items] if len(value) <= MOST_ITEMS else ()
    if isinstance(value, functools.partial):
        return [(".func", value.func), (".args", value.args), *_attributes(value.keywords)]
    if isinstance(value, types.MethodType):
        return [("", value.__self__), ("", value.__func__)]
    if isinstance(value, types.FunctionType):
        if not theirs(value.__module__):
            return ()
        cells = zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)
        captured = {name: cell.cell_contents for name, cell in cells if is_filled(cell)}
        defaults = _attributes(value.__kwdefaults__ or {})
        return [*_attributes(captured), (".__defaults__", value.__defaults__), *defaults]
    if isinstance(value, type):
        return _attributes(vars(value)) if theirs(value.__module__) else ()
    if isinstance(value, HOLDERS) or theirs(type(value).__module__):
        return _attributes(getattr(value, "__dict__", {}))
    return ()


def _settable(value: Any, theirs: Callable[[str], bool]) -> list[str]:
    if isinstance(value, Module):
        return [name for name in value.values if not name.startswith("__")]
    if isinstance(value, keras.Variable):
        return ["trainable"]
    of_keras = isinstance(value, HOLDERS) and not isinstance(value, keras.callbacks.Callback)
    if isinstance(value, type | types.FunctionType) or not (of_keras or theirs(type(value).__module__)):
        return []  # the states of Keras' callbacks are saved apart
    # Private attributes are Keras' own, unless methods of the user's class name them.
    members = [member for kind in type(value).__mro__ if theirs(kind.__module__) for member in vars(kind).values()]
    named = {name for each in members for name in getattr(getattr(each, "__code__", None), "co_names", ())}
    names = [name for name in getattr(value, "__dict__", ()) if name in named or name[0] != "_"]
    return ["trainable"] * isinstance(value, keras.layers.Layer) + [name for name in names if name not in _OF_FIT]


def _attributes(values: Mapping[str, Any]) -> list[Named]:
    return [(f".{name}", value) for name, value in values.items()]


def is_filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def optimizers(model: keras.Model) -> list[keras.optimizers.Optimizer]:
    """Return the model's optimizers: the compiled one, and others in its attributes, lists, dicts and inner models."""
    by_id, seen = dict[int, keras.optimizers.Optimizer](), set[int]()

    def visit(value: Any) -> None:
        if isinstance(value, keras.optimizers.Optimizer):
            by_id[id(value)] = value
        elif id(value) not in seen and isinstance(value, (keras.Model, dict, list, tuple)):
            seen.add(id(value))
            inside = vars(value) if isinstance(value, keras.Model) else value
            for item in inside.values() if isinstance(inside, dict) else inside:
                visit(item)

    visit(model.optimizer)
    visit(model)
    return list(by_id.values())


# ---- the graph of a step --------------------------------------------------------------------------


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
    "SampleDistortedBoundingBoxV2": "tf.image.sample_distorted_bounding_box",
    "LogUniformCandidateSampler": "a sampled loss",
    "UniformCandidateSampler": "a sampled loss",
    "LearnedUnigramCandidateSampler": "a sampled loss",
}


@dataclass(frozen=True)
class Draw:
    """A draw of random numbers from a state that cannot be saved. `lines` are (file, line, function), the outermost
    first.
    """

    name: str
    lines: tuple[tuple[str, int, str], ...]


def written(graph: Any) -> list[tf.Variable]:
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
    first = _CALLS.get(operation.type, ((), 0))[1]
    inputs = [index - first for index, given in enumerate(operation.inputs) if given is tensor and index >= first]
    called = _called(graph, operation)
    return not called or any(_is_written(inner, inner.inputs[index]) for inner in called for index in inputs)


def draws(graph: Any) -> list[Draw]:
    """Return the operations whose random state cannot be saved, each once, also in functions that the graph calls."""
    each_once, seen = dict[Draw, None](), set[int]()

    def visit(within: Any) -> None:
        if id(within) in seen:
            return
        seen.add(id(within))
        for operation in within.get_operations():
            if operation.type in DRAWS:
                lines = tuple((frame.filename, frame.lineno, frame.name) for frame in operation.traceback)
                each_once[Draw(DRAWS[operation.type], lines)] = None
            for inner in _called(within, operation):
                visit(inner)

    visit(graph)
    return list(each_once)


def _called(graph: Any, operation: Any) -> list[Any]:
    names = _CALLS.get(operation.type, ((), 0))[0]
    functions = [graph._get_function(operation.get_attr(name).name) for name in names]
    return [function.graph for function in functions if function is not None and hasattr(function, "graph")]
