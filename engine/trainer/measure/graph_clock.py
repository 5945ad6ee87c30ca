"""A clock within the graph of the steps: how long the host waited for input, and when executions began."""

from __future__ import annotations

import time
from typing import Any

import tensorflow as tf


class GraphClock:
    """Times that the graph itself measures, on the CPU: how long the host waited for input, and when executions began.

    Both are sums since the last `take`; the beginnings are relative to `zero`, a Unix time. With `first_only` only the
    wait of each execution's first step counts. TensorFlow refuses to read the clock in a graph when operations must be
    deterministic: then nothing is measured.
    """

    def __init__(self, deterministic: bool, first_only: bool = False) -> None:
        self.counts, self._all = not deterministic, not deterministic and not first_only
        self.zero = time.time()
        with tf.device("/CPU:0"):
            self._sums = tf.Variable([0.0, 0.0], dtype=tf.float64, trainable=False)
            self._nothing = tf.zeros([2], tf.float64)

    @property
    def variables(self) -> list[tf.Variable]:
        """The variables that it writes in the graph of the steps."""
        return [self._sums]

    def take(self) -> tuple[float, float]:
        """Seconds waited and the sum of the beginnings since the last call, which resets both."""
        waited, begun = self._sums.numpy().tolist()
        self._sums.assign(self._nothing, read_value=False)
        return waited, begun

    def first(self, iterator: Any) -> tuple[Any, Any, Any]:
        """The first batch of an execution, when it began, and the part of its wait that the loop over its steps carries
        on.
        """
        if not self.counts:
            return iterator.get_next(), (), ()
        data, begun, end, waited = _timed(iterator)
        if self._all:
            return _after(end, data), begun, waited
        self._add(begun, waited)
        return data, (), ()

    def next(self, iterator: Any, waited: Any) -> tuple[Any, Any]:
        """Any further batch, with its wait added."""
        if not self._all:
            return iterator.get_next(), ()
        data, _, end, seconds = _timed(iterator)
        return _after(end, data), waited + seconds

    def end(self, begun: Any, waited: Any) -> None:
        """Called once in an execution. The sum over its steps stays in the loop, where it costs least."""
        if self._all:
            self._add(begun, waited)

    def _add(self, begun: Any, waited: Any) -> None:
        with tf.device("/CPU:0"):
            self._sums.assign_add(tf.stack([waited, begun - self.zero]), read_value=False)


def _timed(iterator: Any) -> tuple[Any, Any, Any, Any]:
    """`iterator.get_next()` with the time of the call, the time of the result, and the seconds between."""
    begun = tf.timestamp()
    with tf.control_dependencies([begun]):
        data = iterator.get_next()
    with tf.control_dependencies(_tensors(data)), tf.device("/CPU:0"):
        end = tf.timestamp()
        return data, begun, end, end - begun


def _after(moment: Any, data: Any) -> Any:
    """The same data, usable only after the clock was read: on busy cores the reading would otherwise come late."""

    def one(tensor: Any) -> Any:
        with tf.device(tensor.device):
            return tf.identity(tensor)

    with tf.control_dependencies([moment]):
        return tf.nest.map_structure(one, data, expand_composites=True)


def _tensors(data: Any) -> list[Any]:
    found: list[Any] = []
    for item in tf.nest.flatten(data):
        distributed = isinstance(item, tf.distribute.DistributedValues)
        found.extend(tf.nest.flatten(item.values if distributed else item, expand_composites=True))
    return found
