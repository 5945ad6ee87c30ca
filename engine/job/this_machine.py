"""Reads what this process may use of this machine. `python -P -m gputui.engine.job.this_machine WHAT` prints it as JSON
for a trainer, whose interpreter may have no NVML (run.python), and which must not hang with the driver. WHAT is `gpus`,
`free INDEX` (bytes of memory) or `cpus INDEX ...` (the CPUs of each GPU's NUMA node).
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from ..gpu import Gpu
from ..system.child_process import BackgroundCall
from ..telemetry import chips
from ..telemetry.nvml import connection
from ..telemetry.nvml.connection import NO_GPU, PATIENCE_SECONDS, Nvml
from ..telemetry.nvml.reasons import Code, NvmlUnavailable
from . import gpu_faults
from .machine_gpus import Machine

WITHOUT_CUDA = (Code.DRIVER_NOT_LOADED, Code.LIB_RM_VERSION_MISMATCH)  # then CUDA cannot work either


def read() -> Machine:
    """Return the machine in its present state."""
    return Machine.here(**answers())


def memory_free_bytes(index: int) -> int | None:
    """Of a GPU (NVML's index) at this moment; None if the driver does not report it."""
    try:
        gpu = next((gpu for gpu in connection.readings() if gpu.index == index), Gpu())
    except NvmlUnavailable:
        return None
    if gpu.memory_total_bytes is None or gpu.memory_used_bytes is None:
        return None
    return max(0, gpu.memory_total_bytes - gpu.memory_used_bytes - (gpu.memory_reserved_bytes or 0))


def gpus_of(pid: int) -> frozenset[str]:
    """The UUIDs of the GPUs and MIG instances that the process `pid` uses; all of a GPU's instances if the driver does
    not report which. Empty if the driver does not report it.
    """

    def lists(gpu: Gpu) -> bool:
        return any(process.pid == pid for process in gpu.processes or ())

    used: set[str | None] = set()
    with contextlib.suppress(NvmlUnavailable):
        for gpu in connection.readings(processes=True):
            parts = gpu.parts or (gpu,)
            used |= {part.uuid for part in [*filter(lists, parts)] or (parts if lists(gpu) else ())}
    return frozenset(filter(None, used))


def answers() -> dict[str, Any]:
    """What NVML reports of the GPUs, as the arguments of Machine.here. Waits for at most 10 s for the driver."""
    try:
        return BackgroundCall(_ask).result(PATIENCE_SECONDS)
    except NvmlUnavailable as fault:
        unknown = fault.code not in WITHOUT_CUDA and chips.has_device_nodes()
        why = gpu_faults.driver_fault(str(fault), fault.code)
        return {"no_gpu_reason": str(fault), "missing": str(fault) if unknown else "", "fault": why}
    except TimeoutError as late:
        reason = f"the NVIDIA driver hangs: {late}"
        return {"no_gpu_reason": reason, "missing": reason}


def _ask() -> dict[str, Any]:
    with contextlib.closing(Nvml()) as nvml:
        driver, cuda = connection.of_driver()
        of_driver = {"gpus": tuple(device.identity() for device in nvml.devices), "cuda": cuda, "driver": driver}
    none = {} if of_driver["gpus"] else {"no_gpu_reason": NO_GPU, "fault": gpu_faults.driver_fault(NO_GPU, None)}
    return of_driver | none


# ---- for a trainer -------------------------------------------------------------------------------


_ANSWERS: dict[str, Callable[[Sequence[int]], Any]] = {
    "gpus": lambda _indexes: answers(),
    "free": lambda indexes: memory_free_bytes(indexes[0]),
    "cpus": lambda indexes: [sorted(cpus) for cpus in connection.cpus_near(indexes)],
}

if __name__ == "__main__":
    print(json.dumps(_ANSWERS[sys.argv[1]]([int(word) for word in sys.argv[2:]]), default=asdict))
