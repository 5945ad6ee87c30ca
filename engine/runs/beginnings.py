"""Reads what runs said when they began to train: their actual settings, and which options did nothing."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from ..entry import parse
from ..files.reading import open_regular
from ..files.values import mapping
from ..options import Options, plain
from ..options.workload import ENTRY
from .events import Started
from .lookup import all_runs
from .parsing import parse_block
from .reading import TRAINER_FILE, read_object
from .run import Run

_BEGINNING_BYTES = 256 * 1024  # a handful of events come before it, whatever the length of the run
_LOOKED_AT = 50  # newest runs in which an earlier one of the same code is searched


def started(run: Run) -> Started | None:
    """Its first started event; None where the run has not got that far, or cannot be read."""
    try:
        with open_regular(run.file(TRAINER_FILE)) as stream:
            block = stream.read(_BEGINNING_BYTES)
    except OSError:
        return None
    events = (event for event, _ in parse_block(block[: block.rfind(b"\n") + 1]))
    return next((event for event in events if isinstance(event, Started)), None)


def of_same_code(options: Options) -> Started | None:
    """What the newest run of the same workload.entry found, if the file of the entry has not changed since."""
    mine = _code(options.workload.entry, options.workload.folder)
    if mine is None:
        return None
    for run in all_runs()[:_LOOKED_AT]:
        workload = mapping(read_object(run.file(plain.FILE)).value.get("workload"))
        if _code(workload.get("entry"), workload.get("folder")) == mine and (found := started(run)):
            return found if _changed(mine[0]) <= found.t else None
    return None


def _code(entry: Any, folder: Any) -> tuple[str, str] | None:
    """The file and the function of an entry."""
    if not isinstance(entry, str) or not ENTRY.fullmatch(entry):
        return None
    called = parse(entry)
    file = os.path.expanduser(called.file) if called.file else f"{str(called.module).replace('.', '/')}.py"
    return os.path.abspath(os.path.join(os.path.expanduser(str(folder or ".")), file)), called.function


def _changed(file: str) -> float:
    try:
        return os.stat(file).st_mtime
    except (OSError, ValueError):
        return 0.0


def unapplied(found: Started | None) -> Mapping[str, str]:
    """The options that were set and did nothing, each with the reason."""
    return {item["option"]: item.get("why", "") for item in (found.not_applied if found else ()) if "option" in item}
