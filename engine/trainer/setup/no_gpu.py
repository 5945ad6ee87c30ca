"""Refuses a training that would run on the CPU although it is to run on GPUs that are there."""

from __future__ import annotations

from collections.abc import Sequence

from ...doctor import no_gpu, tensorflow_check
from ...options import Options
from ...telemetry.machine import Machine, used_by_tensorflow
from ..common.faults import TrainerError
from .library_log import LibraryLog

_ON_THE_CPU = "device.visible=none trains on the CPU"


def require_gpus(options: Options, machine: Machine, seen: int, usable: Sequence[int], log: LibraryLog) -> None:
    """Raises TrainerError where GPUs are asked for by name, or should work, and TensorFlow cannot use them.

    A machine whose only GPUs are too old or too small for TensorFlow trains on its CPU, as one without a GPU does.
    """
    wanted, shown = options.device.visible, len(used_by_tensorflow(machine.shown))
    if wanted == "none":
        return
    if seen and not usable and wanted != "all":
        what = f"TensorFlow sees {seen} GPU(s) and has code for none: their chips are too old"
        raise TrainerError("device", what, f"gputui doctor says which chips it has code for; {_ON_THE_CPU}")
    if shown and not seen:
        what = f"the driver shows {shown} GPU(s) to this training, but TensorFlow can use none"
        raise _error(what, log, machine, seen)
    if isinstance(wanted, list) and seen < len(wanted):
        raise _error(f"device.visible asks for {len(wanted)} GPU(s), but TensorFlow can use {seen}", log, machine, seen)


def _error(what: str, log: LibraryLog, machine: Machine, seen: int) -> TrainerError:
    """Where TensorFlow sees no GPU at all the doctor looks for the reason; else it can only be in the log."""
    cause = tensorflow_check.likely(log.text(), machine.driver) if seen else no_gpu.first(log.text())
    if cause is None:
        return TrainerError("device", what, f"gputui doctor --deep looks for the reason; {_ON_THE_CPU}")
    return TrainerError("device", f"{what}: {cause.what}", f"{cause.remedy}; {_ON_THE_CPU}")
