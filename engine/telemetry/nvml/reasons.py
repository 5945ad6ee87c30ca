"""Why there is no reading: turns NVML's many errors into five reasons and a text for the user. A broken driver may
raise any exception at any call, which must never end a thread.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum, StrEnum
from typing import TypeVar

import pynvml

T = TypeVar("T")


class Reason(StrEnum):
    """The reason why a value is not available; it takes the place of the value."""

    UNSUPPORTED = "unsupported"  # this chip, driver or platform does not have it
    LOST = "lost"  # the GPU no longer answers
    NO_PERMISSION = "no_permission"
    ERROR = "error"  # the value should be available, but the call failed
    NOT_ASKED = "not_asked"  # switched off, or not read yet


class NvmlUnavailable(Exception):
    """NVML cannot be used; `message` gives the reason, and `code` is NVML's error number, if there is one."""

    def __init__(self, message: str, code: int | None = None) -> None:
        super().__init__(message)
        self.code = code


class Code(IntEnum):
    """NVML's error numbers, from nvml.h: an outdated `pynvml` has no names for the newer ones."""

    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    DRIVER_NOT_LOADED = 9
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    LIB_RM_VERSION_MISMATCH = 18
    ARGUMENT_VERSION_MISMATCH = 25
    DEPRECATED = 26
    GPU_NOT_FOUND = 28
    UNKNOWN = 999


_BY_CODE = {
    Code.NOT_SUPPORTED: Reason.UNSUPPORTED,
    Code.FUNCTION_NOT_FOUND: Reason.UNSUPPORTED,
    Code.NOT_FOUND: Reason.UNSUPPORTED,
    Code.ARGUMENT_VERSION_MISMATCH: Reason.UNSUPPORTED,
    Code.DEPRECATED: Reason.UNSUPPORTED,
    Code.GPU_IS_LOST: Reason.LOST,
    Code.RESET_REQUIRED: Reason.LOST,
    Code.GPU_NOT_FOUND: Reason.LOST,
    Code.NO_PERMISSION: Reason.NO_PERMISSION,
}

_TEXTS = {
    Code.LIBRARY_NOT_FOUND: "no NVIDIA driver on this machine (libnvidia-ml.so.1 is missing)",
    Code.DRIVER_NOT_LOADED: "the NVIDIA driver is installed but not loaded",
    Code.LIB_RM_VERSION_MISMATCH: "the loaded NVIDIA driver and its library are of different versions, as after an "
    "update; the machine needs a restart",
    Code.NO_PERMISSION: "this user has no permission to use the NVIDIA driver",
    Code.GPU_IS_LOST: "the GPU is lost (it has fallen off the bus); the machine needs a restart",
    Code.RESET_REQUIRED: "the GPU is lost until it is reset (nvidia-smi --gpu-reset)",
    Code.GPU_NOT_FOUND: "the GPU is lost (the driver no longer finds it)",
}


def reason_of(fault: Exception) -> Reason:
    """Return the reason that an exception of any call to NVML means."""
    if isinstance(fault, pynvml.NVMLError):
        return _BY_CODE.get(fault.value, Reason.ERROR)
    # Raised instead of an NVMLError if the driver is older than the function; an older pynvml lacks the name itself.
    old = isinstance(fault, AttributeError) or type(fault).__name__ == "NVMLLibraryMismatchError"
    return Reason.UNSUPPORTED if old else Reason.ERROR


def text_of(fault: Exception) -> str:
    """Return the meaning of an exception of any call to NVML as one line of text for the user."""
    code = getattr(fault, "value", None)
    if code in _TEXTS:
        return _TEXTS[code]
    if type(fault).__name__ == "NVMLLibraryMismatchError":
        return "the NVIDIA driver is too old for the installed nvidia-ml-py"
    return f"NVML: {' '.join(str(fault).split()) or type(fault).__name__}"


def or_none(ask: Callable[[], T]) -> T | None:
    """Return the result of `ask()`, or None if it raises any exception. For values that are not essential."""
    try:
        return ask()
    except Exception:  # noqa: BLE001 - see above
        return None
