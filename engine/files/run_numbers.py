"""The numbers of runs, from which their short names are made, such as `r42`. One file of the home has a line for each
run, the name of its folder, in the order in which the runs were created. The number of a run is that of its line, so
that it stays the same if the run is resumed, deleted or restored, and no other run ever gets it. A run without a line
(of an older gputui, or copied from another home) has no number.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from .reading import open_regular
from .values import EMPTY

ORIGIN = "origin.json"  # in the folder of a run, with the name that the user has given it
FILE = "run-numbers"  # in the home, next to the folder of runs
_NAME = re.compile(r"[rR]([1-9]\d{0,8})")
_TIME = re.compile(r"\d{8}-\d{6}-")  # of the start, at the beginning of each name that gputui gives a folder
_LONGEST_EVENT = 1 << 20  # bytes


_read: dict[Path, tuple[tuple[int, ...], Mapping[str, int]]] = {}  # of each file its stamp and the numbers


def number_of(run_folder: Path) -> int | None:
    """None without one. A folder that the user has renamed is recognised by the id in the run's first event."""
    numbers = _numbers(file_of(run_folder))
    name, first_numbered = run_folder.name, next(iter(numbers), "")
    is_older = _TIME.match(name) and _TIME.match(first_numbered) and name[:15] < first_numbered[:15]
    if name in numbers or not numbers or is_older:
        return numbers.get(name)
    first_name = _first_name(run_folder)
    is_copy = first_name in numbers and _is_folder(run_folder.with_name(first_name))
    return None if is_copy else numbers.get(first_name)


def short_names(runs_folder: Path) -> Mapping[str, str]:
    """By the name that the folder had at its creation, also of runs that were deleted."""
    return {name: f"r{number}" for name, number in _numbers(file_of(runs_folder / "any")).items()}


def named(short_name: str, runs_folder: Path) -> Path | None:
    """Return the folder of the run whose short name is `short_name`, or the only one to which the user has given it as
    a name; None if no run in `runs_folder` has it.
    """
    name = first_name_of(short_name, runs_folder)
    if not name:
        has_it = [] if (runs_folder / short_name).is_dir() else [*_with_own_name(short_name, runs_folder)]
        return has_it[0] if len(has_it) == 1 else None
    if _is_folder(runs_folder / name):
        return runs_folder / name
    with contextlib.suppress(OSError):
        others = (runs_folder / other for other in os.listdir(runs_folder) if not other.startswith("."))
        return next((folder for folder in others if _is_folder(folder) and _first_name(folder) == name), None)
    return None


def first_name_of(short_name: str, runs_folder: Path) -> str:
    """The name of the folder at its creation, also if the run was deleted; empty if no run has had the short name."""
    match = _NAME.fullmatch(short_name)
    numbers = _numbers(file_of(runs_folder / short_name)) if match else EMPTY
    return next((name for name, number in numbers.items() if match and number == int(match[1])), "")


def _with_own_name(name: str, runs_folder: Path) -> Iterator[Path]:
    for path in runs_folder.glob(f"[!.]*/{ORIGIN}"):
        with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
            text = path.read_text(encoding="utf-8")
            if name and name in text and json.loads(text).get("name") == name:
                yield path.parent


def _is_folder(path: Path) -> bool:
    return path.is_dir() and not path.is_symlink()


def _first_name(run_folder: Path) -> str:
    # As its first event has it.
    for file in sorted(run_folder.glob("*.jsonl")):
        with contextlib.suppress(OSError, ValueError, RecursionError, TypeError, KeyError), open_regular(file) as lines:
            return str(json.loads(lines.readline(_LONGEST_EVENT))["run"])
    return ""


def file_of(run_folder: Path) -> Path:
    """Return the path of the file with the numbers of the runs in the home of `run_folder`."""
    return run_folder.parent.parent / FILE


def _numbers(file: Path) -> Mapping[str, int]:
    """By the name of the folder; empty if the file cannot be read, which is done again if it has changed."""
    try:
        about = os.stat(file)
        stamp = (about.st_ino, about.st_size, about.st_mtime_ns)
        if file not in _read or _read[file][0] != stamp:
            with open_regular(file) as stream:
                lines = os.fsdecode(stream.read()).split("\n")[:-1]
            _read[file] = stamp, {name: number for number, name in enumerate(lines, 1) if name}
    except OSError:
        return EMPTY
    return _read[file][1]
