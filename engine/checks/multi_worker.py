"""Checks a training on several machines (strategy.kind: multi_worker), and that no task of a job trains alone."""

from __future__ import annotations

from collections.abc import Iterator

from ..finding import Finding, error, note, warning
from ..job import cluster
from ..job.machine_gpus import Machine
from ..options import Options
from ..plan import KIND, MULTI_WORKER
from .gpu_checks import on_cpu

WITHIN_A_MACHINE = ("hierarchical_copy", "reduction_to_one_device")
_COMMUNICATION = "strategy.communication"
_RUN_OF_ITS_OWN = "measure one machine of it with strategy.kind=mirrored, and compare whole runs with gputui compare"


def of_job(machine: Machine) -> list[Finding]:
    """About other tasks of this job, for a training on this machine alone."""
    return list(machine.job)


def of_kind(kind: object, machine: Machine) -> list[Finding]:
    """About other tasks and machines for a run with the strategy `kind`."""
    return list(_several(machine)) if kind == MULTI_WORKER else of_job(machine)


def others(options: Options, machine: Machine) -> Iterator[Finding]:
    """`of_kind` as a rule."""
    yield from of_kind(options.strategy.kind, machine)


def together(options: Options, _machine: Machine) -> Iterator[Finding]:
    """One worker that runs out of memory cannot continue alone."""
    if options.strategy.kind == MULTI_WORKER and options.run.on_oom != "stop":
        yield error(("run.on_oom", KIND),
                    "one worker whose memory has run out cannot go on alone: all have to begin again together",
                    "set run.on_oom=stop")  # fmt: skip


def measured_alone(kind: str) -> str:
    """Return why a proof or a search cannot measure the strategy `kind`; empty if it can."""
    if kind != MULTI_WORKER:
        return ""
    return f"strategy.kind=multi_worker: its trials would have to be started on all machines; {_RUN_OF_ITS_OWN}"


def by_command(kind: object) -> list[Finding]:
    """A training on several machines cannot be started from a screen."""
    if kind != MULTI_WORKER:
        return []
    change = "save the preset, and start it on every machine: gputui --preset P; gputui resume RUN resumes it there"
    return [error(KIND, "a training on several machines is started by its command, not from a screen", change)]


def _several(machine: Machine) -> Iterator[Finding]:
    if machine.cluster_fault:
        yield error(KIND, *_parts(machine.cluster_fault))
    elif machine.cluster is None and machine.job_id:
        message = f"this is the Slurm job's batch script or shell, which runs once (job {machine.job_id})"
        yield error(KIND, message, "start one task on each node: srun gputui --preset P")
    elif machine.cluster is None:
        yield error(KIND, "nothing names the machines to train on", cluster.HOW)
    else:
        yield note(KIND, f"this is {machine.cluster}", "its run goes on only while all workers do")


def on_one_node(options: Options, machine: Machine) -> Iterator[Finding]:
    """NCCL must see all GPUs of a node to find every NVLink between them (github.com/NVIDIA/nccl/issues/1066)."""
    here = len(machine.cluster.on_this_host) if machine.cluster else 0
    if options.strategy.kind == MULTI_WORKER and here > 1 and not on_cpu(options, machine):
        message = f"{here} workers share this host, and each sees only its own GPUs: NCCL may not find their NVLinks"
        yield warning(KIND, message, "start one worker on each node (srun --ntasks-per-node=1) for all its GPUs")


def _parts(fault: str) -> tuple[str, str]:
    message, separator, change = fault.rpartition("; ")
    return (message, change) if separator else (fault, "correct it on every machine")


# ---- options that several machines cannot obey ---------------------------------------------------


def devices(options: Options, _machine: Machine) -> Iterator[Finding]:
    """Each worker uses all of its visible GPUs, or its CPU as one device."""
    if options.strategy.kind != MULTI_WORKER:
        return
    if options.strategy.devices != "all":
        change = "set it to all, and name GPUs in device.visible"
        yield error("strategy.devices", f"{MULTI_WORKER} takes all visible GPUs", change)
    if options.device.logical_devices > 1:
        message = f"{MULTI_WORKER} takes each GPU as a whole, and a CPU as one device"
        yield error("device.logical_devices", message, "set it to 1, or strategy.kind=mirrored to try a strategy here")


def communication(options: Options, _machine: Machine) -> Iterator[Finding]:
    """Some values are only for one machine, and `ring` is only for several machines."""
    kind, way = options.strategy.kind, options.strategy.communication
    if kind == MULTI_WORKER and way in WITHIN_A_MACHINE:
        yield error(_COMMUNICATION, f"{way} exchanges within one machine", "set it to auto, ring or nccl")
    if kind == "mirrored" and way == "ring":
        yield error(_COMMUNICATION, f"ring exchanges between machines (strategy.kind={MULTI_WORKER})", "set it to auto")
