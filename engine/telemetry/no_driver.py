"""Explains why a machine that has GPUs has no driver that shows them: what is wrong, and what to do about it.

A training would run on the CPU there. That is an error where the driver should work, and a warning where none is
installed or a container was given no GPU, as may be intended.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from ..system import installed
from . import allocation, hardware
from .compatible import dotted
from .gpus import Fault
from .nvml import NO_GPU
from .reasons import Code

_RESTART = "restart the container; systemctl daemon-reload on the host takes the GPUs away from running containers"
_NO_DRIVER = (None, Code.LIBRARY_NOT_FOUND)
_REMEDIES = {
    Code.LIB_RM_VERSION_MISMATCH: "restart it, or load the driver again (as root: rmmod nvidia_drm nvidia_modeset "
    "nvidia_uvm nvidia; modprobe nvidia)",
    Code.DRIVER_NOT_LOADED: "modprobe nvidia (as root) loads it; after a new kernel it may have to be installed again",
    Code.NO_PERMISSION: "ls -l /dev/nvidia* shows who has access: ask the administrator for it",
}
_IN_A_CONTAINER = {
    Code.LIB_RM_VERSION_MISMATCH: "restart the container, so that it gets the driver's new libraries; or the machine",
    Code.UNKNOWN: _RESTART,
}


def explained(reason: str, code: int | None, bus: Sequence[str] | None, confined: bool) -> Fault:
    """The fault behind NVML's `reason` and `code` on a machine with GPUs, of which `bus` has the addresses.

    `confined` says whether this is a container or a job, which may have been given none of them.
    """
    if code in _NO_DRIVER or withheld(code, confined):
        return _not_given(reason, len(bus or ()), confined)
    remedy = "check whether nvidia-smi works"
    if confined and code in _IN_A_CONTAINER:
        lost = f"{reason}: the container has lost its GPUs" if code == Code.UNKNOWN else reason
        return Fault("error", "driver", lost, _IN_A_CONTAINER[Code(code)])
    return Fault("error", "driver", reason, next((words for at, words in _REMEDIES.items() if at == code), remedy))


def found(reason: str, code: int | None) -> Fault | None:
    """The same as this process sees the machine; None where it has no GPU."""
    bus = hardware.gpus_on_bus()
    return explained(reason, code, bus, hardware.confined()) if expected(reason, code, bus) else None


def expected(reason: str, code: int | None, bus: Sequence[str] | None) -> bool:
    """Whether the machine should have a GPU. One without is not broken, whatever software is installed on it."""
    if bus is None:  # it is hidden, or the GPUs are not on it
        return code != Code.LIBRARY_NOT_FOUND and reason != NO_GPU
    return bool(bus)


def too_old(driver: str, cuda: tuple[int, int] | None) -> Fault | None:
    """A driver for an older CUDA than that of TensorFlow, by more than its minor version; `cuda` is the driver's."""
    built = installed.cuda_version()
    if cuda is None or built is None or cuda[0] >= built[0]:
        return None
    what = f"NVIDIA driver {driver}, CUDA {dotted(cuda)}: TensorFlow was built for CUDA {dotted(built)}"
    return Fault("error", "driver", what, "update the driver; TensorFlow cannot use the GPUs with this one")


def _not_given(reason: str, count: int, confined: bool) -> Fault:
    """No driver is installed, the container was given no GPU, or the driver shows none."""
    what, level = f"{count} NVIDIA GPU(s) in this machine, but {reason}", "warning"
    remedy = "install NVIDIA's driver for this system; nvidia-smi then lists the GPUs"
    if confined:
        remedy = "start the container with --gpus all, or ask for GPUs in the job"
    elif reason == NO_GPU:
        level, remedy = "error", "dmesg | grep -i nvrm shows why"
    return Fault(level, "GPU", what, remedy)


def withheld(code: int | None, confined: bool) -> bool:
    """Whether a container or a job was given no driver: its launcher does not say that it has GPUs."""
    given = allocation.read(os.environ, 0)
    return confined and code == Code.DRIVER_NOT_LOADED and not (given and given.names)
