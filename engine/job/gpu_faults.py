"""Finds what keeps a training from this machine's GPUs: no driver (an error if one should work, else a warning: it may
be intended), or a wrong choice: a name in CUDA_VISIBLE_DEVICES that fits no GPU hides all GPUs after it, without a word
of CUDA or TensorFlow. To gputui and nvidia-smi an index is the place on the PCI bus; CUDA's own order has the fastest
GPU first.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence

from ..finding import Finding
from ..gpu import VISIBLE, Gpu
from ..interpreter import installed
from ..interpreter.compatibility import dotted
from ..telemetry import chips
from ..telemetry.nvml.connection import NO_GPU
from ..telemetry.nvml.reasons import Code
from .machine_gpus import allocation_from, find, hides_all, is_index, stops_at, used_by_tensorflow, visible

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


def of_driver(reason: str, code: int | None, bus: Sequence[str] | None, confined: bool) -> Finding:
    """What NVML's `reason` and error number mean on a machine with GPUs at the addresses `bus` (None: it cannot be
    seen). `confined`: in a container or a job, which may have been given none of the GPUs.
    """
    if code in _NO_DRIVER or driver_withheld(code, confined):
        bus = bus or ()
        # no driver is installed, the container was given no GPU, or the driver shows none of those on the bus
        what, level = f"{len(bus)} NVIDIA GPU(s) in this machine, but {reason}", "warning"
        remedy = "install NVIDIA's driver for this system; nvidia-smi then lists the GPUs"
        if confined:
            remedy = "start the container with --gpus all, or ask for GPUs in the job"
        elif reason == NO_GPU:
            level = "error"
            remedy = f"dmesg | grep -i nvrm shows why{needs_of_chips(bus)}"
        return Finding(level, "GPU", what, remedy)
    remedy = next((words for at, words in _REMEDIES.items() if at == code), "check whether nvidia-smi works")
    if confined and code in _IN_A_CONTAINER:
        lost = f"{reason}: the container has lost its GPUs" if code == Code.UNKNOWN else reason
        return Finding("error", "driver", lost, _IN_A_CONTAINER[Code(code)])
    remedy += needs_of_chips(bus or ()) if code == Code.DRIVER_NOT_LOADED else ""
    return Finding("error", "driver", reason, remedy)


def needs_of_chips(addresses: Sequence[str]) -> str:
    """Which driver these GPUs need, to follow a remedy: one that does not know a chip is not loaded."""
    devices = chips.devices_at(addresses)
    needs = ""
    if any(device < chips.TURING_DEVICE for device in devices):
        needs += "; Maxwell, Pascal and Volta need driver 580 or older"
    if any(device >= chips.BLACKWELL_DEVICE for device in devices):
        needs += "; Blackwell needs the open kernel modules (such as nvidia-driver-570-open)"
    return needs


def driver_fault(reason: str, code: int | None) -> Finding | None:
    """`of_driver` of this machine; None if it should have no GPU."""
    bus = chips.gpus_on_bus()
    return of_driver(reason, code, bus, chips.confined()) if gpu_expected(reason, code, bus) else None


def gpu_expected(reason: str, code: int | None, bus: Sequence[str] | None) -> bool:
    """A GPU is on the bus or, if that cannot be seen, the driver's library exists and reports an error."""
    if bus is None:  # the bus cannot be seen, or the GPUs are not on a PCI bus
        return code != Code.LIBRARY_NOT_FOUND and reason != NO_GPU
    return bool(bus)


def old_driver(driver: str, cuda: tuple[int, int] | None) -> Finding | None:
    """The driver's newest CUDA is of an older major version than that which TensorFlow was built with."""
    built = installed.cuda_version()
    if cuda is None or built is None or cuda[0] >= built[0]:
        return None
    what = f"NVIDIA driver {driver}, CUDA {dotted(cuda)}: TensorFlow was built for CUDA {dotted(built)}"
    return Finding("error", "driver", what, "update the driver; TensorFlow cannot use the GPUs with this one")


def driver_withheld(code: int | None, confined: bool) -> bool:
    """A container or a job (`confined`) was given no driver, and its launcher has allocated no GPU to it."""
    given = allocation_from(os.environ, 0)
    return confined and code == Code.DRIVER_NOT_LOADED and not (given and given.names)


# ---- the choice by CUDA_VISIBLE_DEVICES ----------------------------------------------------------


ORDER, PCI = "CUDA_DEVICE_ORDER", "PCI_BUS_ID"
CPU = f"{VISIBLE}='' or device.visible=none trains on the CPU"
NO_INSTANCE = "MIG is on without an instance: TensorFlow cannot use it"
NEW_INSTANCE = "as root: nvidia-smi mig -cgi 0 -C creates one of the whole GPU, nvidia-smi -mig 0 switches MIG off"
_MOST_NAMED = 4


def of_visible_devices(value: str | None, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Faults of CUDA_VISIBLE_DEVICES (None: not set) on a machine with these GPUs."""
    if not gpus or hides_all(value):
        return
    if value is not None and (name := stops_at(value, gpus)):
        yield _unknown(value, name, gpus)
    yield from _order(value, gpus)


def _unknown(value: str, name: str, gpus: Sequence[Gpu]) -> Finding:
    shown, device = visible(value, gpus), find(name, gpus)
    empty = [gpu for gpu in gpus if not gpu.parts and name in (str(gpu.index), gpu.uuid)]
    if empty:
        return Finding("warning" if shown else "error", "GPU", f"GPU {empty[0].index}: {NO_INSTANCE}", NEW_INSTANCE)
    why = f"{name} fits no single GPU" if device is None else f"{name} is of another kind, or names a GPU twice"
    if shown:
        what = f"{VISIBLE}={value} shows {', '.join(map(str, shown))} alone: {why}, and CUDA stops there"
        return Finding("warning", "GPU", what, f"this machine has {_names(gpus, name)}")
    what = f"{VISIBLE}={value} shows no GPU: {why}"
    return Finding("error", "GPU", what, f"this machine has {_names(gpus, name)}; {CPU}")


def _names(gpus: Sequence[Gpu], like: str) -> str:
    """The names of at most four GPUs or MIG instances, in the same kind of name as `like`."""
    if like.startswith("MIG-"):
        names = [instance.uuid for gpu in gpus for instance in gpu.instances or ()]
    elif like.startswith("GPU-"):
        names = [f"{gpu.uuid} ({gpu.name})" for gpu in gpus if gpu.uuid]
    else:
        names = [f"{gpu.index} ({gpu.name})" for gpu in gpus]
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (", ".join(names[:_MOST_NAMED]) or "no MIG instance") + more


def _order(value: str | None, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """GPUs of different models are named by indexes, which may mean others in CUDA's own order."""
    by_index = value is None or is_index(value.split(",")[0].strip())
    asked = gpus if value is not None else used_by_tensorflow(visible(None, gpus))
    if os.environ.get(ORDER) == PCI or not by_index or len({gpu.name for gpu in asked if gpu.name}) < 2:
        return
    shown = ", ".join(map(str, visible(value, gpus) if value is not None else asked))
    if not shown:
        return
    what = f"{VISIBLE}={value} means {shown}" if value is not None else f"GPUs of different models: {shown}"
    what += ", in the order of the PCI bus; by CUDA's own order, the fastest first, numbers may mean others"
    yield Finding("warning", ORDER, what, f"set {ORDER}={PCI}, so that all programs count alike, or name GPUs by UUID")
