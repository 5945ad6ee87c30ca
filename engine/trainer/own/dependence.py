"""Finds out whether the batches of a user's tf.data.Dataset may depend on the training, and whether they are drawn.

The functions of the Dataset are searched: what they may see besides their arguments are stateful operations, and the
variables and tables that they capture.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from ..checkpoint.object_graph import DRAWS, written
from ..common.versions import is_stateful

PYTHON = re.compile(r"(Eager)?PyFunc(Stateless)?")
VARIABLE = re.compile(r".*Variable.*|Resource(Gather|Scatter).*|Rng.*|Stateful(?!PartitionedCall).*")
# Stateful for TensorFlow, but nothing in them follows the training: calls, sources of data, and tables, of which those
# that can be filled are looked for apart.
HARMLESS = re.compile(
    r".*Dataset(V\d+)?|If|While|Case|StatefulPartitionedCall|Assert|Print(V2)?|TensorArray.*|TemporaryVariable|"
    r".*HashTable.*|LookupTable.*|InitializeTable.*|Iterator.*|.*Iterator(V\d+)?|.*SeedGenerator|"
    r".*MemoryCache|DeleteMemoryCache|Save.*|Restore.*|Placeholder.*"
)
RUNS_PYTHON = "Python code makes the batches"
READS_VARIABLE = "a function of the Dataset reads a variable"
READS_TABLE = "a function of the Dataset reads a lookup table that can be filled"
UNKNOWN = "it is not known what its functions read"


@dataclass(frozen=True)
class Nature:
    """What the batches of a user's data follow.

    `depends` says why they may depend on the training. Empty if they cannot. `draws`: its functions draw from
    TensorFlow's random state, which begins again with each iterator. `reads` and `writes` are the variables that its
    functions only read, and those that they change.
    """

    depends: str = ""
    draws: bool = False
    reads: tuple[tf.Variable, ...] = ()
    writes: tuple[tf.Variable, ...] = ()


BY_PYTHON = Nature(RUNS_PYTHON)


def nature_of(data: tf.data.Dataset) -> Nature:
    try:
        graphs = [graph for each in _stages(data) for graph in _graphs(each)]
        operations = {node.op for graph in graphs for node in _nodes(graph)}
        tables = any(_fillable(graph) for graph in graphs)
        captured = {id(variable): variable for graph in graphs for variable in graph.variables}
        changed = {id(variable): variable for graph in graphs for variable in written(graph)}
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return Nature(UNKNOWN, draws=True)
    rest = {name for name in operations if name not in DRAWS and not HARMLESS.fullmatch(name) and is_stateful(name)}
    reasons = (
        (any(map(PYTHON.fullmatch, operations)), RUNS_PYTHON),
        (any(map(VARIABLE.fullmatch, rest)), READS_VARIABLE),
        (tables, READS_TABLE),
        (bool(rest), f"a function of the Dataset uses {min(rest, default='')}"),
    )
    return Nature(
        next((reason for holds, reason in reasons if holds), ""),
        any(name in DRAWS for name in operations),
        tuple(variable for key, variable in captured.items() if key not in changed),
        tuple(changed.values()),
    )


def length_follows_variable(data: tf.data.Dataset) -> bool:
    """Return True if a function that decides how many elements there are, as in Dataset.filter, reads a variable."""
    try:
        deciding = [each for each in _stages(data) if not re.fullmatch("_?(Parallel)?MapDataset", type(each).__name__)]
        return any(list(graph.variables) for each in deciding for graph in _graphs(each))
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return False


def _stages(data: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    if type(data).__name__ == "_VariantDataset" and data.element_spec != tf.TensorSpec((), tf.int64):  # of enumerate()
        raise TypeError(data)
    yield data
    for source in data._inputs():
        yield from _stages(source)


def _graphs(data: tf.data.Dataset) -> list[Any]:
    return [function.function.graph for function in data._functions()]


def _nodes(graph: Any) -> Iterator[Any]:
    definition = graph.as_graph_def()
    yield from definition.node
    for inner in definition.library.function:
        yield from inner.node_def


def _fillable(graph: Any) -> bool:
    """Return True if the function captures a lookup table into which keys can be inserted, which is tried with none.

    A table with fixed contents refuses that.
    """
    lookups = [node for node in _nodes(graph) if node.op == "LookupTableFindV2"]
    kinds = {(node.attr["Tin"].type, node.attr["Tout"].type) for node in lookups}
    return any(
        _takes_keys(outer, *map(tf.as_dtype, kind))
        for outer, _ in graph.captures
        if outer.dtype == tf.resource
        for kind in kinds
    )


def _takes_keys(table: tf.Tensor, key: tf.DType, value: tf.DType) -> bool:
    try:
        tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=tf.zeros([0], key), values=tf.zeros([0], value))
    except tf.errors.OpError:  # fixed contents, other types, or a variable
        return False
    return True
