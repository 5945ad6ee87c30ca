"""The GPUs, read through NVML by the real `pynvml` (from nvidia-ml-py).

Separates NVML's ways of saying "not here" from readings: a figure is a value or None, never 0 for unknown.
One thread reads; nothing calls NVML after `close`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import pynvml

T = TypeVar("T")

# From nvml.h, "nvmlClocksEventReasons": the bits that mean the chip runs slower than it could.
THROTTLE_REASONS = {
    0x0000000000000004: "power cap",
    0x0000000000000008: "hardware slowdown",
    0x0000000000000010: "sync boost",
    0x0000000000000020: "software thermal",
    0x0000000000000040: "hardware thermal",
    0x0000000000000080: "power brake",
}


class NvmlUnavailable(Exception):
    """NVML cannot be used at all; the text says why."""


def _ask(call: Callable[..., T], *arguments: Any) -> T | None:
    """A reading, or None where this GPU or driver does not have it."""
    try:
        return call(*arguments)
    except (pynvml.NVMLError, UnicodeDecodeError):
        return None


def _text(value: Any) -> str | None:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


class Nvml:
    """An open NVML; raises NvmlUnavailable with the reason when it cannot be opened."""

    def __init__(self) -> None:
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as fault:
            raise NvmlUnavailable(_why_not(fault)) from None
        except Exception as fault:
            # NVMLLibraryMismatchError is no NVMLError, and a broken library can raise anything at loading.
            raise NvmlUnavailable(f"NVML cannot be used: {fault}") from None
        self.count = _ask(pynvml.nvmlDeviceGetCount) or 0

    def close(self) -> None:
        _ask(pynvml.nvmlShutdown)

    def identities(self) -> list[dict[str, Any]]:
        """For each GPU: index, uuid, name, compute_capability (major, minor), memory_total_bytes."""
        return [self._identity(index) for index in range(self.count)]

    def read(self) -> list[dict[str, Any]]:
        """A reading of each GPU; `missing` in it says why a whole GPU has none."""
        return [self._reading(index) for index in range(self.count)]

    def _handle(self, index: int) -> Any:
        return pynvml.nvmlDeviceGetHandleByIndex(index)

    def _identity(self, index: int) -> dict[str, Any]:
        try:
            handle = self._handle(index)
        except pynvml.NVMLError as fault:
            return {"index": index, "missing": _why_not(fault)}
        memory = self._memory(handle)
        return {
            "index": index,
            "uuid": _text(_ask(pynvml.nvmlDeviceGetUUID, handle)),
            "name": _text(_ask(pynvml.nvmlDeviceGetName, handle)),
            "compute_capability": _ask(pynvml.nvmlDeviceGetCudaComputeCapability, handle),
            "memory_total_bytes": memory.total if memory is not None else None,
        }

    def _reading(self, index: int) -> dict[str, Any]:
        try:
            handle = self._handle(index)
        except pynvml.NVMLError as fault:
            return {"index": index, "missing": _why_not(fault)}
        use = _ask(pynvml.nvmlDeviceGetUtilizationRates, handle)
        memory = self._memory(handle)
        power = _ask(pynvml.nvmlDeviceGetPowerUsage, handle)
        reasons = _ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle)
        return {
            "index": index,
            "uuid": _text(_ask(pynvml.nvmlDeviceGetUUID, handle)),
            "name": _text(_ask(pynvml.nvmlDeviceGetName, handle)),
            "busy": use.gpu / 100 if use is not None else None,
            "memory_used_bytes": memory.used if memory is not None else None,
            "memory_total_bytes": memory.total if memory is not None else None,
            "temperature_c": _ask(pynvml.nvmlDeviceGetTemperature, handle, pynvml.NVML_TEMPERATURE_GPU),
            "power_w": power / 1000 if power is not None else None,
            "sm_clock_mhz": _ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
            "memory_clock_mhz": _ask(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_MEM),
            "throttle": None if reasons is None else [name for bit, name in THROTTLE_REASONS.items() if reasons & bit],
        }

    def _memory(self, handle: Any) -> Any:
        """Memory without the driver's reserved part (v2), or with it counted as used (v1, old drivers)."""
        memory = _ask(lambda h: pynvml.nvmlDeviceGetMemoryInfo(h, version=pynvml.nvmlMemory_v2), handle)
        if memory is None:
            memory = _ask(pynvml.nvmlDeviceGetMemoryInfo, handle)
        return memory if memory is not None and memory.total else None


def _why_not(fault: pynvml.NVMLError) -> str:
    code = getattr(fault, "value", None)
    if code == pynvml.NVML_ERROR_LIBRARY_NOT_FOUND:
        return "no NVIDIA driver on this machine (libnvidia-ml.so.1 is not there)"
    if code == pynvml.NVML_ERROR_DRIVER_NOT_LOADED:
        return "the NVIDIA driver is installed but not loaded"
    if code == pynvml.NVML_ERROR_GPU_IS_LOST:
        return "the GPU is lost (it has fallen off the bus); the machine needs a restart"
    return f"NVML: {fault}"
