"""The machine as a trainer knows it: its GPUs as gputui's own interpreter has asked NVML for them.

That process is started where the driver's library can be loaded, and once.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Sequence

from ...telemetry import nodes
from ...telemetry.gpus import Answers, Machine
from ..common.asking import NoAnswer, ask

_LIBRARY = "libnvidia-ml.so.1"
_TELL = "telemetry.tell"


def read() -> Machine:
    """The GPUs as they were when they were first asked for, in the environment of this process as it is now."""
    return Machine.of(_answers())


def memory_free_bytes(index: int) -> int | None:
    """The free memory of a GPU at this moment; None where the driver does not report it."""
    try:
        found: int | None = ask(_TELL, "free", str(index))
    except NoAnswer:
        return None
    return found


def cpus_beside(gpus: Sequence[int]) -> list[frozenset[int]]:
    """The CPUs of the NUMA node of each of these GPUs; none where the driver does not tell them."""
    try:
        return [frozenset(cpus) for cpus in ask(_TELL, "beside", *map(str, gpus))]
    except NoAnswer:
        return [frozenset()] * len(gpus)


@functools.cache
def _answers() -> Answers:
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        reason = f"the NVIDIA driver's {_LIBRARY} is missing"
        return Answers(reason=reason, missing=reason if nodes.there() else "")
    try:
        return Answers.read(ask(_TELL, "gpus"))
    except NoAnswer as why:
        reason = f"the NVIDIA driver cannot be asked: {why}"
        return Answers(reason=reason, missing=reason)
