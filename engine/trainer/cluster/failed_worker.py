"""Names the worker that has failed, after an exchange between workers has failed.

This worker itself is named if it was suspended, by SIGSTOP or a debugger, as the others have then gone on without it.
"""

from __future__ import annotations

import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from ...runs.run_cluster import Cluster, host_of, port_of
from ..common.training_errors import TrainerError

ANSWER_SECONDS = 3.0
LINGER_SECONDS = 5.0  # the others learn of the failure at about the same time, and ask who still answers
_OF_PEERS = re.compile(r"Collective ops is aborted|CoordinationService|/tensorflow\.WorkerService|RecvBuf|heartbeat")
_SILENT = re.compile(r"stopped sending heartbeats\):((?:\s*/job:\w+/replica:0/task:\d+)+)")
_TASK = re.compile(r"/task:(\d+)")
_ANOTHER_CAUSE = (tf.errors.InvalidArgumentError, tf.errors.ResourceExhaustedError)
# What a client of HTTP/2 sends first (RFC 9113, 3.4): gRPC's server answers with its settings.
_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\x00\x00\x00\x04\x00\x00\x00\x00\x00"
AGAIN = "start all workers again with the same command and --resume-if-any: they go on from the last checkpoint"
HINT = f"{AGAIN}; the log of that worker may say why it ended"
CHECK_SECONDS = 1.0
LEAST_SUSPENSION_SECONDS = 5.0
MOST_CPU = 0.1  # of one core: a thread may also wait long for one that computes and holds Python's lock
RECENT_SECONDS = 120.0


class SuspensionWatch(threading.Thread):
    """Detects that this process was suspended: a regular check comes far too late, and the process has not computed
    meanwhile.
    """

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
        """The seconds for which the process was suspended. None if no suspension has ended in the last
        RECENT_SECONDS.
        """
        if self._last is None or time.monotonic() - self._last[1] > RECENT_SECONDS:
            return None
        return self._last[0]


SUSPENSION = SuspensionWatch()  # of this process, which joins one cluster


def is_of_peers(fault: BaseException) -> bool:
    """Return True if the error is a failed exchange between workers, and not a failed computation of this worker."""
    if not isinstance(fault, tf.errors.OpError) or isinstance(fault, _ANOTHER_CAUSE):
        return False
    return bool(_OF_PEERS.search(str(fault)))


def blamed(fault: BaseException, cluster: Cluster) -> TrainerError:
    """Return the error to report for the failed exchange `fault`. It names the workers that no longer answer.

    If this worker was suspended meanwhile, the error names this worker as the cause.
    """
    text = str(fault)
    ended, silent = _not_answering(cluster)
    failures = [f"{cluster.named(index)} has ended" for index in ended]
    failures += [f"{cluster.named(index)} does not answer any more" for index in silent]
    if not failures:
        failures = [f"{cluster.named(index)} has failed" for index in _named_in(text, cluster)]
    message = "; ".join(failures) or f"a worker has failed, and all answer: {' '.join(text.split())[:160]}"
    if (seconds := SUSPENSION.seconds) is not None:
        why = f"{cluster.named(cluster.index)}, this one, was suspended for {seconds:.0f} s by SIGSTOP or a debugger"
        return TrainerError("suspended", f"{why}, and the others have given it up; {message}", AGAIN)
    return TrainerError("peer_lost", f"{message}: the training cannot go on without it", HINT)


def linger(since: float) -> None:
    """Wait until LINGER_SECONDS after the failure, so that the other workers have time to ask which workers answer.

    `since` is the time of `time.monotonic()` at which the failure was noticed.
    """
    time.sleep(max(0.0, since + LINGER_SECONDS - time.monotonic()))


def _not_answering(cluster: Cluster) -> tuple[list[int], list[int]]:
    """Return the indexes of the other workers on whose port no program listens, and of those whose port is open but
    does not answer.
    """
    others = [index for index in range(len(cluster.workers)) if index != cluster.index]
    with ThreadPoolExecutor(len(others)) as pool:
        answers = list(pool.map(lambda index: _answer(cluster.workers[index]), others))
    by_index = dict(zip(others, answers, strict=True))
    return [i for i in others if by_index[i] == "ended"], [i for i in others if by_index[i] == "silent"]


def _answer(address: str) -> str:
    """Return `there` if TensorFlow's server answers at the address, `silent` if the port is open without an answer,
    else `ended`.

    A connection alone proves nothing: the kernel also accepts connections of a frozen process.
    """
    try:
        with socket.create_connection((host_of(address), port_of(address)), timeout=ANSWER_SECONDS) as connection:
            connection.sendall(_PREFACE)
            return "there" if connection.recv(1) else "ended"
    except TimeoutError:
        return "silent"
    except OSError:
        return "ended"


def _named_in(text: str, cluster: Cluster) -> list[int]:
    """Return the indexes of the other workers that `text`, TensorFlow's message, names: workers without a heartbeat, or
    the chief, which runs the coordination service.
    """
    tasks: list[int] = []
    if match := _SILENT.search(text):
        tasks = [int(number) for number in _TASK.findall(match[1])]
    elif "CoordinationService/" in text:
        tasks = [0]
    return [index for index in tasks if index < len(cluster.workers) and index != cluster.index]
