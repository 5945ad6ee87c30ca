"""Counts the elements of a data set whose length TensorFlow does not know, once, before the training begins.

A data set without an end cannot be counted. TensorFlow knows most of these. For the others there is a time limit.
Reading elements before the training does not change the order in which they train.
"""

from __future__ import annotations

import contextlib
import random
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from ..measure.run_report import RunReport
from .user_code import UserError

MOST_SECONDS = 120.0
MOST_BYTES = 256 * 1024**2  # of tensors in a data set: what is written down is copied several times
LOOK_EVERY = 256  # elements between two checks of the time
STEPS = {"train": "train.steps_per_epoch", "validation": "validation_steps"}
SAMPLES = {"train": "samples", "validation": "validation_samples"}


def counted(data: tf.data.Dataset, role: str, report: RunReport, most_seconds: float = MOST_SECONDS) -> int:
    """Return the number of elements in one pass of the data set. `role` is `train` or `validation`.

    Raises UserError if the data has no end, or is not counted within `most_seconds`.
    """
    if int(data.cardinality()) == tf.data.INFINITE_CARDINALITY:
        raise endless(role)
    report.phase("building", f"counting {role}")
    number = inspected(
        data, lambda seen: _count(seen.map(lambda *_: tf.constant(0, tf.int8)), role, most_seconds, LOOK_EVERY)
    )
    report.phase("building", "data")
    return int(number)


def counted_in(
    whole: Callable[[], contextlib.AbstractContextManager[Iterator[Any]]],
    role: str,
    report: RunReport,
    most_seconds: float = MOST_SECONDS,
) -> int:
    """Return the number of batches that a context of `whole` has, under the conditions of `counted`."""
    report.phase("building", f"counting {role}")
    with whole() as batches:
        number = _count(batches, role, most_seconds, look_every=1)
    report.phase("building", "data")
    return number


def endless(role: str) -> UserError:
    """Return the error for data without an end, of which the number of batches to take is not given."""
    return UserError(f"{role} has no end", f"{settable(role)}, the number of batches to take")


def settable(role: str) -> str:
    return f"set {STEPS[role]}" if role == "train" else f"return {STEPS[role]} next to it"


def _count(elements: Iterable[Any], role: str, most_seconds: float, look_every: int) -> int:
    deadline = time.monotonic() + most_seconds
    number = 0
    for number, _ in enumerate(elements, start=1):
        if number % look_every == 0 and time.monotonic() > deadline:
            raise UserError(
                f"{role} has more than {number:,} elements, or no end: they were counted for {most_seconds:g} s",
                f"return {SAMPLES[role]} next to it, or {settable(role)}",
            )
    return number


def inspected(data: tf.data.Dataset, look: Callable[[tf.data.Dataset], Any]) -> Any:
    """Return the result of `look`, called with the data set. The order of the elements in training is the same as
    without this call.

    Shuffles are left out, because they would use up the order of the first pass. The global random states of Python and
    NumPy, from which a generator may draw, are restored, and so are variables that functions of the data change.
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
        functions = [function for stage in _stages(data) for function in stage._functions()]
        return [variable for function in functions for variable in function.function.graph.variables]
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return []


def unshuffled(data: tf.data.Dataset, keep_fixed: bool = False) -> tf.data.Dataset:
    """Return the data set without its shuffles. It is unchanged if it does not shuffle, or if its graph cannot be
    written. With `keep_fixed`, shuffles that give the same order in each pass stay: a split may follow them.

    A data set with large tensors is not written either. If it shuffles, reading it uses up the order of the first pass.
    """
    try:
        parts = _stages(data)
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
        parts = _stages(data) if isinstance(data, tf.data.Dataset) else []
        return any(_shuffles(part) and getattr(part, "_reshuffle_each_iteration", None) is not False for part in parts)
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return False


def caches_in_file(data: Any) -> bool:
    """Return True if the data is a data set that fills a file by Dataset.cache. Its iterator must be ended, as it holds
    a lock.
    """
    try:
        parts = _stages(data) if isinstance(data, tf.data.Dataset) else []
        return any(len(part._filename.numpy()) > 0 for part in parts if type(part).__name__ == "CacheDataset")
    except Exception:  # noqa: BLE001 - private names of TensorFlow
        return False


def _stages(data: tf.data.Dataset) -> list[tf.data.Dataset]:
    return [data, *(stage for source in data._inputs() for stage in _stages(source))]


def _shuffles(stage: tf.data.Dataset) -> bool:
    return type(stage).__name__.lstrip("_").startswith("ShuffleDataset")


def _bytes_of(stage: tf.data.Dataset) -> int:
    """Return the size in bytes of the tensors that a source contains."""
    return sum((tensor.shape.num_elements() or 0) * tensor.dtype.size for tensor in getattr(stage, "_tensors", ()))
