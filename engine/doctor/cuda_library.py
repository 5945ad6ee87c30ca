"""Finds out, in a child process, whether the driver's CUDA library works: NVML may answer although CUDA fails.

The call is the one that TensorFlow makes first. It creates no context on any GPU, and takes milliseconds once the
driver is loaded. The errors with which CUDA refuses to start are explained by their names in cuda.h, each with a
remedy.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ..job.visible_devices import VARIABLE, hides_all
from ..telemetry import chips
from .machine_finding import Finding
from .python_process import Child

PROGRAM = """
import ctypes, json
cuda, count, name = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0), ctypes.c_char_p()
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
if code and not cuda.cuGetErrorName(code, ctypes.byref(name)) and name.value:
    code = name.value.decode("ascii", "replace")
print(json.dumps([code, count.value]))
"""
_NO_DEVICE, _MISMATCH = "CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"


@dataclass(frozen=True)
class CudaAnswer:
    """The answer of the driver's CUDA library.

    `error` is the name of CUDA's error, empty if CUDA works; `count` is the number of visible GPUs. `answered` is False
    if the library is missing or has not answered in time.
    """

    answered: bool = False
    error: str = ""
    count: int = 0

    @property
    def works(self) -> bool | None:
        """True if CUDA starts, False if it does not; None if the library has not answered."""
        return not self.error if self.answered else None


UNKNOWN = CudaAnswer()


class CudaQuery:
    """A query to the CUDA library in a child process, which starts when the object is created."""

    def __init__(self) -> None:
        self._child = Child(PROGRAM, {}, "-S", "-E")

    def by(self, deadline: float) -> CudaAnswer:
        """Return the answer. UNKNOWN if there is none by the deadline, a time of time.monotonic in seconds."""
        output = self._child.output(deadline)
        try:
            code, count = json.loads(output.text) if output else (None, 0)
        except (ValueError, TypeError):  # no library, or one that does not load
            return UNKNOWN
        if code is None:
            return UNKNOWN
        return CudaAnswer(True, str(code) if code else "", int(count))

    def end(self) -> None:
        self._child.end()


def findings(answer: CudaAnswer, driver: str, before: Sequence[Finding] = ()) -> Iterator[Finding]:
    """Yield an error if the CUDA library has answered that CUDA does not work.

    It is left out if CUDA_VISIBLE_DEVICES hides all GPUs, or if CUDA's error is vague and an error among the findings
    `before` explains it. `driver` is the driver's version.
    """
    chosen = os.environ.get(VARIABLE)
    if not answer.error or (answer.error == _NO_DEVICE and hides_all(chosen)):
        return
    cause = cause_of(answer.error, driver)
    explained = any(finding.level == "error" for finding in before)
    if explained and (cause.vague or answer.error == _MISMATCH):
        return
    what, remedy = f"CUDA does not start ({answer.error}): {cause.what}", cause.remedy
    if answer.error == _NO_DEVICE and chosen is not None:
        what, remedy = f"CUDA sees no device with {VARIABLE}={chosen}", "correct it or unset it"
    yield Finding("error", "CUDA", what, remedy)


# ---- the causes of CUDA's errors -----------------------------------------------------------------


@dataclass(frozen=True)
class Cause:
    """The cause of a CUDA error (`what`), and the remedy, in which `filled` replaces {driver} and {container}.

    A `vague` cause only says that CUDA does not start. An error that the driver reports about itself or a GPU is more
    exact.
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
    "NOT_FOUND": Cause(  # tensorflow 68710
        "CUDA's libraries in this container do not fit the driver",
        "in Docker with WSL: update the NVIDIA container toolkit (Docker Desktop brings it), then wsl --shutdown",
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


def cause_of(text: str, driver: str) -> Cause:
    """Return the cause of the error that the text names; a general cause if it names no known error.

    `driver` is the driver's version, or empty.
    """
    cause = cause_named_in(text)
    return filled(_OTHER if cause is None else cause, driver)


def filled(cause: Cause, driver: str) -> Cause:
    """Return the cause with the driver's version in its remedy, and in a container also with advice for containers.

    Only remedies with the placeholders {driver} and {container} change.
    """
    container = _CONTAINER if chips.confined() else ""
    remedy = cause.remedy.format(driver=driver or "of an unknown version", container=container)
    return replace(cause, remedy=remedy)


def cause_named_in(text: str) -> Cause | None:
    """Return the cause of the first known CUDA error that the text names; None if it names none.

    An error is named by its name such as CUDA_ERROR_NO_DEVICE; one error also by its message.
    """
    if "system not yet initialized" in text:
        return FABRIC
    name = next((name for name in _NAME.findall(text) if name in _CAUSES), None)
    if name == "UNKNOWN" and chips.lacks_unified_memory():
        return _NO_UNIFIED_MEMORY_GIVEN if chips.confined() else _NO_UNIFIED_MEMORY
    return _CAUSES[name] if name else None
