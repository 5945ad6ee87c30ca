"""Deleted runs that can still be restored: kept beside the runs in a folder that no list shows.

Each screen has its own folder, held by a lock that the kernel releases however the screen ends. The folder is removed
when the screen ends; one that a killed screen left behind is removed by the next that starts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
from pathlib import Path

from ..files.places import runs_folder
from ..system import locks
from .control import reserved
from .run import Run, RunError

PREFIX = ".deleted-"  # names with a leading dot are not listed
HELD = "held"
WITHOUT_LOCKS_SECONDS = 7 * 86400.0  # assumed longest life of a screen, where there are no locks


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

    def empty(self) -> None:
        """Remove the content for good."""
        if self._folder is not None and self._lock is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._lock.release()
            self._folder, self._lock, self._deleted = None, None, []

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
