"""What a user's tf.data.Dataset is made of: its length, its shuffles, and whether its batches may follow the training.
It is read from private names of TensorFlow, and from the graphs of its functions: besides their arguments these see
stateful operations, and the variables and tables that they capture.
"""

from __future__ import annotations

import contextlib
import random
import re
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ..checkpoint import object_graph
from ..common.versions import is_stateful
from ..data.batches import Nature
from ..measure.run_report import RunReport
from .user_code import UserError

MOST_SECONDS = 120.0
MOST_BYTES = 256 * 1024**2  # of tensors in a data set: what is written down is copied several times
LOOK_EVERY = 256  # elements between two checks of the time
STEPS = {"train": "train.steps_per_epoch", "validation": "validation_steps", "test": "test_samples"}
SAMPLES = {"train": "samples", "validation": "validation_samples", "test": "test_samples"}

ASSERTED = "end the Dataset with .apply(tf.data.experimental.assert_cardinality(NUMBER))"


def counted(data: tf.data.Dataset, role: str, report: RunReport, most_seconds: float = MOST_SECONDS) -> int:
    """Return the number of elements in a pass; `role` is `train` or `validation`. Raises UserError for data without an
    end, or after `most_seconds`. That elements are read does not change the order in which they train.
    """
    if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise endless(role)

    def look(seen: tf.data.Dataset) -> int:
        return count(seen.map(lambda *_: tf.constant(0, tf.int8)), role, report, LOOK_EVERY, most_seconds)

    return int(inspected(data, look))


def endless(role: str) -> UserError:
    what = "" if role == "test" else ", the number of batches to take"
    return UserError(f"{role} has no end", f"{settable(role)}{what}")


def settable(role: str) -> str:
    return f"set {STEPS[role]}" if role == "train" else f"return {STEPS[role]} next to it"


def count(
    elements: Iterable[Any], role: str, report: RunReport, look_every: int, most_seconds: float = MOST_SECONDS
) -> int:
    report.phase("building", f"counting {role}")
    deadline = time.monotonic() + most_seconds
    number = 0
    for number, _ in enumerate(elements, start=1):
        if number % look_every == 0 and time.monotonic() > deadline:
            what = f"{role} has more than {number:,} elements, or no end: they were counted for {most_seconds:g} s"
            hint = f"return {SAMPLES[role]} next to it"
            other = ASSERTED if isinstance(elements, tf.data.Dataset) else settable(role)
            raise UserError(what, hint if role == "test" else f"{hint}, or {other}")
    report.phase("building", "data")
    return number


def inspected(data: tf.data.Dataset, look: Callable[[tf.data.Dataset], Any]) -> Any:
    """Return the result of `look`, called with the data set. The order of elements in the training stays: shuffles are
    left out, and the random states of Python and NumPy, and variables that functions of the data change, are restored.
    """
    states = random.getstate(), np.random.get_state()
    variables = [(variable, variable.numpy()) for variable in captured(data)]
    try:
        return look(unshuffled(data))
    finally:
        for variable, value in variables:
            variable.assign(value)
        random.setstate(states[0])
        np.random.set_state(states[1])


def captured(data: tf.data.Dataset) -> list[tf.Variable]:
    """Return the variables that functions of the data read or change. Empty if this TensorFlow does not tell."""
    try:
        functions = [function for stage in stages_of(data) for function in stage._functions()]
        return [variable for function in functions for variable in function.function.graph.variables]
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return []


def unshuffled(data: tf.data.Dataset, keep_fixed: bool = False) -> tf.data.Dataset:
    """Return the data set without its shuffles. With `keep_fixed`, those that give the same order in each pass stay: a
    split may follow them. It is unchanged if its graph cannot be written, or has large tensors.
    """
    try:
        parts = stages_of(data)
        if not any(_shuffles(stage) for stage in parts) or sum(map(_bytes_of, parts)) > MOST_BYTES:
            return data
        written = tf.raw_ops.DatasetToGraphV2(
            input_dataset=tf.data.experimental.to_variant(data), external_state_policy=1, strip_device_assignment=False
        )
        graph = tf.compat.v1.GraphDef.FromString(written.numpy())
        stirring = (node for node in graph.node if node.op.startswith("ShuffleDataset"))
        before = {
            node.name: node.input[0] for node in stirring if not keep_fixed or node.attr["reshuffle_each_iteration"].b
        }
        for node in graph.node:
            for place, name in enumerate(node.input):
                while name.partition(":")[0] in before:
                    name = before[name.partition(":")[0]]
                node.input[place] = name
        made = tf.raw_ops.DatasetFromGraph(graph_def=graph.SerializeToString())
        return tf.data.experimental.from_variant(made, data.element_spec)
    except Exception:  # noqa: BLE001 - private names of TensorFlow and protobuf's own errors: counted as it is then
        return data


