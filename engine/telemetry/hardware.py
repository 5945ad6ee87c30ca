"""Finds NVIDIA GPUs and the driver's device nodes in the kernel's files, independently of NVML.

If the device nodes exist, CUDA may work even if NVML cannot be read.
"""

from __future__ import annotations

import os
from pathlib import Path

from . import limits

NVIDIA = "0x10de"
DISPLAY = "0x03"  # the PCI class of graphics and compute chips; a card's audio and USB parts have others
LENT = "vfio-pci"  # this driver reserves a device for a virtual machine
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_CONFINED = ("container", "NVIDIA_VISIBLE_DEVICES", "KUBERNETES_SERVICE_HOST", "APPTAINER_CONTAINER", "SLURM_JOB_ID")


def gpus_on_bus() -> list[str] | None:
    """Return the PCI addresses of all NVIDIA GPUs of this machine, such as 0000:01:00.0; None if the bus cannot be
    seen.
    """
    try:
        devices = sorted((limits.ROOT / "sys/bus/pci/devices").iterdir())
    except OSError:
        return None
    addresses = [device.name for device in devices if _is_gpu(device)]
    return None if not addresses and has_device_nodes() else addresses


def _is_gpu(device: Path) -> bool:
    try:
        nvidia = (device / "vendor").read_text().strip() == NVIDIA
        return nvidia and (device / "class").read_text().startswith(DISPLAY) and not _is_lent(device)
    except OSError:
        return False


def _is_lent(device: Path) -> bool:
    return (device / "driver").resolve().name == LENT


def confined() -> bool:
    """Return True in a container or a batch job, which may have been given only some of the GPUs."""
    files = any((limits.ROOT / name).exists() for name in _CONTAINER_FILES)
    return files or any(os.environ.get(name) for name in _CONFINED)


# ---- the driver's device nodes -------------------------------------------------------------------


# Of the driver for data centres and desktops, and of a Jetson.
_NODES = ("dev/nvidiactl", "dev/nvidia[0-9]*", "dev/nvhost-gpu")
_UVM = "dev/nvidia-uvm"
# WSL has this node for GPUs of any maker; Windows' NVIDIA driver adds its libcuda.so.1 (NVIDIA's "CUDA on WSL" guide).
WSL_LIBRARIES = "usr/lib/wsl/lib"
_WSL = ("dev/dxg", f"{WSL_LIBRARIES}/libcuda.so.1")


def has_device_nodes() -> bool:
    """Return True if this machine or container has the device node of a GPU."""
    if all((limits.ROOT / name).exists() for name in _WSL):
        return True
    return any(any(limits.ROOT.glob(node)) for node in _NODES)


def lacks_unified_memory() -> bool:
    """Return True if the driver's device nodes exist, but not the one of nvidia_uvm, which CUDA needs."""
    return any(limits.ROOT.glob(_NODES[0])) and not (limits.ROOT / _UVM).exists()
