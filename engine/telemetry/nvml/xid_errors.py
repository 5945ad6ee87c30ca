"""The errors of GPUs that the driver reports during a run, by their Xid numbers (NVML's events). Platforms without
events (WSL, most virtual GPUs, old drivers) have none.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pynvml

from .queries import Handle
from .reasons import or_none

WAIT_MS = 1  # errors that the driver has already reported are returned at once
MOST_AT_ONCE = 100
RECOVERY = 154  # from driver 570 on it follows another error, if the GPU needs more than the end of its programs
# From NVIDIA's list of Xid errors ("XID Errors"), those that a training is likely to meet, in a few words.
XIDS = {
    13: "an exception in a program's kernel",
    31: "a memory page fault by a program",
    32: "invalid data from a program",
    43: "a program's work was stopped",
    48: "an uncorrectable memory error",
    62: "the chip's controller has stopped",
    63: "a memory row was remapped",
    64: "a memory row could not be remapped",
    74: "an NVLink error",
    79: "it has fallen off the bus",
    92: "many memory errors were corrected",
    94: "a memory error that ended one program",
    95: "a memory error that ends all programs",
    109: "a switch between programs took too long",
    119: "the chip's system processor does not answer",
    120: "the chip's system processor has failed",
    140: "a memory error that ECC could not correct",
    145: "an NVLink error",
    149: "an NVLink error",
    RECOVERY: "the GPU needs a reset, a restart or a drain after the error before",
}
OF_PROGRAMS = (13, 31, 32, 43)
# By NVML's "GPU recovery action", which Xid 154 names in the kernel's log.
_RECOVERIES = {
    pynvml.NVML_GPU_RECOVERY_ACTION_GPU_RESET: "a reset: end its programs, then as root: nvidia-smi --gpu-reset -i {}",
    pynvml.NVML_GPU_RECOVERY_ACTION_NODE_REBOOT: "a restart of the machine",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_P2P: "the end of all programs on the GPUs that NVLink connects with it",
    pynvml.NVML_GPU_RECOVERY_ACTION_DRAIN_AND_RESET: "a reset as soon as its programs have ended; begin no new ones "
    "(as root: nvidia-smi --gpu-reset -i {})",
}
CLEANUP = 45  # follows another error, or the end of a program that was killed


@dataclass(frozen=True)
class DriverError:
    """An error of a GPU that the driver has reported. `number` is the Xid. `gpu` is NVML's index of the GPU, None if
    the driver names an unknown GPU.
    """

    gpu: int | None
    number: int
    needs: str = ""  # what the GPU needs before it can be used again, in words; empty if the driver does not say

    @property
    def title(self) -> str:
        """The number, and what it means if that is known."""
        return ", ".join(filter(None, (str(self.number), XIDS.get(self.number))))

    @property
    def is_of_a_program(self) -> bool:
        """True if the cause is usually a program (of any user), and not the hardware."""
        return self.number in OF_PROGRAMS

    def follows(self, error: DriverError) -> bool:
        """True if this only says what the GPU needs after that error."""
        return self.number == RECOVERY and self.gpu == error.gpu and not error.is_of_a_program


class DriverErrors:
    """Collects the error events of these GPUs (index and handle of each) until it is closed. One thread must make all
    calls.
    """

    def __init__(self, gpus: Sequence[tuple[int, Handle | None]]) -> None:
        self._gpus = {_address(handle): index for index, handle in gpus if handle is not None}
        self._set = or_none(pynvml.nvmlEventSetCreate)
        if self._set is not None and not [
            handle for _, handle in gpus if handle is not None and self._register(handle)
        ]:
            self.close()

    def _register(self, gpu: Handle) -> bool:
        kind = pynvml.nvmlEventTypeXidCriticalError
        return or_none(lambda: pynvml.nvmlDeviceRegisterEvents(gpu, kind, self._set) or True) is True

    def read(self) -> list[DriverError]:
        """Those since the last call, at most 100; empty if the platform has no events. Xid 45 is left out: it only
        follows another error or the end of a program.
        """
        errors: list[DriverError] = []
        while self._set is not None and len(errors) < MOST_AT_ONCE:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._set, WAIT_MS)
            except Exception as fault:  # noqa: BLE001 - a broken driver may raise anything
                if getattr(fault, "value", None) != pynvml.NVML_ERROR_TIMEOUT:
                    self.close()
                break
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError and event.eventData != CLEANUP:
                gpu = self._gpus.get(_address(event.device))
                needs = _RECOVERIES.get(or_none(functools.partial(_recovery, event.device)), "").format(gpu)
                errors.append(DriverError(gpu, int(event.eventData), needs))
        return errors

    def close(self) -> None:
        if self._set is not None:
            with contextlib.suppress(Exception):
                pynvml.nvmlEventSetFree(self._set)
        self._set = None


def _recovery(gpu: Handle) -> int | None:
    (field,) = pynvml.nvmlDeviceGetFieldValues(gpu, [pynvml.NVML_FI_DEV_GET_GPU_RECOVERY_ACTION])
    return int(field.value.uiVal) if field.nvmlReturn == pynvml.NVML_SUCCESS else None


def _address(handle: Any) -> int | None:
    return ctypes.cast(handle, ctypes.c_void_p).value
