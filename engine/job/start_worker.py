"""Prepares this process to start one worker of a training on several machines: its part of the host's GPUs; its own
port and the names of all hosts are tested from this machine.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Mapping, MutableMapping, Sequence
from dataclasses import replace

from ..finding import Finding, note, warning
from ..gpu import VISIBLE
from ..plan import KIND, MULTI_WORKER
from ..runs import Run
from ..runs.launched_with import options_of
from ..runs.run_cluster import VARIABLE as TF_CONFIG
from ..runs.run_cluster import Cluster, host_of, port_of
from ..runs.run_cluster import of_run as kept_cluster
from ..system.child_process import BackgroundCall
from ..units import counted
from . import cluster, slurm, this_machine
from .cluster import COMMAND_LINE, ClusterError
from .machine_gpus import Machine


def use_command_line(workers: str, index: int | None, environment: MutableMapping[str, str] | None = None) -> None:
    """Write --cluster and --worker into TF_CONFIG, from which all other code reads it. Raises ClusterError."""
    named = cluster.of_command_line(workers, index)
    (os.environ if environment is None else environment)[TF_CONFIG] = named.as_tf_config()


def machine_for(kind: object, visible: object, run: Run | None = None) -> tuple[Machine, list[Finding]]:
    """The machine as a run with the strategy `kind` may use it, and findings. If several workers on this host are all
    shown its GPUs, CUDA_VISIBLE_DEVICES is set to this worker's part. Raises ClusterError.
    """
    here = this_machine.read()
    if kind != MULTI_WORKER:
        return here, []
    if run is not None:
        here = replace(here, cluster=cluster_to_resume(run), cluster_fault=None)
    if here.cluster is None or visible != "all":
        return here, []
    names = [str(gpu.index) for gpu in here.shown]
    if here.visible_devices is not None:
        names = [name.strip() for name in here.visible_devices.split(",")][: len(here.shown)]
    part = share_gpus(os.environ, here.cluster, names)
    if part is None:
        return here, []
    os.environ[VISIBLE] = part
    workers = len(here.cluster.on_this_host)
    message = f"of the {len(here.shown)} GPUs this worker takes {part}, as {workers} workers share this host"
    other = "set CUDA_VISIBLE_DEVICES for each worker to share them out in another way"
    return replace(this_machine.read(), cluster=here.cluster), [note(KIND, message, other)]


def machine_to_resume(run: Run) -> tuple[Machine, list[Finding]]:
    """Return the same as `machine_for`, for a run that is to be resumed. Raises ClusterError."""
    options = options_of(run)
    return machine_for(options.get(KIND), options.get("device.visible"), run)


def test_cluster(kind: object, here: Machine) -> list[Finding]:
    """Findings about the cluster, tested from this machine. Raises ClusterError if this worker cannot start."""
    if kind != MULTI_WORKER or here.cluster is None or not (remark := test_reach(here.cluster)):
        return []
    message, _, change = remark.partition(": ")
    return [warning(KIND, message, change)]


def cluster_to_resume(run: Run) -> Cluster | None:
    """The cluster in the environment (its hosts and ports may have changed), or else in the run's folder; None if
    the run had none. Raises ClusterError if the number of workers or this worker's index has changed.
    """
    kept, now = kept_cluster(run), cluster.read(os.environ)
    if kept is None or now is None:
        return kept
    if len(now.workers) != len(kept.workers):
        raise ClusterError(
            f"{run.name} was started with {counted(len(kept.workers), 'workers')}, and the cluster has "
            f"{len(now.workers)} now; resume it with {len(kept.workers)}, or start a new run"
        )
    if now.index != kept.index:
        raise ClusterError(
            f"{run.name} is the run of worker {kept.index}, and this is worker {now.index}; resume its own run with "
            "gputui resume --latest"
        )
    return now


# ---- the GPUs of the workers on one host ---------------------------------------------------------


def share_gpus(environment: Mapping[str, str], cluster: Cluster, shown: Sequence[str]) -> str | None:
    """This worker's part of the GPUs as a value of CUDA_VISIBLE_DEVICES, None if there is nothing to divide. All get
    the same number, as MultiWorkerMirroredStrategy requires. Raises ClusterError for fewer GPUs than workers.
    """
    here = cluster.on_this_host
    # By the launcher, or by the user with CUDA_VISIBLE_DEVICES.
    own = slurm.gpus_are_bound(environment) if slurm.in_step(environment) else VISIBLE in environment
    if len(here) < 2 or not shown or own:
        return None
    if len(shown) < len(here):
        host = host_of(cluster.address)
        raise ClusterError(
            f"{len(here)} workers run on {host}, which has {counted(len(shown), 'GPUs')} for them, and each needs its "
            f"own; start at most {len(shown)} there, or use device.visible=none"
        )
    each, place = len(shown) // len(here), here.index(cluster.index)
    return ",".join(shown[place * each : (place + 1) * each])


# ---- the port and the names of the hosts ---------------------------------------------------------


ANSWER_SECONDS = 10.0  # a name server may be down
_WAITS = "the run waits until it is; if the name is wrong, stop the run, and give the right name or an address"


def test_reach(cluster: Cluster) -> str:
    """A remark if the cluster looks wrong; ClusterError if this worker cannot start. Of a TF_CONFIG only the own port
    is tested: containers may get their names after their process has started, and the trainer waits for them.
    """
    port = port_of(cluster.address)
    family = socket.AF_INET6 if ":" in host_of(cluster.address) else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # as gRPC's server: an ended run does not hold it
        try:
            line.bind(("", port))
        except OSError as fault:
            who = f"{cluster.named(cluster.index)} cannot use its port {port}"
            change = "give it another port in --cluster, on every machine"
            if cluster.source != COMMAND_LINE:
                change = f"give it another port in {TF_CONFIG}"
            if cluster.source.startswith("Slurm"):
                change = f"set GPUTUI_PORT={port + 100} for all tasks of the job"
            if fault.errno != errno.EADDRINUSE:
                raise ClusterError(f"{who} ({fault.strerror}); {change}") from None
            why = "another program on this machine uses it, perhaps an earlier worker; end that one"
            raise ClusterError(f"{who}: {why}, or {change}") from None
    if cluster.source == TF_CONFIG:
        return ""
    hosts = list(dict.fromkeys(map(host_of, cluster.workers)))
    calls = [(host, BackgroundCall(lambda host=host: _is_known(host))) for host in hosts]  # type: ignore[misc]
    unknown = []
    for host, call in calls:
        try:
            if not call.result(ANSWER_SECONDS):
                unknown.append(host)
        except TimeoutError:
            continue
    if same := _same(cluster):
        raise ClusterError(f"{cluster.source}: {same}, so that both cannot listen there; give each worker its own port")
    if unknown:
        return f"the host {unknown[0]} is not known on this machine: {_WAITS}"
    host, port = host_of(cluster.address), port_of(cluster.address)
    try:
        places = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return ""
    for family, kind, protocol, _, address in places:
        try:
            with socket.socket(family, kind, protocol) as line:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                line.bind(address)
                return ""
        except OSError as fault:
            if fault.errno != errno.EADDRNOTAVAIL:
                return ""
    here = socket.gethostname()
    return f"{host} is none of the addresses of {here}: check that --worker {cluster.index} is this machine"


def _same(cluster: Cluster) -> str:
    """Two workers whose addresses are the same, such as localhost:1 and 127.0.0.1:1."""
    seen: dict[tuple[str, int], int] = {}
    for index, address in enumerate(cluster.workers):
        with contextlib.suppress(OSError, UnicodeError):
            for *_, place in socket.getaddrinfo(host_of(address), port_of(address), type=socket.SOCK_STREAM):
                other = seen.setdefault((str(place[0]), int(place[1])), index)
                if other != index:
                    return f"{cluster.named(other)} and {cluster.named(index)} are one address"
    return ""


def _is_known(host: str) -> bool:
    try:
        return bool(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM))
    except (OSError, UnicodeError):
        return False
