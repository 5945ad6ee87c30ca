"""Finds out whether the batches of a user's tf.data.Dataset may depend on the training, and whether they are drawn.

The functions of the Dataset are searched: what they may see besides their arguments are stateful operations.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import tensorflow as tf

from ..checkpoint.object_graph import DRAWS
from ..common.versions import is_stateful

PYTHON = re.compile(r"(Eager)?PyFunc(Stateless)?")
VARIABLE = re.compile(r".*Variable.*|Resource(Gather|Scatter).*|Rng.*|Stateful(?!PartitionedCall).*")
# Stateful for TensorFlow, but nothing in them follows the training: calls, sources of data, and tables, which are
# filled before.
HARMLESS = re.compile(
    r".*Dataset(V\d+)?|If|While|Case|StatefulPartitionedCall|Assert|Print(V2)?|TensorArray.*|TemporaryVariable|"
    r".*HashTable.*|LookupTable.*|InitializeTable.*|Iterator.*|.*Iterator(V\d+)?|.*SeedGenerator|"
    r".*MemoryCache|DeleteMemoryCache|Save.*|Restore.*|Placeholder.*"
)
RUNS_PYTHON = "Python code makes the batches"
READS_VARIABLE = "a function of the Dataset reads a variable"
UNKNOWN = "it is not known what its functions read"


@dataclass(frozen=True)
class Nature:
    """What the batches of a user's data follow.

    `depends` says why they may depend on the training. Empty if they cannot. `draws`: its functions draw from
    TensorFlow's random state, which begins again with each iterator.
    """

    depends: str = ""
    draws: bool = False


BY_PYTHON = Nature(RUNS_PYTHON)


def nature_of(data: tf.data.Dataset) -> Nature:
    try:
        operations = set(_operations(data))
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return Nature(UNKNOWN, draws=True)
    draws = any(name in DRAWS for name in operations)
    if any(map(PYTHON.fullmatch, operations)):
        return Nature(RUNS_PYTHON, draws)
    rest = {name for name in operations if name not in DRAWS and not HARMLESS.fullmatch(name) and is_stateful(name)}
    if any(map(VARIABLE.fullmatch, rest)):
        return Nature(READS_VARIABLE, draws)
    return Nature(f"a function of the Dataset uses {min(rest)}" if rest else "", draws)


def _operations(data: tf.data.Dataset) -> Iterator[str]:
    """Yield the types of the operations in all functions of the data set, and in the functions that they call."""
    for function in data._functions():
        graph = function.function.graph.as_graph_def()
        yield from (node.op for node in graph.node)
        yield from (node.op for inner in graph.library.function for node in inner.node_def)
    if type(data).__name__ == "_VariantDataset":
        raise TypeError(data)
    for source in data._inputs():
        yield from _operations(source)
