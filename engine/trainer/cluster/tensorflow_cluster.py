"""Joins the cluster that TF_CONFIG names: meets the other workers, compares options, and connects them by
TensorFlow.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import keras
import tensorflow as tf

from ...options import OPTIONS, Options, is_private
from ...runs import Run
from ...runs.run_cluster import SOURCE, VARIABLE, Cluster
from ..common.training_errors import TrainerError
from .exchange import SUSPENSION, Exchange
from .rendezvous import Contacts, Hello, Meeting

# Options in which workers may differ, as they are settings of a machine. All take the seed of the chief.
OWN = {
    "device.visible", "device.memory_limit_mb", "device.inter_op_threads", "device.intra_op_threads", "device.numa",
    "device.log_placement", "workload.data", "workload.folder", "workload.entry", "input.cache", "train.seed",
    "run.max_minutes", "run.stop_signal", "run.keep", "run.code", "run.python", "run.hang_seconds",
    "compile.xla_cache",
}  # fmt: skip
_HOW = "start gputui on each machine by srun, with TF_CONFIG, or with --cluster HOST1:PORT,HOST2:PORT --worker N"
APART = 1_000_003  # between the seeds of two workers
_WAYS = {"auto": "AUTO", "ring": "RING", "nccl": "NCCL"}


@dataclass(frozen=True)
class Joined:
    """The cluster, with the messages that all workers have sent about themselves, by index."""

    cluster: Cluster
    hellos: list[Hello]
    exchange: Exchange
    connections: Contacts

    def described(self, replicas: int, gpus: list[str]) -> list[dict[str, Any]]:
        """Return the workers for the event `started`. All workers call this at the same place, as it exchanges data."""
        mine = json.dumps({"replicas": replicas, "gpus": gpus}).encode()
        own_values = [json.loads(data) for data in self.exchange.of_all(mine)]
        return [
            {"index": index, "address": self.cluster.workers[index]}
            | {name: hello[name] for name in ("host", "run", "folder")} | own
            for index, (hello, own) in enumerate(zip(self.hellos, own_values, strict=True))
        ]  # fmt: skip


def read() -> Cluster:
    """Return the cluster that TF_CONFIG describes. Raises TrainerError if it names none."""
    try:
        config = json.loads(os.environ.get(VARIABLE, "") or "{}")
        workers, index = tuple(map(str, config["cluster"]["worker"])), int(config["task"]["index"])
        workers[index]
    except (ValueError, KeyError, TypeError, IndexError):
        raise TrainerError(
            "strategy", f"strategy.kind=multi_worker needs a cluster, and {VARIABLE} names none", _HOW
        ) from None
    return Cluster(workers, index, str(config.get(SOURCE) or VARIABLE))


def meet(options: Options, run: Run, tell: Callable[[str], None], check: Callable[[], None]) -> tuple[Options, Joined]:
    """The options, with the chief's seed. `tell` gets a text that names missing workers, and `check` is called while
    waiting. Raises TrainerError.
    """
    cluster, groups = read(), asdict(options)
    hello = {
        "host": socket.gethostname(), "run": run.id, "folder": str(run.path.absolute()), "tensorflow": tf.__version__,
        "options": {info.key: groups[info.group][info.name] for info in OPTIONS if not is_private(info.key)},
    }  # fmt: skip
    meeting = Meeting(cluster, hello)
    hellos = meeting.hold(tell, check)
    for index, other in enumerate(hellos):
        _compare(cluster, hello, other, index)
    seed = hellos[0]["options"].get("train.seed")
    options = replace(options, train=replace(options.train, seed=seed))
    return options, Joined(cluster, hellos, Exchange(len(cluster.workers), cluster.index), meeting.connections)


def _compare(cluster: Cluster, mine: Mapping[str, Any], other: Hello, index: int) -> None:
    """Raise TrainerError if a worker has other options, but those of a machine (OWN), or another TensorFlow."""
    if other.get("tensorflow") != mine["tensorflow"]:
        versions = f"TensorFlow {other.get('tensorflow')}, and this one {mine['tensorflow']}"
        raise TrainerError("peer", f"{cluster.named(index)} has {versions}", "install the same version everywhere")
    plain = json.loads(json.dumps(mine["options"]))
    theirs = other.get("options") or {}
    for key, value in sorted(theirs.items()):
        if key not in OWN and plain.get(key) != value:
            raise TrainerError(
                "peer", f"{cluster.named(index)} was started with {key}={value}, and this one with {plain.get(key)}",
                "start all workers with the same preset and the same --set",
            )  # fmt: skip


def connect(options: Options, joined: Joined) -> tf.distribute.Strategy:
    """Return the strategy over all workers. Its constructor waits for the others, and no thread of this process
    runs: another process watches whether a worker ends. Raises TrainerError. No device may have been opened before.
    """
    way = _WAYS.get(options.strategy.communication)
    if way is None:
        message = f"strategy.communication={options.strategy.communication} exchanges within one machine"
        raise TrainerError("strategy", message, "set it to auto, ring or nccl")
    implementation = getattr(tf.distribute.experimental.CommunicationImplementation, way)
    communication = tf.distribute.experimental.CommunicationOptions(implementation=implementation)
    try:
        with joined.connections.watched(joined.cluster):
            strategy = tf.distribute.MultiWorkerMirroredStrategy(communication_options=communication)
    except (RuntimeError, ValueError, tf.errors.OpError) as fault:
        reason = " ".join(str(fault).split())[:200]
        hint = f"see that every worker can reach the ports of the others; this is {joined.cluster}"
        raise TrainerError("peer", f"TensorFlow could not connect the workers: {reason}", hint) from None
    SUSPENSION.start()  # not before: while the constructor waits no thread runs, which is no suspension
    return strategy


def require_alike(joined: Joined, kind: str, count: int) -> None:
    """TrainerError for other numbers or kinds of devices: the exchange of gradients would wait without end."""
    rows = joined.exchange.rows([float(count), float(kind == "GPU")])
    mine = rows[joined.cluster.index]
    for index, row in enumerate(rows):
        if (row != mine).any():
            theirs = f"{joined.cluster.named(index)} trains on {_devices(*row)}, and this one on {_devices(*mine)}"
            change = "give every worker as many GPUs in device.visible, or set it to none on all"
            raise TrainerError("peer", theirs, change)


def _devices(count: float, are_gpus: float) -> str:
    return f"{count:g} GPU{'s' if count > 1 else ''}" if are_gpus else "its CPU"


def draw_apart(model: keras.Model, joined: Joined) -> None:
    """Make layers such as dropout draw other numbers on each worker, which with one seed would drop the same units."""
    for variable in model.non_trainable_variables:
        if "seed_generator" in variable.path:
            for part in getattr(variable.value, "values", [variable.value]):
                seed, drawn = part.numpy()
                part.assign([(int(seed) + APART * joined.cluster.index) % 2**32, int(drawn)])
