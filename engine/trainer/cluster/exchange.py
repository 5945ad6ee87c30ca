"""Exchanges small values between the workers, on the CPU and apart from the exchange of gradients.

All workers have to call the same functions in the same order. So they are called only between two executions, and never
because some time has passed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import tensorflow as tf

GROUP = 1_414_213  # far from the keys that TensorFlow gives to its own groups
_ROWS, _BYTES = 1_000_000, 100_000_000  # first keys of the two kinds of exchange; each size has one of its own
CHUNK_WORDS = 4_000_000


class Exchange:
    """Exchanges values between the workers. `index` is this worker, `workers` the number of all workers."""

    def __init__(self, workers: int, index: int) -> None:
        self.workers, self.index = workers, index

    def rows(self, numbers: Sequence[float]) -> np.ndarray[Any, Any]:
        """The numbers of every worker: one row for each worker, by index."""
        table = np.zeros((self.workers, len(numbers)), np.float64)
        table[self.index] = numbers
        return self._summed(table, _ROWS + table.size)

    def of_chief(self, data: bytes | None, length: int | None = None) -> bytes:
        """The chief's bytes, returned on all workers. `length` is given if all workers already know the number of
        bytes.
        """
        if length is None:
            length = int(self.rows([float(len(data or b"")) if self.index == 0 else 0.0])[0, 0])
        words = np.zeros(math.ceil(length / 4), np.int32)
        if self.index == 0 and data:
            words.view(np.uint8)[:length] = np.frombuffer(data, np.uint8)
        for first in range(0, len(words), CHUNK_WORDS):
            part = words[first : first + CHUNK_WORDS]
            part[:] = self._summed(part, _BYTES + len(part))
        return words.tobytes()[:length]

    def of_all(self, data: bytes) -> list[bytes]:
        """The bytes of every worker, returned on all workers."""
        lengths = self.rows([float(len(data))])[:, 0].astype(int)
        table = np.zeros((self.workers, math.ceil(max(lengths) / 4)), np.int32)
        table[self.index].view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
        words = table.reshape(-1)
        for first in range(0, len(words), CHUNK_WORDS):
            part = words[first : first + CHUNK_WORDS]
            part[:] = self._summed(part, _BYTES + len(part))
        return [row.tobytes()[:length] for row, length in zip(table, lengths, strict=True)]

    def wait(self) -> None:
        """Wait until all workers have called this."""
        self.rows([0.0])

    def _summed(self, values: np.ndarray[Any, Any], key: int) -> np.ndarray[Any, Any]:
        """The sum over all workers. It is exact, because at each place all workers but one have a zero."""
        with tf.device("/CPU:0"):
            summed = tf.raw_ops.CollectiveReduceV2(
                input=values.reshape(-1), group_size=self.workers, group_key=GROUP, instance_key=key,
                ordering_token=[], merge_op="Add", final_op="Id", communication_hint="ring",
            )  # fmt: skip
            return np.asarray(summed).reshape(values.shape)
