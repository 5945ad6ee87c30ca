"""Explains the errors with which CUDA refuses to start, by their names in cuda.h, and says what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from ..telemetry import hardware


@dataclass(frozen=True)
class Cause:
    """What is wrong, and what to do; {driver} stands for the driver's version.

    A `vague` one only says that CUDA does not start: what the driver says of itself or of a GPU explains it.
    """

    what: str
    remedy: str
    vague: bool = False


FABRIC = Cause(
    "the fabric manager has not set up the NVLink switches of this board",
    "as root: systemctl start nvidia-fabricmanager; its version must be the driver's, {driver}",
)
_LOOK = "check the driver with nvidia-smi and ls -l /dev/nvidia*{container}"
_CONTAINER = "; start a container with --gpus all"
NO_DEVICE = Cause("CUDA sees no device", _LOOK, vague=True)
_CAUSES = {
    "SYSTEM_NOT_READY": FABRIC,
    "NO_DEVICE": NO_DEVICE,
    "SYSTEM_DRIVER_MISMATCH": Cause(
        "the loaded NVIDIA driver and libcuda.so.1 are of different versions, as after an update",
        "restart the machine, or the container with the driver's own libraries",
    ),
    "COMPAT_NOT_SUPPORTED_ON_DEVICE": Cause(
        "the cuda-compat package is found first and works on data-centre GPUs only",
        "remove its folder (.../cuda/compat) from LD_LIBRARY_PATH, or update the driver",
    ),
    "STUB_LIBRARY": Cause(
        "the stub of the CUDA toolkit is found before the driver's own libcuda.so.1",
        "remove its folder (.../lib64/stubs) from LD_LIBRARY_PATH",
    ),
    "OPERATING_SYSTEM": Cause("the operating system refuses access to the GPUs", _LOOK, vague=True),
    "UNKNOWN": Cause(
        "the driver gives no reason",
        "restart the machine; if it was suspended, as root: rmmod nvidia_uvm; modprobe nvidia_uvm",
        vague=True,
    ),
}
_NO_UNIFIED_MEMORY = Cause(
    "the driver's node /dev/nvidia-uvm is missing", "as root: modprobe nvidia_uvm; nvidia-modprobe -u -c=0"
)
_NO_UNIFIED_MEMORY_GIVEN = Cause(_NO_UNIFIED_MEMORY.what, "start the container with --gpus all, which adds the node")
_OTHER = Cause("the driver gives no reason", _LOOK, vague=True)
_NAME = re.compile(r"CUDA_ERROR_(\w+)")


def cause(text: str, driver: str) -> Cause:
    """The cause behind an error that is named in the text."""
    found = named(text)
    return filled(_OTHER if found is None else found, driver)


def filled(cause: Cause, driver: str) -> Cause:
    """With the driver's version, and for a container where this is one."""
    container = _CONTAINER if hardware.confined() else ""
    remedy = cause.remedy.format(driver=driver or "of an unknown version", container=container)
    return replace(cause, remedy=remedy)


def named(text: str) -> Cause | None:
    """The first known error in the text; CUDA's words for one are as good as its name."""
    if "system not yet initialized" in text:
        return FABRIC
    name = next((name for name in _NAME.findall(text) if name in _CAUSES), None)
    if name == "UNKNOWN" and hardware.lacks_unified_memory():
        return _NO_UNIFIED_MEMORY_GIVEN if hardware.confined() else _NO_UNIFIED_MEMORY
    return _CAUSES[name] if name else None
