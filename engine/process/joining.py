"""Prepares this process to start one worker of a training on several machines: its GPUs, its port, the hosts' names."""

from __future__ import annotations

import os
from collections.abc import MutableMapping, Sequence
from dataclasses import replace

from ..checks import Finding
from ..runs import Run
from ..runs.cluster import VARIABLE, Cluster
from ..runs.cluster import of_run as kept_cluster
from ..runs.launched_with import options_of
from ..telemetry import cluster, cluster_gpus, cluster_reach, machine
from ..telemetry.cluster import ClusterError
from ..telemetry.machine import Machine
from ..telemetry.visible import VARIABLE as VISIBLE
from ..text import counted

KEY, KIND = "strategy.kind", "multi_worker"


def name(workers: str, index: int | None, environment: MutableMapping[str, str] | None = None) -> None:
    """Take the cluster from `--cluster` and `--worker`: everything that reads the environment finds it there."""
    found = cluster.of_command_line(workers, index)
    (os.environ if environment is None else environment)[VARIABLE] = found.as_tf_config()


def machine_of(kind: object, visible: object, run: Run | None = None) -> tuple[Machine, list[Finding]]:
    """The machine as a run with this strategy finds it, and remarks on it; `run` is one that is to be resumed.

    Workers on one host that are all shown its GPUs share them out: from here on this process is shown its part.
    Raises ClusterError.
    """
    here = machine.read()
    if kind != KIND:
        return here, []
    if run is not None:
        here = replace(here, cluster=cluster_to_resume(run), cluster_fault="")
    if here.cluster is None or visible != "all":
        return here, []
    part = cluster_gpus.share(os.environ, here.cluster, _names(here))
    if part is None:
        return here, []
    os.environ[VISIBLE] = part
    workers = len(here.cluster.on_this_host)
    message = f"of the {len(here.shown)} GPUs this worker takes {part}, as {workers} workers share this host"
    other = "set CUDA_VISIBLE_DEVICES for each worker to share them out in another way"
    return replace(machine.read(), cluster=here.cluster), [Finding("note", (KEY,), message, other)]


def of_run(run: Run) -> tuple[Machine, list[Finding]]:
    """The same for a run that is to be resumed."""
    options = options_of(run)
    return machine_of(options.get(KEY), options.get("device.visible"), run)


def test(kind: object, here: Machine) -> list[Finding]:
    """The remarks on the cluster, tested from this machine; raises ClusterError where this worker cannot start."""
    if kind != KIND or here.cluster is None or not (remark := cluster_reach.check(here.cluster)):
        return []
    message, _, change = remark.partition(": ")
    return [Finding("warning", (KEY,), message, change)]


def cluster_to_resume(run: Run) -> Cluster | None:
    """The cluster in which a run is resumed: as the environment names it now, else as it was kept; raises ClusterError.

    Hosts and ports may be others, but not the number of the workers nor this one's place among them.
    """
    kept, now = kept_cluster(run), cluster.read(os.environ)
    if kept is None or now is None:
        return kept
    if len(now.workers) != len(kept.workers):
        raise ClusterError(
            f"{run.id} was started with {counted(len(kept.workers), 'workers')}, and the cluster has "
            f"{len(now.workers)} now; resume it with {len(kept.workers)}, or start a new run"
        )
    if now.index != kept.index:
        raise ClusterError(
            f"{run.id} is the run of worker {kept.index}, and this is worker {now.index}; resume its own run with "
            "gputui resume --latest"
        )
    return now


def _names(here: Machine) -> Sequence[str]:
    """The shown GPUs as CUDA_VISIBLE_DEVICES names them."""
    if here.visible_devices is None:
        return [str(gpu.index) for gpu in here.shown]
    return [name.strip() for name in here.visible_devices.split(",")][: len(here.shown)]
