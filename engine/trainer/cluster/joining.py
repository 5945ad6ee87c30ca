"""Joins the cluster that TF_CONFIG names: meets the other workers, and compares what they were started with."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import tensorflow as tf

from ...options import OPTIONS, Options
from ...runs import Run
from ...runs.cluster import SOURCE, VARIABLE, Cluster
from ..common.faults import TrainerError
from .attendance import Hello
from .exchange import Exchange
from .lines import Lines
from .meeting import Meeting
from .suspension import SuspensionWatch

SUSPENSION = SuspensionWatch()  # of this process, which joins one cluster

# Options in which workers may differ: what is each machine's own. The seed is the chief's.
OWN = {
    "device.visible", "device.memory_limit_mb", "device.inter_op_threads", "device.intra_op_threads", "device.numa",
    "device.log_placement", "workload.data", "workload.folder", "workload.entry", "input.cache", "train.seed",
    "run.max_minutes", "run.stop_signal", "run.keep", "run.python", "run.hang_seconds", "compile.xla_cache",
}  # fmt: skip


@dataclass(frozen=True)
class Joined:
    """The cluster that this worker has joined; `hellos` are what each worker has said of itself, over `lines`."""

    cluster: Cluster
    hellos: list[Hello]
    exchange: Exchange
    lines: Lines

    def described(self, replicas: int, gpus: list[str]) -> list[dict[str, Any]]:
        """The workers as the event `started` lists them; all workers call it at the same place."""
        told = json.dumps({"replicas": replicas, "gpus": gpus}).encode()
        found = [json.loads(one) for one in self.exchange.of_all(told)]
        return [
            {"index": index, "address": self.cluster.workers[index]}
            | {name: hello[name] for name in ("host", "run", "folder")} | of_its_own
            for index, (hello, of_its_own) in enumerate(zip(self.hellos, found, strict=True))
        ]  # fmt: skip


def read() -> Cluster:
    """The cluster in TF_CONFIG; raises TrainerError."""
    try:
        found = json.loads(os.environ.get(VARIABLE, "") or "{}")
        workers, index = tuple(map(str, found["cluster"]["worker"])), int(found["task"]["index"])
        workers[index]
    except (ValueError, KeyError, TypeError, IndexError):
        raise TrainerError(
            "strategy", f"strategy.kind=multi_worker needs a cluster, and {VARIABLE} names none", _HOW
        ) from None
    return Cluster(workers, index, str(found.get(SOURCE) or VARIABLE))


_HOW = "start gputui on each machine by srun, with TF_CONFIG, or with --cluster HOST1:PORT,HOST2:PORT --worker N"


def meet(options: Options, run: Run, tell: Callable[[str], None], check: Callable[[], None]) -> tuple[Options, Joined]:
    """Wait for all workers; returns the options with the chief's seed. Raises TrainerError."""
    cluster = read()
    hello = {
        "host": socket.gethostname(), "run": run.id, "folder": str(run.path.absolute()), "options": _flat(options),
        "tensorflow": tf.__version__,
    }  # fmt: skip
    meeting = Meeting(cluster, hello)
    hellos = meeting.hold(tell, check)
    for index, other in enumerate(hellos):
        _compare(cluster, hello, other, index)
    seed = hellos[0]["options"].get("train.seed")
    options = replace(options, train=replace(options.train, seed=seed))
    return options, Joined(cluster, hellos, Exchange(len(cluster.workers), cluster.index), meeting.lines)


def _flat(options: Options) -> dict[str, Any]:
    groups = asdict(options)
    return {info.key: groups[info.group][info.name] for info in OPTIONS}


def _compare(cluster: Cluster, mine: Mapping[str, Any], other: Hello, index: int) -> None:
    """Workers with different options would wait for each other without end, or train different models."""
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
