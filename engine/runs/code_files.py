"""The Python files of a user's own training as the run has used them, so that a resume with edited code is noticed.

The trainer records a hash of each file that the entry has imported from its folder. Resuming the run compares the
hashes with the files as they are now, without TensorFlow. A run without a record is resumed without a check.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from ..files.reading import read_bytes, read_object
from ..files.shapes import Fields, Form
from ..files.writing import write_atomically
from .checkpoint_files import steps_in
from .run import Run, RunError

FILE = "code.json"
NAMED = 3  # files in a message
_CHANGE = Annotated[Mapping[str, Any], Fields({"step": int | None, "files": Sequence[str]}, needed=("step", "files"))]
_FORM = Form({"folder": str, "files": Mapping[str, str], "changes": Sequence[_CHANGE]})


class CodeChangedError(RunError):
    """The code of a run has changed since its last checkpoint."""


@dataclass(frozen=True)
class Code:
    """The folder of the entry, the hash of each file by its path, and the changes with which the run was resumed.

    A change has the `step` at which the run was resumed, None until the trainer knows it, and the names of the `files`.
    """

    folder: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    changes: Sequence[Mapping[str, Any]] = ()

    def name_of(self, path: str) -> str:
        """The path relative to the folder of the entry, or the whole path of a file outside of it."""
        return os.path.relpath(path, self.folder) if Path(path).is_relative_to(self.folder) else path

    def changed(self) -> list[str]:
        """The paths of the files that differ from the record or no longer exist."""
        return [path for path, recorded in self.files.items() if _hash(path) != recorded]


def read(run: Run) -> Code:
    """The record of a run; empty if there is none that can be used."""
    record = read_object(run.file(FILE), _FORM).value
    return Code(record.get("folder", ""), record.get("files", {}), record.get("changes", ()))


def changed(run: Run) -> list[str]:
    """The names of the files that have changed since the run used them; a file that no longer exists is marked."""
    code = read(run)
    return [code.name_of(path) + ("" if os.path.exists(path) else " (missing)") for path in code.changed()]


def describe(run: Run) -> str:
    """One line about the files that have changed since the run was trained; empty if there are none."""
    names = changed(run)
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    has = "has" if len(names) == 1 else "have"
    return f"{', '.join(names[:NAMED])}{more} {has} changed since {run.id} was trained"


def check(run: Run) -> None:
    """Raise CodeChangedError if the run would be resumed with other code."""
    if text := describe(run):
        again = f"undo that, or go on with the new code: gputui resume {run.id} --code=new"
        raise CodeChangedError(f"{text}\n{again}")


def accept(run: Run) -> None:
    """Record that the run is resumed with the files as they are now, some of them changed."""
    code = read(run)
    if not (paths := code.changed()):
        return
    change = {"step": None, "files": [code.name_of(path) for path in paths]}
    now = {path: digest for path in code.files if (digest := _hash(path)) is not None}
    _write(run, replace(code, files=now, changes=(*code.changes, change)))


def begin(run: Run) -> None:
    """Prepare the record before a trainer runs the code; raises CodeChangedError if its checkpoint is of other code.

    Files may change between the launch and this call, and before a second trainer continues after the memory ran out.
    """
    code = read(run)
    if paths := code.changed():
        if steps_in(run.file("checkpoints")):
            check(run)
        _write(run, replace(code, files={path: old for path, old in code.files.items() if path not in paths}))


def add(run: Run, folder: Path, paths: Iterable[str]) -> None:
    """Record the files that the run has imported, if they are not recorded yet."""
    code = read(run)
    new = {path: digest for path in paths if path not in code.files and (digest := _hash(path)) is not None}
    if new:
        _write(run, replace(code, folder=str(folder), files={**code.files, **new}))


def record_step(run: Run, step: int) -> Sequence[str]:
    """Record the step at which the run is resumed with changed files; returns their names."""
    code = read(run)
    names = [name for change in code.changes if change["step"] is None for name in change["files"]]
    if names:
        changes = [{**change, "step": step} if change["step"] is None else change for change in code.changes]
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
