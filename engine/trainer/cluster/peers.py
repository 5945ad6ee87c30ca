"""Names the worker that has failed, when an exchange between workers has."""

from __future__ import annotations

import contextlib
import re
import socket
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import tensorflow as tf

from ...runs.cluster import Cluster, host_of, port_of
from ..common.faults import TrainerError

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


def is_of_peers(fault: BaseException) -> bool:
    """Whether an exchange between workers failed, and not a computation of this one."""
    if not isinstance(fault, tf.errors.OpError) or isinstance(fault, _ANOTHER_CAUSE):
        return False
    return bool(_OF_PEERS.search(str(fault)))


def blamed(fault: BaseException, cluster: Cluster, suspended_seconds: Callable[[], float | None]) -> TrainerError:
    """The error that names those who do not answer any more; or this worker, where it was suspended meanwhile."""
    text = str(fault)
    ended, silent = _asked(cluster)
    told = [f"{cluster.named(index)} has ended" for index in ended]
    told += [f"{cluster.named(index)} does not answer any more" for index in silent]
    if not told:
        told = [f"{cluster.named(index)} has failed" for index in _told_by(text, cluster)]
    message = "; ".join(told) or f"a worker has failed, and all answer: {' '.join(text.split())[:160]}"
    if (seconds := suspended_seconds()) is not None:
        why = f"{cluster.named(cluster.index)}, this one, was suspended for {seconds:.0f} s by SIGSTOP or a debugger"
        return TrainerError("suspended", f"{why}, and the others have given it up; {message}", AGAIN)
    return TrainerError("peer_lost", f"{message}: the training cannot go on without it", HINT)


def linger(since: float) -> None:
    """Stay until the others have asked who is there; `since` is when the failure was noticed."""
    time.sleep(max(0.0, since + LINGER_SECONDS - time.monotonic()))


def _asked(cluster: Cluster) -> tuple[list[int], list[int]]:
    """Those whose port nobody listens on, and those that do not answer there."""
    others = [index for index in range(len(cluster.workers)) if index != cluster.index]
    with ThreadPoolExecutor(len(others)) as pool:
        answers = list(pool.map(lambda index: _answer(cluster.workers[index]), others))
    found = dict(zip(others, answers, strict=True))
    return [i for i in others if found[i] == "ended"], [i for i in others if found[i] == "silent"]


def _answer(address: str) -> str:
    """Whether TensorFlow's server answers there; the kernel takes connections of a frozen process, too."""
    try:
        with socket.create_connection((host_of(address), port_of(address)), timeout=ANSWER_SECONDS) as line:
            line.sendall(_PREFACE)
            return "there" if line.recv(1) else "ended"
    except TimeoutError:
        return "silent"
    except OSError:
        return "ended"


def _told_by(text: str, cluster: Cluster) -> list[int]:
    """What TensorFlow's message says: tasks without a heartbeat; without the coordination service the chief is gone."""
    found: list[int] = []
    if match := _SILENT.search(text):
        found = [int(number) for number in _TASK.findall(match[1])]
    elif "CoordinationService/" in text:
        found = [0]
    with contextlib.suppress(ValueError):
        found.remove(cluster.index)
    return [index for index in found if index < len(cluster.workers)]
