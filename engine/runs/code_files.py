"""The Python files of a user's own training as the run has used them: the trainer records a hash of each file that it
has imported, and a resume compares these with the files as they are now, or with those of the run's copy
(code_copy.py).
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TypedDict

from ..files import typed
from ..files.reading import read_bytes
from ..files.writing import write_atomically
from ..units import counted
from . import code_copy
from .checkpoint_files import steps_in
from .run import Run, RunError

FILE = "code.json"
NAMED = 3  # files in a message
MOST_LINES = 5_000  # of a file whose changed lines are counted, as this takes time


class CodeChangedError(RunError):
    """The user's code has changed since the last checkpoint of the run was saved."""


class Change(TypedDict):
    """A resume with changed `files`, by their names, at a `step`: None until the trainer knows it."""

    step: int | None
    files: Sequence[str]


@dataclass(frozen=True)
class Code:
    """The record of the user's Python files that a run has imported. `folder` is the folder of the entry. `files` has
    the SHA-256 hash of each file by its path.
    """

    folder: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    changes: Sequence[Change] = ()

    def name_of(self, path: str) -> str:
        """Return the path relative to the entry's folder; for a file outside of that folder, the path unchanged."""
        return os.path.relpath(path, self.folder) if Path(path).is_relative_to(self.folder) else path

    def changed(self, copy: Path | None = None) -> list[str]:
        """Recorded files that have another content now, or are gone; with `copy` those in the run's copy."""
        return [path for path, recorded in self.files.items() if _hash(self.used(path, copy)) != recorded]

    def used(self, path: str, copy: Path | None) -> str:
        """The path of the file that a run imports: that in `copy` if it exists there."""
        copied = copy / self.name_of(path) if copy and Path(path).is_relative_to(self.folder) else None
        return str(copied) if copied and copied.exists() else path


def read(run: Run) -> Code:
    """Return the record of a run; an empty record if there is no file or it is damaged."""
    return typed.read_usable(run.file(FILE), Code)


def changed(run: Run) -> list[str]:
    """Their names, each with the number of changed lines if there is a copy, or "(missing)"."""
    code, copy = read(run), code_copy.of(run)
    return [code.name_of(path) + _how(path, code, copy) for path in code.changed()]


def _how(path: str, code: Code, copy: Path | None) -> str:
    if not os.path.exists(path):
        return " (missing)"
    copied = code.used(path, copy)
    lines = _changed_lines(copied, path) if copied != path and _hash(copied) == code.files[path] else 0
    return f" ({counted(lines, 'lines')})" if lines else ""


def _changed_lines(before: str, after: str) -> int:
    """0 if a file cannot be read or has more than 5,000 lines."""
    try:
        old, new = (read_bytes(Path(path)).splitlines() for path in (before, after))
    except OSError:
        return 0
    if max(len(old), len(new)) > MOST_LINES:
        return 0
    parts = difflib.SequenceMatcher(None, old, new, autojunk=False).get_opcodes()
    return sum(max(end - begin, end_new - begin_new) for tag, begin, end, begin_new, end_new in parts if tag != "equal")


def describe(run: Run) -> str:
    """At most three of the files that have changed since the run was trained, in one line."""
    names = changed(run)
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    has = "has" if len(names) == 1 else "have"
    return f"{', '.join(names[:NAMED])}{more} {has} changed since {run.name} was trained"


def can_use_copy(run: Run) -> bool:
    """The copy equals the code that the run has used, or the run has not recorded any."""
    copy = code_copy.of(run)
    return copy is not None and not read(run).changed(copy)


def check(run: Run, from_copy: bool = False) -> None:
    """Raise CodeChangedError if a file has changed since the run used it. With `from_copy`, raise it instead if the run
    has no copy, or if the copy is not the code that the run has used.
    """
    if from_copy:
        if code_copy.of(run) is None:
            reason = code_copy.read(run).left_out or "it was started without one"
            raise CodeChangedError(f"{run.name} has no copy of its code: {reason}")
        if not can_use_copy(run):
            what = f"the copy of the code in {run.name} is not the code that the run has used"
            raise CodeChangedError(f"{what}\ngo on with the code as it is now: gputui resume {run.name} --code=new")
    elif text := describe(run):
        again = f"undo that, or go on with the new code: gputui resume {run.name} --code=new"
        if can_use_copy(run):
            again += "; with the code that it was trained with: --code=copy"
        raise CodeChangedError(f"{text}\n{again}")


def accept(run: Run, copy: Path | None = None) -> None:
    """Record the present hashes of the changed files, as the user resumes with them or with a new `copy`."""
    code = read(run)
    if not (paths := code.changed(copy)):
        return
    change: Change = {"step": None, "files": [code.name_of(path) for path in paths]}
    now = {path: digest for path in code.files if (digest := _hash(code.used(path, copy))) is not None}
    _write(run, replace(code, files=now, changes=(*code.changes, change)))


def begin(run: Run, copy: Path | None = None) -> None:
    """Prepare the record before a trainer runs the user's code or its `copy`. CodeChangedError if a file has changed
    and there is a checkpoint; without one, changed files are recorded again when they are imported.
    """
    code = read(run)
    if paths := code.changed(copy):
        if steps_in(run.file("checkpoints")):
            check(run, copy is not None)
        _write(run, replace(code, files={path: old for path, old in code.files.items() if path not in paths}))


def add(run: Run, folder: Path, paths: Iterable[str], copy: Path | None = None) -> None:
    """Record files that were imported, those in `copy` by their paths in `folder`; none that cannot be read."""
    code, new = read(run), {}
    for used in paths:
        path = str(folder / os.path.relpath(used, copy)) if copy and Path(used).is_relative_to(copy) else used
        if path not in code.files and (digest := _hash(used)) is not None:
            new[path] = digest
    if new:
        _write(run, replace(code, folder=str(folder), files={**code.files, **new}))


def record_step(run: Run, step: int) -> Sequence[str]:
    """Record the step of a resume with changed files. Returns their names, or none if it is recorded."""
    code = read(run)
    names = [name for change in code.changes if change["step"] is None for name in change["files"]]
    if names:
        changes: list[Change] = [{**each, "step": step} if each["step"] is None else each for each in code.changes]
        _write(run, replace(code, changes=changes))
    return list(dict.fromkeys(names))


def _hash(path: str) -> str | None:
    try:
        return hashlib.sha256(read_bytes(Path(path))).hexdigest()
    except OSError:
        return None


def _write(run: Run, code: Code) -> None:
    text = json.dumps({"folder": code.folder, "files": code.files, "changes": code.changes}, indent=1)
    with contextlib.suppress(OSError):  # the disk may be full; then there is no checkpoint to resume from, either
        write_atomically(run.file(FILE), text, durable=False)
