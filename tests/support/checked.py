"""Machines that the checks are given."""

from __future__ import annotations

from dataclasses import replace

from tests.doors.engine import Cluster, Finding, Gpu, GpuProcess, Machine, MigInstance, allocation_from

GB = 1024**3


def gpu(index: int, capability: tuple[int, int] | None = (9, 0), memory: int | None = 80 * GB) -> Gpu:
    return Gpu(index, f"GPU-{index}", "A GPU", capability, memory)


def machine(*gpus: Gpu) -> Machine:
    return Machine(gpus, "" if gpus else "no NVIDIA driver", 16, 128 * GB)


NONE = machine()
ONE = machine(gpu(0))
TWO = machine(gpu(0), gpu(1))
PASCAL = machine(gpu(0, (6, 1), 8 * GB))
VOLTA = machine(gpu(0, (7, 0), 16 * GB))
MIXED = machine(gpu(0), gpu(1, (6, 1)))
P100 = machine(gpu(0, (6, 0), 16 * GB))
BLACKWELL = machine(gpu(0, (12, 0), 32 * GB))
UNKNOWN = machine(gpu(0, None, None))
SILENT = replace(NONE, missing="no NVML here")  # GPUs may be there
OLD_DRIVER = replace(ONE, cuda=(12, 2))
EIGHT = machine(*(gpu(index) for index in range(8)))
WITH_DISPLAY = machine(  # a Quadro P400 before an RTX 4090
    replace(gpu(0, (6, 1), 2 * GB), multiprocessors=2), replace(gpu(1, (8, 9), 24 * GB), multiprocessors=128)
)
PARTED = machine(  # two MIG instances
    replace(gpu(0), mig=(MigInstance("MIG-a", 20 * GB), MigInstance("MIG-b", 40 * GB)))
)


def given(of: Machine, **variables: str) -> Machine:
    """The machine in a job whose launcher has set these variables."""
    shown = variables.get("CUDA_VISIBLE_DEVICES")
    return replace(of, visible_devices=shown, allocation=allocation_from(variables, len(of.gpus)))


FOUR_FIVE = given(EIGHT, CUDA_VISIBLE_DEVICES="4,5", SLURM_JOB_GPUS="4,5")
NOT_FENCED = given(EIGHT, SLURM_JOB_GPUS="4-5")

STOPPED = replace(
    NONE, fault=Finding("error", "driver", "the driver is not loaded", "modprobe nvidia (as root) loads it")
)
MODELS = machine(replace(gpu(0), name="RTX 3090"), replace(gpu(1), name="RTX 4090"))
PYTHON = (GpuProcess(77, name="python"),)
HELD = replace(gpu(1), exclusive=True, processes=PYTHON)
TAKEN = machine(replace(gpu(0), memory_used_bytes=70 * GB, processes=PYTHON), gpu(1))
EMPTY = machine(replace(gpu(0), mig=()))
TOO_OLD = machine(gpu(0, (5, 2), 24 * GB))
TOGETHER = Cluster(("a:1", "a:2", "b:1", "b:2"), 1, "Slurm")
WORKER = replace(NONE, cluster=Cluster(("a:1", "b:1"), 1, "Slurm"))
