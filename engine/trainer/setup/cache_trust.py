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
    """Whether TensorFlow's error may come from a kept program; an error of the input pipeline does not."""
    kinds, text = {kind.__name__ for kind in type(fault).__mro__}, str(fault)
    if isinstance(fault, TrainerError) and fault.kind == "input":
        return True  # Keras takes the OutOfRangeError of a program that was cut off for the end of the data
    return "OpError" in kinds and bool(kinds & _KINDS or _MISMATCH.search(text)) and not _INPUT.search(text)


def mark(folder: Path) -> Path:
    """The mark of this training; in containers many have the same process id."""
    me = Process.current()
    return folder / f"{_of_this_machine()}{me.pid}-{me.start_ticks}"


def first_step_done(folder: Path) -> None:
    (folder / _EMPTIED).unlink(missing_ok=True)


def distrusted(folder: Path) -> str:
    """Why the folder is not used; empty if it is. Empties the folder first if a training has left its mark in it."""
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
    """The marks of this machine's trainings, and whether each is held; old ones of others are removed."""
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
    """Remove all kept files and the marks; the next training has to show again that programs load."""
    (folder.parent / LOADS).unlink(missing_ok=True)
    kept = [path for part in PARTS for path in (folder / part).rglob("*") if not path.is_dir()]
    for path in [*kept, *marks]:
        path.unlink(missing_ok=True)