def reshuffles(data: Any) -> bool:
    """Return True if the data is a data set that shuffles, each time it is iterated over in another order."""
    try:
        parts = stages_of(data) if isinstance(data, tf.data.Dataset) else []
        return any(_shuffles(part) and getattr(part, "_reshuffle_each_iteration", None) is not False for part in parts)
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return False


def share_a_shuffle(train: Any, validation: Any) -> bool:
    """Return True if both come from one data set that shuffles anew: then they have samples in common."""
    try:
        stages = [stages_of(data) if isinstance(data, tf.data.Dataset) else [] for data in (train, validation)]
        return any(each is other and reshuffles(each) for each in stages[0] for other in stages[1])
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return False


def caches_draws(data: tf.data.Dataset) -> bool:
    """Return True if Dataset.cache keeps what functions before it have drawn at random."""
    try:
        natures = [nature_of(part) for part in stages_of(data) if type(part).__name__ == "CacheDataset"]
        return any(nature.draws or nature.writes for nature in natures)
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return False


def caches_in_file(data: Any) -> bool:
    """Return True for a data set that fills a file by Dataset.cache. Its iterator must be ended, as it holds a lock."""
    try:
        parts = stages_of(data) if isinstance(data, tf.data.Dataset) else []
        return any(len(part._filename.numpy()) > 0 for part in parts if type(part).__name__ == "CacheDataset")
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return False


def stages_of(data: tf.data.Dataset) -> list[tf.data.Dataset]:
    return [data, *(stage for source in data._inputs() for stage in stages_of(source))]


def _shuffles(stage: tf.data.Dataset) -> bool:
    return type(stage).__name__.lstrip("_").startswith("ShuffleDataset")


def _bytes_of(stage: tf.data.Dataset) -> int:
    return sum((tensor.shape.num_elements() or 0) * tensor.dtype.size for tensor in getattr(stage, "_tensors", ()))


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


BY_PYTHON = Nature(RUNS_PYTHON)


def nature_of(data: tf.data.Dataset) -> Nature:
    try:
        graphs = [graph for each in _known_stages(data) for graph in _graphs(each)]
        operations = {node.op for graph in graphs for node in _nodes(graph)}
        tables = any(_fillable(graph) for graph in graphs)
        captured = {id(variable): variable for graph in graphs for variable in graph.variables}
        changed = {id(variable): variable for graph in graphs for variable in object_graph.written(graph)}
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return Nature(UNKNOWN, draws=True)
    rest = {
        name
        for name in operations
        if name not in object_graph.DRAWS and not HARMLESS.fullmatch(name) and is_stateful(name)
    }
    reasons = (
        (any(map(PYTHON.fullmatch, operations)), RUNS_PYTHON),
        (any(map(VARIABLE.fullmatch, rest)), READS_VARIABLE),
        (tables, READS_TABLE),
        (bool(rest), f"a function of the Dataset uses {min(rest, default='')}"),
    )
    return Nature(
        next((reason for holds, reason in reasons if holds), ""),
        any(name in object_graph.DRAWS for name in operations),
        tuple(variable for key, variable in captured.items() if key not in changed),
        tuple(changed.values()),
    )


def length_follows_variable(data: tf.data.Dataset) -> bool:
    """Return True if a function that decides how many elements there are, as in Dataset.filter, reads a variable."""
    try:
        deciding = [
            each for each in _known_stages(data) if not re.fullmatch("_?(Parallel)?MapDataset", type(each).__name__)
        ]
        return any(list(graph.variables) for each in deciding for graph in _graphs(each))
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return False


def _known_stages(data: tf.data.Dataset) -> Iterator[tf.data.Dataset]:
    if type(data).__name__ == "_VariantDataset" and data.element_spec != tf.TensorSpec((), tf.int64):  # of enumerate()
        raise TypeError(data)
    yield data
    for source in data._inputs():
        yield from _known_stages(source)


def _graphs(data: tf.data.Dataset) -> list[Any]:
    return [function.function.graph for function in data._functions()]


def _nodes(graph: Any) -> Iterator[Any]:
    definition = graph.as_graph_def()
    yield from definition.node
    for inner in definition.library.function:
        yield from inner.node_def


def _fillable(graph: Any) -> bool:
    """Return True if the function captures a table into which keys can be inserted, which is tried with none."""
    lookups = [node for node in _nodes(graph) if node.op == "LookupTableFindV2"]
    kinds = {(node.attr["Tin"].type, node.attr["Tout"].type) for node in lookups}
    for table in (outer for outer, _ in graph.captures if outer.dtype == tf.resource):
        for key, value in kinds:
            with contextlib.suppress(tf.errors.OpError):  # fixed contents, other types, or a variable
                tf.raw_ops.LookupTableInsertV2(table_handle=table, keys=tf.zeros([0], key), values=tf.zeros([0], value))
                return True
    return False
