"""Detects a job with several tasks from its environment variables: Slurm, MPI, torchrun, TF_CONFIG.

Without strategy.kind=multi_worker gputui trains in one process on one machine. If a launcher starts several processes,
each of them would silently train a copy of its own, so that this is refused. If one process was started, resources that
stay unused are reported.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from . import slurm
from .slurm import count

# For each launcher: the variables with the number of its processes and with the number of this one.
_LAUNCHERS = (
    ("mpirun", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_RANK"),
    ("mpirun", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_RANK"),
    ("mpirun", "PMI_SIZE", "PMI_RANK"),
    ("torchrun", "WORLD_SIZE", "RANK"),
)
COPIES = "and each would train a copy of its own"
ALONE = "without strategy.kind=multi_worker gputui trains in one process on one machine"
TOGETHER = "set strategy.kind=multi_worker"


@dataclass(frozen=True)
class Remark:
    """A remark on a job with several tasks. `message` is the remark, and `change` the advice.

    The level `error` means that several copies would be trained, `warning` that resources stay unused, and `note` is
    for information.
    """

    level: str
    message: str
    change: str

    def __str__(self) -> str:
        return f"{self.message}; {self.change}"


def read(environment: Mapping[str, str]) -> tuple[Remark, ...]:
    """Return the remarks on the job of the process with these environment variables; empty if there is none to make."""
    started = [*_slurm(environment), *_launched(environment)]  # srun also sets MPI's variables
    return (*started[:1], *_tf_config(environment))


def when_detached(environment: Mapping[str, str]) -> Remark | None:
    """Return the warning that a detached run ends with its Slurm job or job step; None if `environment` is not that of
    a Slurm job.
    """
    job, step = environment.get("SLURM_JOB_ID", ""), slurm.step_number(environment)
    if not job:
        return None
    what = f"the Slurm job step {job}.{step}" if step is not None else f"the Slurm job {job}"
    message = f"the run dies with {what}: when its first process ends, Slurm kills everything that it has started"
    change = "keep gputui running until the end, without --detach; set run.checkpoint to be able to resume"
    return Remark("warning", message, change)


def _slurm(environment: Mapping[str, str]) -> Iterator[Remark]:
    """Yield a remark if a Slurm job has several tasks: an error if srun has started them, else a warning."""
    tasks, in_step = slurm.tasks_in_step(environment), slurm.in_step(environment)
    position, nodes = count(environment, "SLURM_PROCID") or 0, count(environment, "SLURM_JOB_NUM_NODES") or 1
    if in_step and tasks > 1:
        message = f"this is task {position} of the {tasks} that srun started, {COPIES}"
        yield Remark("error", message, f"{TOGETHER}, or start one task: srun --ntasks=1 gputui ...")
    elif not in_step and (tasks > 1 or nodes > 1):
        given = f"{tasks} tasks" if tasks > 1 else f"{nodes} nodes"
        message = f"the Slurm job has {given}; {ALONE}, this one"
        yield Remark("warning", message, "ask for --nodes=1 --ntasks=1 and the GPUs that it is to use")


def _launched(environment: Mapping[str, str]) -> Iterator[Remark]:
    for launcher, size, rank in _LAUNCHERS:
        number = count(environment, size)
        if rank in environment and number is not None and number > 1:
            message = f"this is process {environment[rank]} of the {number} that {launcher} started ({size}), {COPIES}"
            yield Remark("error", message, f"start gputui without {launcher}")


def _tf_config(environment: Mapping[str, str]) -> Iterator[Remark]:
    text = environment.get("TF_CONFIG", "").strip()
    if not text:
        return
    unset = "unset it: env -u TF_CONFIG gputui ..."
    members = _members(text)
    if members is None:
        yield Remark("warning", "TF_CONFIG does not contain a readable cluster, and is ignored", unset)
    elif members > 1 and '"--cluster"' in text:
        yield Remark("error", f"--cluster names {members} workers, {COPIES}", f"{TOGETHER}, or leave out --cluster")
    elif members > 1:
        message = f"TF_CONFIG names a cluster of {members} tasks, {COPIES}"
        yield Remark("error", message, f"{TOGETHER}, or for one task {unset}")
    else:
        yield Remark("warning", f"TF_CONFIG names a cluster of one task, and is ignored: {ALONE}", unset)


def _members(text: str) -> int | None:
    """Return the number of tasks of the cluster in `text` (TF_CONFIG) that train; None if it cannot be read."""
    try:
        config: Any = json.loads(text)
    except (ValueError, RecursionError):
        return None
    cluster = config.get("cluster") if isinstance(config, dict) else None
    if not isinstance(cluster, dict) or not cluster:
        return None
    members = [tasks for kind, tasks in cluster.items() if kind != "evaluator"]
    return sum(len(tasks) if isinstance(tasks, list | dict) else 1 for tasks in members)
