"""Finds runs: all of them, or one by its id."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ..files import private
from ..files.places import runs_folder
from ..files.reading import why
from . import cluster
from .run import Run, RunError

NAMED = 3  # of the runs that an ambiguous name may mean


@dataclass(frozen=True)
class Survey:
    """All runs, the latest first, and by name the reason for each folder that cannot be read."""

    runs: list[Run]
    closed: Mapping[str, str]

    def __str__(self) -> str:
        """The folders that are left out, in one line; empty where there are none."""
        if not self.closed:
            return ""
        name, reason = next(iter(self.closed.items()))
        more = f" and {len(self.closed) - 1} more" if len(self.closed) > 1 else ""
        return f"left out, as gputui cannot read it: {runs_folder() / name} ({reason}){more}"


def survey() -> Survey:
    """All runs in the folder of runs; one that this user cannot read does not hide the others."""
    private.tighten(runs_folder())
    try:
        with os.scandir(runs_folder()) as entries:
            found = [Run(Path(entry.path)) for entry in entries if not _is_left_out(entry)]
    except (FileNotFoundError, NotADirectoryError):
        return Survey([], {})
    except OSError as fault:
        return Survey([], {".": why(fault)})
    open_ones, closed = [], {}
    for run in found:
        try:
            created = run.file("preset.yaml").lstat().st_mtime
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as fault:
            closed[run.id] = why(fault)
        else:
            open_ones.append((created, run.id, run))
    return Survey([run for *_, run in sorted(open_ones, key=lambda one: one[:2], reverse=True)], closed)


def _is_left_out(entry: os.DirEntry[str]) -> bool:
    """A folder that is being made, or the old name of a renamed one: a link to another in the folder of runs."""
    if entry.name.startswith("."):
        return True
    if not entry.is_symlink():
        return False
    folder, target = os.path.dirname(entry.path), os.path.realpath(entry.path)
    return os.path.dirname(target) == os.path.realpath(folder)


def all_runs() -> list[Run]:
    """All runs that can be read, the latest first."""
    return survey().runs


def find(text: str) -> Run:
    """A run by id, by an unambiguous part of it, or `latest`; raises RunError.

    Of a training on several machines the latest is the chief's.
    """
    found = survey()
    runs = found.runs
    if text in found.closed:
        raise RunError(f"{runs_folder() / text} cannot be read: {found.closed[text]}")
    if not runs:
        raise RunError(f"there are no runs in {runs_folder()}; start one with gputui --preset quickstart")
    if not text:
        raise RunError("name a run, or latest; gputui runs lists them")
    if text == "latest":
        return cluster.chief_beside(runs[0]) or runs[0]
    exact = [run for run in runs if run.id == text]
    matching = exact or [run for run in runs if text in run.id]
    if len(matching) == 1:
        return matching[0]
    if not matching:
        raise RunError(f"no run called {text!r}; gputui runs lists them")
    named = ", ".join(run.id for run in matching[:NAMED]) + (" ..." if len(matching) > NAMED else "")
    raise RunError(f"{text!r} matches {len(matching)} runs ({named}); give more of the id")
