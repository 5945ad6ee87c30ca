"""Reads the cluster of a training on several machines: from the command line, TF_CONFIG, or Slurm's variables."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ..finding import Finding, error
from ..plan import KIND
from ..runs.run_cluster import SOURCE, VARIABLE, Cluster, host_of
from . import slurm
from .slurm import SlurmError

COMMAND_LINE = "--cluster"
HOW = "start gputui on each by srun, with TF_CONFIG, or with --cluster HOST1:PORT,HOST2:PORT --worker N"
_UNSET = f"or unset it: env -u {VARIABLE} gputui ..."
_KINDS = ("chief", "master", "worker")  # those that train, the chief's first; `master` is the chief of TensorFlow 1


class ClusterError(Exception):
    """A cluster that cannot be used; the text is one line that gives the reason and the remedy."""


def read(environment: Mapping[str, str]) -> Cluster | None:
    """The cluster that TF_CONFIG or else Slurm's variables name, if any. Raises ClusterError."""
    if text := environment.get(VARIABLE, "").strip():
        return of_tf_config(text)
    return of_slurm(environment) if slurm.in_step(environment) else None


def read_or_reason(environment: Mapping[str, str]) -> tuple[Cluster | None, Finding | None]:
    """Return the cluster that these environment variables name, if any, or why it cannot be used."""
    try:
        return read(environment), None
    except ClusterError as fault:
        what, separator, remedy = str(fault).rpartition("; ")
        return None, error(KIND, what, remedy) if separator else error(KIND, remedy, "correct it on every machine")


def of_command_line(workers: str, index: int | None) -> Cluster:
    """The cluster of `--cluster` (addresses, with commas) and `--worker` (`index`, from 0). Raises ClusterError."""
    if index is None:
        raise ClusterError("--cluster needs --worker N: which of its addresses is this machine's, counted from 0")
    addresses = tuple(address.strip() for address in workers.split(","))
    if "" in addresses or any(len(address.replace(";", " ").split()) > 1 for address in addresses):
        raise ClusterError("--cluster: separate the addresses by one comma each, such as gpu01:12000,gpu02:12000")
    return _sound(addresses, index, COMMAND_LINE, f"give --worker a number from 0 to {len(addresses) - 1}")


def of_tf_config(text: str) -> Cluster:
    """The cluster in the value of TF_CONFIG, as TensorFlow's TFConfigClusterResolver reads it. Raises ClusterError."""
    try:
        fields: Any = json.loads(text)
    except (ValueError, RecursionError) as fault:
        why = getattr(fault, "msg", "too deep")
        place = f" at character {fault.pos + 1}" if isinstance(fault, json.JSONDecodeError) else ""
        raise ClusterError(f"{VARIABLE} is not JSON ({why}{place}); correct it, {_UNSET}") from None
    if not isinstance(fields, dict):
        raise ClusterError(f"{VARIABLE} must be an object with cluster and task; correct it, {_UNSET}")
    own = fields.get(SOURCE)  # in what gputui itself has written
    source = own if isinstance(own, str) else VARIABLE
    members, task = fields.get("cluster"), fields.get("task")
    if not isinstance(members, dict) or not members:
        raise ClusterError(f"{VARIABLE} names no cluster; correct it, {_UNSET}")
    if "ps" in members:
        raise ClusterError(f"{VARIABLE} has ps tasks: multi_worker has no parameter servers; remove them")
    kind, index = (task.get("type"), task.get("index", 0)) if isinstance(task, dict) else (None, None)
    if kind == "evaluator":
        raise ClusterError(
            "this task is the evaluator: gputui evaluates in its workers (train.validation); leave the evaluator out"
        )
    numbers = {name: _addresses(name, members[name]) for name in _KINDS if name in members}
    index = int(index) if isinstance(index, str) and index.isdigit() else index
    if kind not in numbers or not isinstance(index, int) or isinstance(index, bool):
        raise ClusterError(f"{VARIABLE} does not say which of its tasks this is; give task type and index, {_UNSET}")
    if not 0 <= index < len(numbers[kind]):
        message = f"{VARIABLE} says that this is {kind} {index}, but it names {len(numbers[kind])}, counted from 0"
        raise ClusterError(f"{message}; correct the index of the task")
    kinds = list(numbers)
    before = sum(len(numbers[name]) for name in kinds[: kinds.index(kind)])
    addresses = tuple(address for listed in numbers.values() for address in listed)
    return _sound(addresses, before + index, source, "correct the index of the task")


