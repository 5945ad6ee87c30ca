"""What the GPUs mean for a training, and checks that they exist and are allocated to the job."""

from __future__ import annotations

from collections.abc import Iterator

from .. import plan
from ..options import Options
from ..telemetry.machine import Machine
from ..telemetry.training_gpus import positions, visible_gpus
from .finding import Finding, error


def replicas(options: Options, machine: Machine) -> int:
    """How many replicas of the model train in parallel."""
    workers = len(machine.cluster.workers) if machine.cluster else 1
    return plan.replicas(options.strategy, plan.devices(options, len(visible_gpus(options, machine))), workers)


def on_cpu(options: Options, machine: Machine) -> bool:
    """Whether it is certain that no GPU trains; false where NVML cannot be read or does not know a MIG instance."""
    visible = options.device.visible
    unknown = machine.missing or (isinstance(visible, list) and any(str(name).startswith("MIG-") for name in visible))
    return visible == "none" or not (unknown or visible_gpus(options, machine))


def share_a_gpu(options: Options, machine: Machine) -> bool:
    """Whether two replicas train on partitions of one GPU."""
    found = positions(options, len(visible_gpus(options, machine)))
    return len(set(found)) < len(found)


# ---- rules --------------------------------------------------------------------------------------


def missing_gpus(options: Options, machine: Machine) -> Iterator[Finding]:
    visible = options.device.visible
    if isinstance(visible, str):
        return
    for name in visible:
        if not machine.missing and not machine.finds(name) and not str(name).startswith("MIG-"):
            have = f"this machine has {len(machine.gpus)}" if machine.gpus else machine.no_gpu_reason
            yield error(
                "device.visible",
                f"there is no GPU {name} ({have})",
                "set it to all, none, or the numbers of existing GPUs",
            )
    if len(set(visible)) != len(visible):
        yield error("device.visible", "names a GPU twice", "name each once")
    if len({str(name)[:4] if isinstance(name, str) else "" for name in visible}) > 1:
        yield error(
            "device.visible",
            "mixes indices and UUIDs; CUDA reads only those of the same kind as the first",
            "use only indices, or only UUIDs",
        )


def allocation(options: Options, machine: Machine) -> Iterator[Finding]:
    """Finds GPUs outside of the job's allocation, which belong to somebody else."""
    given, visible = machine.allocation, options.device.visible
    if given is None or visible == "none":
        return
    if visible == "all":
        beyond = [gpu.index for gpu in visible_gpus(options, machine) if not given.allows(gpu.index, machine.devices)]
        if beyond:
            own = ",".join(given.names)
            message = f"{given}, but CUDA_VISIBLE_DEVICES does not hide the others"
            yield Finding("warning", ("device.visible",), message, f"set it to {own}" if own else "set it to none")
        return
    for name in visible:
        if not given.allows(name, machine.devices):
            change = "name only GPUs of this job, or set it to all" if given.names else "set it to none"
            yield error("device.visible", f"GPU {name} is not allocated to this job: {given}", change)
