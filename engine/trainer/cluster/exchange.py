"""Exchanges small values between the workers, on the CPU and apart from gradients, and names a worker that has
failed. All workers have to call the same functions in the same order. So they are called only between two
executions, and never because some time has passed.
"""

from __future__ import annotations

import math
import re
import socket
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...runs.run_cluster import Cluster, host_of, port_of
from ..common.stopping import ENGINE_GONE, StopRequested, StopSwitch
from ..common.training_errors import TrainerError
from ..common.versions import tensorflow as tf

GROUP = 1_414_213  # far from the keys that TensorFlow gives to its own groups
_ROWS, _BYTES = 1_000_000, 100_000_000  # first keys of the two kinds of exchange; each size has one of its own
CHUNK_WORDS = 4_000_000


class Exchange:
    """Exchanges values between the workers. `index` is this worker, `workers` the number of all workers."""

    def __init__(self, workers: int, index: int) -> None:
        self.workers, self.index = workers, index

    def rows(self, numbers: Sequence[float]) -> np.ndarray[Any, Any]:
        """Return the numbers of every worker, of which all have as many: an array (workers, numbers) of float64."""
        table = np.zeros((self.workers, len(numbers)), np.float64)
        table[self.index] = numbers
        return self._summed(table, _ROWS + table.size)

    def of_chief(self, data: bytes | None, length: int | None = None) -> bytes:
        """The chief's bytes (worker 0) on all workers, which may know their `length`; others pass None."""
        if length is None:
            length = int(self.rows([float(len(data or b"")) if self.index == 0 else 0.0])[0, 0])
        words = np.zeros(math.ceil(length / 4), np.int32)
        if self.index == 0 and data:
            words.view(np.uint8)[:length] = np.frombuffer(data, np.uint8)
        self._sum_up(words)
        return words.tobytes()[:length]

    def of_all(self, data: bytes) -> list[bytes]:
        lengths = self.rows([float(len(data))])[:, 0].astype(int)
        table = np.zeros((self.workers, math.ceil(max(lengths) / 4)), np.int32)
        table[self.index].view(np.uint8)[: len(data)] = np.frombuffer(data, np.uint8)
        self._sum_up(table.reshape(-1))
        return [row.tobytes()[:length] for row, length in zip(table, lengths, strict=True)]

    def _sum_up(self, words: np.ndarray[Any, Any]) -> None:
        for first in range(0, len(words), CHUNK_WORDS):
            part = words[first : first + CHUNK_WORDS]
            part[:] = self._summed(part, _BYTES + len(part))

    def wait(self) -> None:
        self.rows([0.0])

    def leave(self) -> None:
        """Wait for all workers: TensorFlow takes one that ends before the others for failed. One may be through before
        the others have its values, so all exchange twice. If only the second fails, all have come this far.
        """
        self.wait()
        try:
            self.wait()
        except tf.errors.OpError as fault:
            if not is_of_peers(fault):
                raise

    def _summed(self, values: np.ndarray[Any, Any], key: int) -> np.ndarray[Any, Any]:
        # exact, as at each place all workers but one have a zero; `key` is the same on all workers
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
    """Requests of all workers, so that all stop at the same execution. `asked_by` is another one that was asked."""

    def __init__(self, cluster: Cluster, exchange: Exchange, stop: StopSwitch) -> None:
        self._cluster, self._exchange, self._stop = cluster, exchange, stop
        self._left = 1  # executions until the next exchange
        self._between, self._since = 1, time.monotonic()
        self.wishes = Wishes()
        self.asked_by: int | None = None

    def before_execution(self) -> Wishes:
        """All workers call this before each execution. StopRequested on all before the same one."""
        self._left -= 1
        return self.now() if self._left <= 0 else Wishes()

    def now(self) -> Wishes:
        """Return the requests of all workers, which call this at the same place. Raises StopRequested on all."""
        seconds = (time.monotonic() - self._since) / self._between
        wishes, self.wishes = self.wishes, Wishes()
        reason = _REASONS.index(self._stop.reason) if self._stop.reason in _REASONS else 1
        rows = self._exchange.rows([reason, wishes.enough, wishes.check_weights, wishes.end, seconds])
        slowest = float(rows[:, 4].max())
        self._left = self._between = max(1, min(MOST_EXECUTIONS, int(EVERY_SECONDS / max(slowest, 1e-6))))
        self._since = time.monotonic()
        reasons = [int(value) for value in rows[:, 0]]
        if any(reasons):
            most, own = max(reasons), reasons[self._cluster.index]
            if not own:
                self.asked_by = next(index for index, reason in enumerate(reasons) if reason)
            others = _REASONS[most] == ENGINE_GONE and own != most
            raise StopRequested(_REASONS[most], self._cluster.named(reasons.index(most)) if others else "")
        return Wishes(*(bool(rows[:, column].any()) for column in (1, 2, 3)))

    def soon(self) -> None:
        """Make the exchange due before the next execution: the next ones may take longer than the last ones."""
        self._left, self._between, self._since = 1, 1, time.monotonic()