def of_slurm(environment: Mapping[str, str]) -> Cluster:
    """The cluster of a step's tasks. ClusterError if Slurm's variables do not say where each is, or contradict."""
    if (slurm.count(environment, "SLURM_HET_SIZE") or 1) > 1:
        raise ClusterError("a heterogeneous Slurm job has a node list for each part; name the workers with --cluster")
    try:
        hosts = slurm.hosts_of_tasks(environment)
    except SlurmError as fault:
        raise ClusterError(f"{fault}; name the workers with --cluster HOST1:PORT,HOST2:PORT --worker N") from None
    index, job = slurm.count(environment, "SLURM_PROCID") or 0, environment.get("SLURM_JOB_ID", "").strip()
    port, seen, workers = slurm.first_port(environment), Counter[str](), []
    if text := environment.get("GPUTUI_PORT", "").strip():
        port = slurm.count(environment, "GPUTUI_PORT") or 0
        if not 0 < port < 65536:
            what = f"GPUTUI_PORT={text[:40]} is no port"
            raise ClusterError(f"{what}; give the first of the workers' ports, such as 12000")
    for host in hosts:
        workers.append(f"{host}:{port + seen[host]}")
        seen[host] += 1
    cluster = _sound(tuple(workers), index, f"Slurm job {job}" if job else "Slurm", "start gputui with srun")
    here, local = environment.get("SLURMD_NODENAME", ""), slurm.count(environment, "SLURM_LOCALID")
    mine = host_of(cluster.address)
    if (here and here != mine) or local not in (None, cluster.on_this_host.index(cluster.index)):
        where = f"on {here}" if here and here != mine else f"with SLURM_LOCALID={local}"
        raise ClusterError(
            f"Slurm runs task {cluster.index} {where}, which its node list does not say; "
            "use srun --distribution=block, or name the workers with --cluster"
        )
    return cluster


def _addresses(kind: str, listed: Any) -> tuple[str, ...]:
    """The addresses of one kind of task, from a list or a mapping by index. Raises ClusterError."""
    if isinstance(listed, dict):
        keys = [str(number) for number in range(len(listed))]
        if sorted(listed) != sorted(keys):
            some = ", ".join(sorted(listed))
            message = f"{VARIABLE} must name every {kind}, counted from 0, not only {some}"
            raise ClusterError(f"{message}; correct it, {_UNSET}")
        listed = [listed[key] for key in keys]
    if not isinstance(listed, list) or not listed or not all(isinstance(address, str) for address in listed):
        message = f"{VARIABLE} must give the {kind} tasks as a list of addresses host:port"
        raise ClusterError(f"{message}; correct it, {_UNSET}")
    return tuple(address.strip() for address in listed)


# ---- what is right of every cluster -------------------------------------------------------------


def _sound(workers: Sequence[str], index: int, source: str, otherwise: str) -> Cluster:
    for address in workers:
        host, port = host_of(address), address.rpartition(":")[2]
        if not host or not (port.isascii() and port.isdigit() and 0 < int(port[:6]) < 65536):
            raise ClusterError(f"{source}: {address[:100]!r} is not an address; give host:port, such as gpu01:12000")
    if twice := [address for address, times in Counter(workers).items() if times > 1]:
        raise ClusterError(f"{source}: the address {twice[0]} is listed twice; give each worker its own")
    if not 0 <= index < len(workers):
        raise ClusterError(f"{source}: there is no worker {index} among {len(workers)}, counted from 0; {otherwise}")
    return Cluster(tuple(workers), index, source)
