"""Explains the errors with which CUDA refuses to start, by their names in cuda.h, and says what to do."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Cause:
    """What is wrong, and what to do; {driver} stands for the driver's version."""

    what: str
    remedy: str


FABRIC = Cause(
    "the fabric manager has not set up the NVLink switches of this board",
    "as root: systemctl start nvidia-fabricmanager; its version must be the driver's, {driver}",
)
LOOK = "check the driver with nvidia-smi and ls -l /dev/nvidia*; start a container with --gpus all"
_CAUSES = {
    "SYSTEM_NOT_READY": FABRIC,
    "NO_DEVICE": Cause("CUDA sees no device", LOOK),
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
    "OPERATING_SYSTEM": Cause("the operating system refuses access to the GPUs", LOOK),
    "UNKNOWN": Cause(
        "the kernel module nvidia_uvm may be missing, or broken since the machine was suspended",
        "as root: modprobe nvidia_uvm; a container also needs /dev/nvidia-uvm; else restart the machine",
    ),
}
_OTHER = Cause("the driver gives no reason", LOOK)
_NAME = re.compile(r"CUDA_ERROR_(\w+)")


def cause(text: str, driver: str) -> Cause:
    """The cause behind an error that is named in the text."""
    found = named(text)
    cause = _OTHER if found is None else found
    return Cause(cause.what, cause.remedy.format(driver=driver or "of an unknown version"))


def named(text: str) -> Cause | None:
    """The first known error in the text; CUDA's words for one are as good as its name."""
    if "system not yet initialized" in text:
        return FABRIC
    return next((_CAUSES[name] for name in _NAME.findall(text) if name in _CAUSES), None)
