"""Asks the CUDA driver about the GPUs that it shows to this process, by their ordinals.

TensorFlow starts the driver when it lists its GPUs, and its physical device `GPU:2` is the driver's ordinal 2
(tensorflow/core/common_runtime/gpu/gpu_device.cc, ListPhysicalDevices). None of the calls creates a context on a GPU.
All answers are None where there is no driver, or where it was not initialized.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any

_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT in cuda.h


def pci_bus_id(ordinal: int) -> str | None:
    text = ctypes.create_string_buffer(32)
    return text.value.decode("ascii", "replace") if _ask("cuDeviceGetPCIBusId", ordinal, text, len(text)) else None


def memory_total_bytes(ordinal: int) -> int | None:
    """Of the instance, where the GPU is in MIG mode."""
    size = ctypes.c_size_t()
    return size.value if _ask("cuDeviceTotalMem_v2", ordinal, ctypes.byref(size)) else None


def multiprocessors(ordinal: int) -> int | None:
    count = ctypes.c_int()
    return count.value if _ask("cuDeviceGetAttribute", ordinal, ctypes.byref(count), _MULTIPROCESSORS) else None


def _ask(function: str, ordinal: int, into: Any, *more: int) -> bool:
    """Call a function that writes its answer; the device is the argument after those of the answer."""
    library, device = _library(), ctypes.c_int()
    try:
        if library is None or library.cuDeviceGet(ctypes.byref(device), ordinal):
            return False
        return getattr(library, function)(into, *more, device) == 0
    except AttributeError:  # an older driver without this function
        return False


@functools.cache
def _library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None
