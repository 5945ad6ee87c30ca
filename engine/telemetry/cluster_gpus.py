"""Shares out the GPUs of a host among the workers that run on it, where its launcher shows all of them to each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..runs.cluster import Cluster, host_of
from ..text import counted
from . import slurm
from .cluster import ClusterError
from .visible import VARIABLE


def share(environment: Mapping[str, str], cluster: Cluster, shown: Sequence[str]) -> str | None:
    """This worker's part of the GPUs that CUDA shows, as CUDA_VISIBLE_DEVICES; None where nothing is to be shared out.

    All workers get the same number, as MultiWorkerMirroredStrategy requires. Raises ClusterError where there are
    fewer GPUs than workers.
    """
    here = cluster.on_this_host
    if len(here) < 2 or not shown or _has_its_own(environment):
        return None
    if len(shown) < len(here):
        host = host_of(cluster.address)
        raise ClusterError(
            f"{len(here)} workers run on {host}, which has {counted(len(shown), 'GPUs')} for them, and each needs its "
            f"own; start at most {len(shown)} there, or use device.visible=none"
        )
    each, place = len(shown) // len(here), here.index(cluster.index)
    return ",".join(shown[place * each : (place + 1) * each])


def _has_its_own(environment: Mapping[str, str]) -> bool:
    """Whether the launcher, or the user by CUDA_VISIBLE_DEVICES, gives each worker GPUs of its own."""
    if slurm.in_step(environment):
        return slurm.gpus_are_bound(environment)
    return VARIABLE in environment
