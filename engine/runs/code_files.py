"""The Python files of a user's own training, as the run has used them: a run is not resumed with edited code unnoticed.

The trainer records a hash of each file that the entry has imported from its folder. Whoever resumes the run compares
them with the files as they are now, for which no TensorFlow is needed. A run without a record is resumed as it is.
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
    """The folder of the entry, the hash of each file by its path, and the changes with which the run has gone on.

    A change has the `step` at which the run went on, None until the trainer knows it, and the names of the `files`.
    """

    folder: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    changes: Sequence[Mapping[str, Any]] = ()

    def name_of(self, path: str) -> str:
        """The path from the folder of the entry, or the whole path where the file lies elsewhere."""
        return os.path.relpath(path, self.folder) if Path(path).is_relative_to(self.folder) else path

    def changed(self) -> list[str]:
        """The paths of the files that differ from the record, or are gone."""
        return [path for path, recorded in self.files.items() if _hash(path) != recorded]


def read(run: Run) -> Code:
    """The record of a run; empty where there is none that can be used."""
    found = read_object(run.file(FILE), _FORM).value
    return Code(found.get("folder", ""), found.get("files", {}), found.get("changes", ()))


def changed(run: Run) -> list[str]:
    """The names of the files that have changed since the run was trained with them; a file that is gone says so."""
    code = read(run)
    return [code.name_of(path) + ("" if os.path.exists(path) else " (missing)") for path in code.changed()]


def describe(run: Run) -> str:
    """What has changed since the run was trained, in one line; empty where nothing has."""
    names = changed(run)
    if not names:
        return ""
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    has = "has" if len(names) == 1 else "have"
    return f"{', '.join(names[:NAMED])}{more} {has} changed since {run.id} was trained"


def check(run: Run) -> None:
    """Raises CodeChangedError where the run would go on with other code."""
    if what := describe(run):
        again = f"undo that, or go on with the new code: gputui resume {run.id} --code=new"
        raise CodeChangedError(f"{what}\n{again}")


def accept(run: Run) -> None:
    """Record that the run goes on with the files as they are now, of which some have changed."""
    code = read(run)
    if not (paths := code.changed()):
        return
    change = {"step": None, "files": [code.name_of(path) for path in paths]}
    now = {path: digest for path in code.files if (digest := _hash(path)) is not None}
    _write(run, replace(code, files=now, changes=(*code.changes, change)))


def begin(run: Run) -> None:
    """Before a trainer runs the code; raises CodeChangedError where it would go on from a checkpoint of other code.

    Files may change between the launch and here, and before another trainer follows one whose memory has run out.
    """
    code = read(run)
    if paths := code.changed():
        if steps_in(run.file("checkpoints")):
            check(run)
        _write(run, replace(code, files={path: old for path, old in code.files.items() if path not in paths}))


def add(run: Run, folder: Path, paths: Iterable[str]) -> None:
    """Record the files that the run has imported and that are not recorded yet."""
    code = read(run)
    new = {path: digest for path in paths if path not in code.files and (digest := _hash(path)) is not None}
    if new:
        _write(run, replace(code, folder=str(folder), files={**code.files, **new}))


def gone_on(run: Run, step: int) -> Sequence[str]:
    """The names of the files with whose changes the run goes on at this step, which is recorded."""
    code = read(run)
    names = [name for change in code.changes if change["step"] is None for name in change["files"]]
    if names:
        known = [{**change, "step": step} if change["step"] is None else change for change in code.changes]
        _write(run, replace(code, changes=known))
    return list(dict.fromkeys(names))


def _hash(path: str) -> str | None:
    try:
        return hashlib.sha256(read_bytes(Path(path))).hexdigest()
    except OSError:
        return None


def _write(run: Run, code: Code) -> None:
    text = json.dumps({"folder": code.folder, "files": code.files, "changes": code.changes}, indent=1)
    with contextlib.suppress(OSError):  # the disk may be full, and then nothing can be resumed from it, either
        write_atomically(run.file(FILE), text, durable=False)
