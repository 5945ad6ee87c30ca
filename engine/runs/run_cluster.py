"""The cluster of a run that trains on several machines, in the run's folder, so that a resume need not name the workers
again. The trainer gets it as TF_CONFIG, the variable that TensorFlow's own launchers set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..files import typed
from . import checkpoint_files
from .event_reading import HEAD_BYTES, events_of
from .events import Started
from .run import LaunchOptions, Run

FILE = "cluster.json"
VARIABLE = "TF_CONFIG"
SOURCE = "gputui"  # gputui's own entry in the variable, in addition to TensorFlow's entries


@dataclass(frozen=True)
class Cluster:
    """The workers of a training on several machines. `workers` are addresses such as host:port; the first is the
    chief's. `index` is the place of this worker in `workers`. `source` names the variables or options that define the
    cluster.
    """

    workers: tuple[str, ...]
    index: int
    source: str = ""

    @property
    def address(self) -> str:
        """The address of this worker."""
        return self.workers[self.index]

    @property
    def is_chief(self) -> bool:
        return self.index == 0

    @property
    def on_this_host(self) -> tuple[int, ...]:
        """The indexes of all workers on the same host as this worker, including its own."""
        return tuple(i for i, address in enumerate(self.workers) if host_of(address) == host_of(self.address))

    def named(self, index: int) -> str:
        """Return the name of a worker for messages: its index and its address."""
        return f"worker {index} ({self.workers[index]})"

    def __str__(self) -> str:
        return f"worker {self.index} of {len(self.workers)}, at {self.address} ({self.source})"

    def as_tf_config(self) -> str:
        """In the form that TensorFlow's TFConfigClusterResolver reads, with `source` in addition."""
        task = {"type": "worker", "index": self.index}
        return json.dumps({"cluster": {"worker": list(self.workers)}, "task": task, SOURCE: self.source})

    def as_file(self) -> str:
        """Return the content of cluster.json."""
        content = {"workers": list(self.workers), "index": self.index, "source": self.source}
        return json.dumps(content, indent=1) + "\n"


def of_run(run: Run) -> Cluster | None:
    """Return the cluster in which the run was launched; None for a run on one machine, or if the file is damaged."""
    cluster = typed.read(run.file(FILE), Cluster).value
    if cluster is None or not 0 <= cluster.index < len(cluster.workers):
        return None
    return replace(cluster, workers=tuple(cluster.workers))


def members(run: Run) -> Sequence[Mapping[str, Any]]:
    """Started.workers of the last `started` event, the chief first; none for a run on one machine."""
    started = events_of(run.path, Started, most=HEAD_BYTES)
    return started[-1].workers if started else ()


def run_of(member: Mapping[str, Any]) -> Run | None:
    """Return the run of a worker, an item of `members`; None if its folder cannot be read from this machine."""
    folder = Path(str(member.get("folder", "")))
    run = Run(folder)
    if not folder.is_absolute() or folder.name != member.get("run"):
        return None
    cluster = of_run(run)
    return run if cluster is not None and cluster.index == member.get("index") else None


def chief_of(run: Run) -> Run | None:
    """The chief's run for that of any worker; None if it cannot be read here, or before it has started."""
    workers = members(run)
    return run_of(workers[0]) if workers else None


def is_saved(run: Run) -> bool:
    """Return True if there is a checkpoint from which the run can be resumed. Of several workers, the chief has it. If
    the chief's folder cannot be read from this machine, return True if the option run.checkpoint is not off.
    """
    mine = of_run(run)
    keeper = run if mine is None or mine.is_chief else chief_of(run)
    if keeper is not None:
        return bool(checkpoint_files.steps_in(keeper.file("checkpoints")))
    return typed.read_usable(run.file("options.json"), LaunchOptions).run.checkpoint not in (None, "off")


def other_workers(chief: Run) -> list[Run]:
    """Those beside the chief's folder; none if `chief` is not the run of a chief."""
    named = [str(member.get("run")) for member in members(chief)]
    if not named or named[0] != chief.id:
        return []
    others = [Run(chief.path.parent / Path(name).name) for name in named[1:]]
    return [run for index, run in enumerate(others, 1) if _is_of(run, index, chief)]


def local_chief(run: Run) -> Run | None:
    """Return the chief's run for the run of another worker, if both have the same parent folder; else None."""
    mine = of_run(run)
    if mine is None or mine.is_chief or not (workers := members(run)):
        return None
    chief = Run(run.path.parent / Path(str(workers[0].get("run"))).name)
    return chief if run in other_workers(chief) else None


def _is_of(run: Run, index: int, chief: Run) -> bool:
    mine = of_run(run)
    workers = members(run) if mine is not None and mine.index == index else ()
    return bool(workers) and workers[0].get("run") == chief.id


def host_of(address: str) -> str:
    """Return the host of an address such as host:port; an IPv6 host is returned without its brackets."""
    return address.rpartition(":")[0].strip("[]")


def port_of(address: str) -> int:
    return int(address.rpartition(":")[2])
