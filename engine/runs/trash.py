"""Deletes runs: for good, or into a folder beside the runs that no list shows, from which they can be restored.

Each screen has its own folder, held by a lock that the kernel releases however the screen ends. The folder is removed
when the screen ends; one that a killed screen left behind is removed by the next that starts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from ..files.places import runs_folder
from ..system import locks
from .control import reserved
from .run import Run, RunError

PREFIX = ".deleted-"  # names with a leading dot are not listed
HELD = "held"
LAST = "preset.yaml"  # what makes a folder a run
WITHOUT_LOCKS_SECONDS = 7 * 86400.0  # assumed longest life of a screen, where there are no locks


def delete(run: Run) -> None:
    """Delete a run for good, where it is: a full disk has no room for another folder. Raises RunError.

    Its preset goes last, so that a run of which something stays is still listed.
    """
    with reserved(run, "delete"):
        try:
            for entry in sorted(os.scandir(run.path), key=lambda entry: entry.name == LAST):
                if entry.is_dir(follow_symlinks=False):
                    shutil.rmtree(entry.path)
                else:
                    os.unlink(entry.path)
            os.rmdir(run.path)
        except OSError as fault:
            why = f"{fault.strerror or fault}: {fault.filename or run.path}"
            raise RunError(f"{run.id} cannot be deleted: {why}\nwhat is left of it is in {run.path}") from None


def delete_all(runs: Iterable[Run]) -> tuple[list[Run], list[str]]:
    """Delete runs for good; returns those that are gone, and for each other one the reason."""
    gone, refused = [], []
    for run in runs:
        try:
            delete(run)
        except RunError as reason:
            refused.append(str(reason))
        else:
            gone.append(run)
    return gone, refused


class Trash:
    """What this process has deleted, the latest last; runs that were deleted together are restored together."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock: locks.Lock | None = None
        self._deleted: list[list[Run]] = []  # their original names

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to restore."""
        return not self._deleted

    def refusal(self, runs: Path) -> str:
        """Why nothing that is deleted from this folder could be restored; empty if it could."""
        try:
            self._own(runs)
        except OSError as fault:
            return fault.strerror or str(fault)
        return ""

    def put(self, runs: list[Run]) -> tuple[list[Run], list[str]]:
        """Move runs to the trash; returns those that were moved, and for each other one the reason."""
        moved, refused = [], []
        for run in runs:
            try:
                self._put(run)
            except RunError as reason:
                refused.append(str(reason))
            else:
                moved.append(run)
        if moved:
            self._deleted.append(moved)
        return moved, refused

    def _put(self, run: Run) -> None:
        try:
            with reserved(run, "delete"):
                run.path.rename(self._own(run.path.parent) / run.id)
        except OSError as fault:
            raise RunError(f"{run.id} cannot be deleted: {fault.strerror or fault}") from None

    def bring_back(self) -> tuple[list[Run], list[str]]:
        """Restore the runs that were deleted last; returns those that were restored, and for each other the reason."""
        back, refused = [], []
        for run in self._deleted.pop() if self._deleted else ():
            try:
                self._bring_back(run)
            except OSError as fault:
                refused.append(f"{run.id} cannot be restored: {fault.strerror or fault}")
            else:
                back.append(run)
        return back, refused

    def _bring_back(self, run: Run) -> None:
        assert self._folder is not None
        if os.path.lexists(run.path):
            raise FileExistsError(0, "there is another run of this name now")
        (self._folder / run.id).rename(run.path)

    def empty(self) -> str:
        """Remove the content for good; returns a sentence about what could not be removed, empty if all is gone."""
        if self._folder is None or self._lock is None:
            return ""
        folder, faults = self._folder, list[OSError]()
        shutil.rmtree(folder, onerror=lambda _, _path, info: faults.append(info[1]))  # type: ignore[arg-type]
        self._lock.release()
        self._folder, self._lock, self._deleted = None, None, []
        return f"{folder} cannot be removed: {faults[0].strerror or faults[0]}" if faults else ""

    def _own(self, runs: Path) -> Path:
        """This process's folder, created and locked when it is first needed."""
        while self._folder is None:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=runs))
            # One that another screen removed before it was locked is created again.
            with contextlib.suppress(FileNotFoundError, locks.Taken):
                self._lock = locks.take(folder / HELD)
                self._folder = folder
        return self._folder


def sweep() -> None:
    """Remove the folders of screens that have ended without doing so."""
    try:
        left = [path for path in runs_folder().iterdir() if path.name.startswith(PREFIX)]
    except OSError:
        return  # there are no runs, or they cannot be listed
    for folder in left:
        with contextlib.suppress(OSError, locks.Taken), locks.take(folder / HELD) as lock:
            if lock.works or time.time() - os.stat(folder).st_mtime > WITHOUT_LOCKS_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
