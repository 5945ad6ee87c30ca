"""Decides from the ends of earlier runs whether the compiled programs in a folder of XLA's cache can be trusted.

A program that cannot be loaded or written makes TensorFlow fail the step, or crashes the process. Therefore a run that
stores programs holds a locked file, its mark, in the folder until its first step is done. If a run has ended and left
its mark, the next one empties the folder. If runs still fail after it was emptied twice, it is not used for a day.

The name of a mark contains the machine, because a network file system may show locks on one machine only. Imports no
TensorFlow.
"""

from __future__ import annotations

import contextlib
import re
import time
from pathlib import Path

from ...system import locks
from ...system.identity import Place, Process
from ..common.faults import TrainerError

PARTS = ("executables", "autotuning")
LOADS = "executables-load"  # next to the folders of a chip: a training has loaded programs that another had compiled
_DAY_SECONDS = 86400.0
_MARK = "first-step-of-"
_EMPTIED = "emptied"  # has a byte for each time the folder was emptied since a training did its first step with it
_MOST_EMPTIED = 2
# Errors of TensorFlow if a kept program is cut off, damaged, removed, or made for another machine or setting.
_KINDS = {
    "DataLossError", "FailedPreconditionError", "InternalError", "NotFoundError", "OutOfRangeError", "UnknownError"
}  # fmt: skip
_MISMATCH = re.compile(r"Serialized (cache key|HLO) does not match|No binary found in serialized entry")
_INPUT = re.compile(r"Iterator::|(\{\{node |Op:)\S*IteratorGetNext")


def may_be_damage(fault: BaseException | None) -> bool:
    """Whether the error may be caused by a damaged program in the cache. An error of the input pipeline in TensorFlow
    is not.
    """
    kinds, text = {kind.__name__ for kind in type(fault).__mro__}, str(fault)
    if isinstance(fault, TrainerError) and fault.kind == "input":
        return True  # Keras takes the OutOfRangeError of a program that was cut off for the end of the data
    return "OpError" in kinds and bool(kinds & _KINDS or _MISMATCH.search(text)) and not _INPUT.search(text)


def mark(folder: Path) -> Path:
    """The path of this training's mark in the folder. It also contains the start time, as many processes in containers
    have the same process id.
    """
    me = Process.current()
    return folder / f"{_of_this_machine()}{me.pid}-{me.start_ticks}"


def first_step_done(folder: Path) -> None:
    (folder / _EMPTIED).unlink(missing_ok=True)


def distrusted(folder: Path) -> str:
    """The reason why the folder is not used; empty if it is used. If an earlier training has left its mark, the folder
    is emptied first.
    """
    try:
        emptied = _times_emptied(folder)  # read before the marks, which another training may just be removing
        marks = _marks(folder)
        left = [path for path, held in marks.items() if not held]
        if left and len(left) < len(marks):
            return f"{folder} has to be emptied, and another run is in its first step with it"
        if left and emptied >= _MOST_EMPTIED and not all(map(_is_old, left)):
            return f"{emptied + 1} runs in a row failed before the first step; to try again: rm -r {folder}"
        if left:
            _empty(folder, left)
            (folder / _EMPTIED).write_bytes(b"x" * (emptied + 1))
    except OSError as fault:
        return f"{folder} cannot be written ({fault.strerror})"
    return ""


def _of_this_machine() -> str:
    here = Place.here()
    return f"{_MARK}{here.boot_id or here.host}-"


def _times_emptied(folder: Path) -> int:
    path = folder / _EMPTIED
    return path.stat().st_size if path.exists() else 0


def _marks(folder: Path) -> dict[Path, bool]:
    """The marks of this machine's trainings, and whether a running training holds each. Old marks of other machines are
    removed.
    """
    marks = {}
    for path in folder.glob(f"{_MARK}*"):
        with contextlib.suppress(FileNotFoundError):  # its training has just done its first step
            held = locks.held(path) if path.name.startswith(_of_this_machine()) else None
            if held is not None:
                marks[path] = held
            elif _is_old(path):
                path.unlink()
    return marks


def _is_old(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > _DAY_SECONDS


def _empty(folder: Path, marks: list[Path]) -> None:
    """Remove all kept files and the marks. The next training has to show again that kept programs can be loaded."""
    (folder.parent / LOADS).unlink(missing_ok=True)
    kept = [path for part in PARTS for path in (folder / part).rglob("*") if not path.is_dir()]
    for path in [*kept, *marks]:
        path.unlink(missing_ok=True)
