"""Exchanges small values between the workers, on the CPU and apart from the exchange of gradients.

All workers have to call the same functions in the same order. So they are called only between two executions, and never
because some time has passed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from ...runs.run_cluster import Cluster
from ..common.stopping import ENGINE_GONE, StopRequested, StopSwitch
from . import failed_worker

GROUP = 1_414_213  # far from the keys that TensorFlow gives to its own groups
_ROWS, _BYTES = 1_000_000, 100_000_000  # first keys of the two kinds of exchange; each size has one of its own
CHUNK_WORDS = 4_000_000


class Exchange:
    """Exchanges values between the workers. `index` is this worker, `workers` the number of all workers."""

    def __init__(self, workers: int, index: int) -> None:
        self.workers, self.index = workers, index

    def rows(self, numbers: Sequence[float]) -> np.ndarray[Any, Any]:
        """Return the numbers of every worker: an array (workers, numbers) of float64, one row for each worker, by
        index.

        All workers must pass sequences of the same length.
        """
        table = np.zeros((self.workers, len(numbers)), np.float64)
        table[self.index] = numbers
        return self._summed(table, _ROWS + table.size)

    def of_chief(self, data: bytes | None, length: int | None = None) -> bytes:
        """Return the bytes of the chief (worker 0), returned on all workers. The other workers pass None.

        `length` is the number of bytes if all workers already know it.
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
        """Return the bytes of every worker by index, returned on all workers."""
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

    def leave(self) -> None:
        """Wait until all workers have called this. Afterwards each worker may end its process at once.

        TensorFlow takes a worker that ends before the others for one that has failed. And a worker may be through with
        an exchange before the other workers have its values: if its process ends then, the exchange fails on the
        others. So all workers exchange twice. If only the second exchange fails, all workers have come this far, and
        the failure is ignored.
        """
        self.wait()
        try:
            self.wait()
        except tf.errors.OpError as fault:
            if not failed_worker.is_of_peers(fault):
                raise

    def _summed(self, values: np.ndarray[Any, Any], key: int) -> np.ndarray[Any, Any]:
        """Return the sum over all workers. It is exact, because at each place all workers but one have a zero. `key`
        identifies the exchange, the same on all workers.
        """
        with tf.device("/CPU:0"):
            summed = tf.raw_ops.CollectiveReduceV2(
                input=values.reshape(-1), group_size=self.workers, group_key=GROUP, instance_key=key,
                ordering_token=[], merge_op="Add", final_op="Id", communication_hint="ring",
            )  # fmt: skip
            return np.asarray(summed).reshape(values.shape)


# ---- agreement ------------------------------------------------------------------------------------


EVERY_SECONDS = 0.25
MOST_EXECUTIONS = 10_000
_REASONS = ("", "stopped", "timeout", ENGINE_GONE)  # the later ones prevail


@dataclass
class Wishes:
    """Requests about the next execution: the requests of this worker, or those that at least one worker has made."""

    enough: bool = False  # the time of run.measure_seconds was measured
    check_weights: bool = False  # for NaN
    end: bool = False  # a callback has set model.stop_training


class Agreement:
    """Exchanges requests between the workers of a cluster, so that all stop at the same execution.

    `stop` has the requests of this worker to stop. `asked_by` is the index of the worker that was asked to stop. None
    if it is this worker, or no worker was asked.
    """

    def __init__(self, cluster: Cluster, exchange: Exchange, stop: StopSwitch) -> None:
        self._cluster, self._exchange, self._stop = cluster, exchange, stop
        self._left = 1  # executions until the next exchange
        self._between, self._since = 1, time.monotonic()
        self.wishes = Wishes()
        self.asked_by: int | None = None

    def before_execution(self) -> Wishes:
        """Exchange the requests of all workers if an exchange is due, and return those that at least one worker has
        made. Otherwise return no requests.

        All workers call this before each execution. Raises StopRequested, on all workers before the same execution.
        """
        self._left -= 1
        return self.now() if self._left <= 0 else Wishes()

    def now(self) -> Wishes:
        """Exchange the requests of all workers, and return those that at least one worker has made.

        All workers call this at the same place. Raises StopRequested on all workers if one was asked to stop.
        """
        seconds = (time.monotonic() - self._since) / self._between
        wishes, self.wishes = self.wishes, Wishes()
        reason = _REASONS.index(self._stop.reason) if self._stop.reason in _REASONS else 1
        rows = self._exchange.rows([reason, wishes.enough, wishes.check_weights, wishes.end, seconds])
        slowest = float(rows[:, 4].max())
        self._left = self._between = max(1, min(MOST_EXECUTIONS, int(EVERY_SECONDS / max(slowest, 1e-6))))
        self._since = time.monotonic()
        self._stop_if_asked([int(value) for value in rows[:, 0]])
        return Wishes(*(bool(rows[:, column].any()) for column in (1, 2, 3)))

    def soon(self) -> None:
        """Make the exchange due before the next execution, because the next executions may take longer than the last
        ones.
        """
        self._left, self._between, self._since = 1, 1, time.monotonic()

    def _stop_if_asked(self, reasons: list[int]) -> None:
        asked = [index for index, reason in enumerate(reasons) if reason]
        if not asked:
            return
        if not reasons[self._cluster.index]:
            self.asked_by = asked[0]
        most = max(reasons)
        others = _REASONS[most] == ENGINE_GONE and reasons[self._cluster.index] != most
        raise StopRequested(_REASONS[most], self._cluster.named(reasons.index(most)) if others else "")
