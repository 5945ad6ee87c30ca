"""Asks the driver's CUDA library, in a child process, whether CUDA works: NVML may answer where CUDA fails.

TensorFlow does the same first. It creates no context on any GPU, and takes milliseconds once the driver is loaded.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..job.visible_devices import VARIABLE, hides_all
from . import cuda_errors
from .child import Child
from .finding import Finding

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
    """`error` is the name of CUDA's error, empty where CUDA works; `count` is the number of visible GPUs.

    `answered` is False where the library is missing or has not answered in time.
    """

    answered: bool = False
    error: str = ""
    count: int = 0

    @property
    def works(self) -> bool | None:
        """Whether CUDA starts; None where it has not answered."""
        return not self.error if self.answered else None


UNKNOWN = CudaAnswer()


class CudaQuery:
    """The query, which starts when the object is created."""

    def __init__(self) -> None:
        self._child = Child(PROGRAM, {}, "-S", "-E")

    def by(self, deadline: float) -> CudaAnswer:
        """The answer, or that there was none by the deadline."""
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
    """A finding where CUDA refuses to work on a machine with GPUs; what was found `before` explains a vague one."""
    chosen = os.environ.get(VARIABLE)
    if not answer.error or (answer.error == _NO_DEVICE and hides_all(chosen)):
        return
    cause = cuda_errors.cause(answer.error, driver)
    explained = any(finding.level == "error" for finding in before)
    if explained and (cause.vague or answer.error == _MISMATCH):
        return
    what, remedy = f"CUDA does not start ({answer.error}): {cause.what}", cause.remedy
    if answer.error == _NO_DEVICE and chosen is not None:
        what, remedy = f"CUDA sees no device with {VARIABLE}={chosen}", "correct it or unset it"
    yield Finding("error", "CUDA", what, remedy)
