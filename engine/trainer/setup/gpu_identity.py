"""Identifies the GPUs that a training computes on, by their PCI addresses, which TensorFlow logs, and by which NVML
finds them. Neither CUDA_VISIBLE_DEVICES nor CUDA's order has to be interpreted. The CUDA driver is asked for facts
that the log lacks.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import stat
from collections.abc import Mapping, Sequence
from typing import Any

import tensorflow as tf

from ...gpu import Gpu, TrainingGpu
from ...job.machine_gpus import Machine
from ..common.versions import memory_limits
from . import environment

_UNCERTAIN = "TensorFlow does not report the PCI addresses of its GPUs: assumed to be the first in CUDA's order"
_STANDARD_ERROR = 2
_AT_MOST_BYTES = 1024**2
# As tensorflow/core/common_runtime/gpu/gpu_device.cc words it.
_CREATED = re.compile(r"Created device \S*/device:(GPU:\d+) with .* device: (\d+), .* pci bus id: ([\w:.]+)")
_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT in cuda.h


def identify(
    names: Sequence[str], machine: Machine, created: Mapping[str, tuple[int, str]]
) -> tuple[tuple[TrainingGpu, ...], str]:
    """Return the GPUs of the logical devices `names`, each once and in their order, and a warning if they are
    uncertain. `created` has CUDA's number (from 0) and the PCI address of devices by names such as GPU:0, as logged.
    """
    ordinals, limits = _ordinals(created), {_short(name): limit for name, limit in memory_limits().items()}
    gpus: dict[int, TrainingGpu] = {}
    certain = True
    for position, name in enumerate(names):
        ordinal = ordinals.get(_short(name), position)
        if ordinal in gpus:
            continue
        bus = created[_short(name)][1] if _short(name) in created else driver_pci_bus_id(ordinal)
        gpu = at_pci_address(bus, machine)
        certain = certain and (len(machine.gpus) < 2 or (gpu is not None and _short(name) in ordinals))
        gpu = gpu or (machine.shown[ordinal] if ordinal < len(machine.shown) else None)
        of_gpu = [limits[each] for each, its in ordinals.items() if its == ordinal and each in limits]
        details, physical = {}, tf.config.list_physical_devices("GPU")
        if ordinal < len(physical):
            details = dict(tf.config.experimental.get_device_details(physical[ordinal]))
        chip = (gpu.name if gpu else None) or details.get("device_name")
        gpus[ordinal] = TrainingGpu(
            device=name,
            pci_bus_id=(gpu.pci_bus_id if gpu else None) or bus,
            uuid=gpu.card or gpu.uuid if gpu else None,
            index=gpu.index if gpu else None,
            name=chip,
            compute_capability=(gpu.compute_capability if gpu else None) or details.get("compute_capability"),
            memory_limit_bytes=sum(of_gpu) if of_gpu else None,
            memory_total_bytes=(gpu.memory_total_bytes if gpu else None) or driver_memory_total_bytes(ordinal),
            mig=gpu.in_mig_mode if gpu else " MIG " in str(chip),
        )
    return tuple(gpus.values()), "" if certain else _UNCERTAIN


def before_opening(ordinal: int, machine: Machine) -> Gpu | None:
    """Return the GPU in NVML of TensorFlow's number `ordinal` (from 0), while TensorFlow has not opened it yet."""
    gpu = at_pci_address(driver_pci_bus_id(ordinal), machine)
    return gpu or (machine.shown[ordinal] if ordinal < len(machine.shown) else None)


def memory_free_bytes(ordinal: int, machine: Machine) -> int | None:
    """Return it while the GPU is not opened. NVML reports none of a MIG instance: then its total."""
    gpu = before_opening(ordinal, machine)
    free = environment.memory_free_bytes(gpu.index) if gpu and not gpu.in_mig_mode else None
    return free or (gpu.memory_total_bytes if gpu else None) or driver_memory_total_bytes(ordinal)


def at_pci_address(pci_bus_id: str | None, machine: Machine) -> Gpu | None:
    """Return the GPU in NVML at this address, with the memory of the instance that CUDA shows in MIG mode."""
    if pci_bus_id is None:
        return None
    # CUDA shows one instance alone, and the GPU that it is a part of only then.
    return next((gpu for gpu in (*machine.shown, *machine.gpus) if _place(gpu.pci_bus_id) == _place(pci_bus_id)), None)


def _ordinals(created: Mapping[str, tuple[int, str]]) -> dict[str, int]:
    names = [_short(device.name) for device in tf.config.list_logical_devices("GPU")]
    if all(name in created for name in names):
        return {name: created[name][0] for name in names}
    opened, places = tf.config.get_visible_devices("GPU"), list[int]()
    for ordinal, gpu in enumerate(tf.config.list_physical_devices("GPU")):  # TensorFlow opens them in this order
        if gpu in opened:
            places += [ordinal] * len(tf.config.get_logical_device_configuration(gpu) or (None,))
    return dict(zip(names, places, strict=True)) if len(places) == len(names) else {}


def _short(name: str) -> str:
    # GPU:0 of /job:localhost/replica:0/task:0/device:GPU:0
    return name.rpartition("device:")[2]


def _place(pci_bus_id: str | None) -> tuple[int, str] | None:
    # NVML writes the domain with 8 digits, CUDA with 4.
    domain, _, rest = (pci_bus_id or "").lower().partition(":")
    try:
        return int(domain, 16), rest
    except ValueError:
        return None


class LibraryLog:
    """Reads the text that has been written to standard error since this object was created."""

    def __init__(self) -> None:
        self._from: int | None = None
        with contextlib.suppress(OSError):
            state = os.fstat(_STANDARD_ERROR)
            self._from = state.st_size if stat.S_ISREG(state.st_mode) else None

    def text(self) -> str:
        """Return the text, at most 1 MiB. Empty if standard error is not a file."""
        if self._from is None:
            return ""
        try:
            with open(f"/proc/self/fd/{_STANDARD_ERROR}", "rb") as log:
                log.seek(self._from)
                return log.read(_AT_MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def created(self) -> dict[str, tuple[int, str]]:
        """Return the devices that TensorFlow has opened since, read from its messages, as `identify` takes them."""
        return {name: (int(ordinal), bus) for name, ordinal, bus in _CREATED.findall(self.text())}


def driver_pci_bus_id(ordinal: int) -> str | None:
    text = ctypes.create_string_buffer(32)
    return (
        text.value.decode("ascii", "replace") if _ask_driver("cuDeviceGetPCIBusId", ordinal, text, len(text)) else None
    )


def driver_memory_total_bytes(ordinal: int) -> int | None:
    """Return the bytes of the GPU, or of its instance in MIG mode. None if the driver gives no answer."""
    size = ctypes.c_size_t()
    return size.value if _ask_driver("cuDeviceTotalMem_v2", ordinal, ctypes.byref(size)) else None


def driver_multiprocessors(ordinal: int) -> int | None:
    count = ctypes.c_int()
    return count.value if _ask_driver("cuDeviceGetAttribute", ordinal, ctypes.byref(count), _MULTIPROCESSORS) else None


def _ask_driver(function: str, ordinal: int, into: Any, *more: int) -> bool:
    library, device = _driver(), ctypes.c_int()
    try:
        if library is None or library.cuDeviceGet(ctypes.byref(device), ordinal):
            return False
        return getattr(library, function)(into, *more, device) == 0
    except AttributeError:  # an older driver without this function
        return False


@functools.cache
def _driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