ANSWER_SECONDS = 3.0
LINGER_SECONDS = 5.0  # the others learn of the failure at about the same time, and ask who still answers
_OF_PEERS = re.compile(r"Collective ops is aborted|CoordinationService|/tensorflow\.WorkerService|RecvBuf|heartbeat")
_SILENT = re.compile(r"stopped sending heartbeats\):((?:\s*/job:\w+/replica:0/task:\d+)+)")
_TASK = re.compile(r"/task:(\d+)")
# What a client of HTTP/2 sends first (RFC 9113, 3.4): gRPC's server answers with its settings.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
AGAIN = "start all workers again with the same command and --resume-if-any: they go on from the last checkpoint"
HINT = f"{AGAIN}; the log of that worker may say why it ended"
CHECK_SECONDS = 1.0
LEAST_SUSPENSION_SECONDS = 5.0
MOST_CPU = 0.1  # of one core: a thread may also wait long for one that computes and holds Python's lock
RECENT_SECONDS = 120.0


class SuspensionWatch(threading.Thread):
    """This process was suspended: a check comes far too late, and the process has not computed meanwhile."""

    def __init__(self) -> None:
        super().__init__(name="suspension", daemon=True)
        self._last: tuple[float, float] | None = None  # how many seconds it was suspended, and when that ended

    def run(self) -> None:
        while True:
            began, cpu = time.monotonic(), time.process_time()
            time.sleep(CHECK_SECONDS)
            passed = time.monotonic() - began
            if passed > LEAST_SUSPENSION_SECONDS and time.process_time() - cpu < MOST_CPU * passed:
                self._last = passed, time.monotonic()

    @property
    def seconds(self) -> float | None:
        """The seconds for which the process was suspended, if that has ended in the last RECENT_SECONDS."""
        if self._last is None or time.monotonic() - self._last[1] > RECENT_SECONDS:
            return None
        return self._last[0]


SUSPENSION = SuspensionWatch()  # of this process, which joins one cluster


def is_of_peers(fault: BaseException) -> bool:
    """Return True if the error is a failed exchange between workers, and not a failed computation of this worker."""
    another_cause = (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)
    if not isinstance(fault, tf.errors.OpError) or isinstance(fault, another_cause):
        return False
    return bool(_OF_PEERS.search(str(fault)))


def blamed(fault: BaseException, cluster: Cluster) -> TrainerError:
    """The error of a failed exchange names workers that no longer answer, or this one if it was suspended."""
    text, others = str(fault), [index for index in range(len(cluster.workers)) if index != cluster.index]
    with ThreadPoolExecutor(len(others)) as pool:
        answers = list(pool.map(lambda index: _answer(cluster.workers[index]), others))
    states = (("ended", "has ended"), ("silent", "does not answer any more"))
    failures = [
        f"{cluster.named(index)} {what}"
        for state, what in states
        for index, answer in zip(others, answers, strict=True)
        if answer == state
    ]
    if not failures:
        # TensorFlow names those without a heartbeat, or the chief, which runs the coordination.
        tasks = [0] if "CoordinationService/" in text else []
        if match := _SILENT.search(text):
            tasks = [int(number) for number in _TASK.findall(match[1])]
        failures = [f"{cluster.named(index)} has failed" for index in tasks if index in others]
    message = "; ".join(failures) or f"a worker has failed, and all answer: {' '.join(text.split())[:160]}"
    if (seconds := SUSPENSION.seconds) is not None:
        why = f"{cluster.named(cluster.index)}, this one, was suspended for {seconds:.0f} s by SIGSTOP or a debugger"
        return TrainerError("suspended", f"{why}, and the others have given it up; {message}", AGAIN)
    return TrainerError("peer_lost", f"{message}: the training cannot go on without it", HINT)


def _answer(address: str) -> str:
    """`there` if TensorFlow's server answers, `silent` if only the port is open, of a frozen process, else `ended`."""
    try:
        with socket.create_connection((host_of(address), port_of(address)), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(_PREFACE)
            return "there" if connection.recv(1) else "ended"
    except TimeoutError:
        return "silent"
    except OSError:
        return "ended"
