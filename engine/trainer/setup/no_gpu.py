"""Refuses a training that would silently run on the CPU although the machine has GPUs for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from ...options import Options
from ...telemetry.gpus import Machine, used_by_tensorflow
from ..common.asking import NoAnswer, ask
from ..common.faults import TrainerError
from .library_log import LibraryLog

_ON_THE_CPU = "set device.visible=none to train on the CPU"


def require_gpus(options: Options, machine: Machine, seen: int, usable: Sequence[int], log: LibraryLog) -> None:
    """Raises TrainerError where TensorFlow cannot use GPUs that should work or that device.visible names.

    The CPU trains where CUDA_VISIBLE_DEVICES hides all GPUs on purpose.
    """
    wanted, shown = options.device.visible, len(used_by_tensorflow(machine.shown))
    if wanted == "none":
        return
    if too_old := chips_too_old(machine, seen, usable):
        raise TrainerError("device", too_old, f"gputui doctor says which chips it supports; {_ON_THE_CPU}")
    if shown and not seen:
        what = f"the driver shows {shown} GPU(s), but TensorFlow can use none of them"
        raise _error(what, log, machine, seen)
    if wanted == "all" and not seen and (what := unseen(machine)):
        raise _error(what, log, machine, seen)
    if isinstance(wanted, list) and seen < len(wanted):
        raise _error(f"device.visible asks for {len(wanted)} GPU(s), but TensorFlow can use {seen}", log, machine, seen)


def chips_too_old(machine: Machine, seen: int, usable: Sequence[int]) -> str:
    """That TensorFlow has no code for any of the GPUs, in words; empty if it has, or sees none for another reason."""
    if seen and not usable:
        return f"TensorFlow sees {seen} GPU(s), but their chips are too old: it has no code for them"
    if machine.shown and not used_by_tensorflow(machine.shown):
        return f"the chips of {', '.join(map(str, machine.shown))} are too old: TensorFlow has no code for them"
    return ""


def unseen(machine: Machine) -> str:
    """Why there should be GPUs that the driver does not show to this process; empty where there are none."""
    if machine.on_cpu_by_variable:
        return ""
    if machine.missing or (machine.fault and machine.fault.level == "error"):
        return (
            f"this machine has GPUs that the driver does not show ({machine.no_gpu_reason}), nor can TensorFlow use any"
        )
    return "CUDA shows none of this machine's GPUs" if machine.gpus and not machine.shown else ""


def _error(what: str, log: LibraryLog, machine: Machine, seen: int) -> TrainerError:
    """Where TensorFlow sees no GPU at all the doctor looks for the reason; else it can only be in the log."""
    where = ["log", machine.driver] if seen else ["machine"]
    try:
        cause = ask("doctor.no_gpu", *where, sys.executable, given=log.text())
    except NoAnswer:
        cause = None
    if cause is None:
        return TrainerError("device", what, f"gputui doctor --deep looks for the reason; {_ON_THE_CPU}")
    return TrainerError("device", f"{what}: {cause['what']}", f"{cause['remedy']}; {_ON_THE_CPU}")
