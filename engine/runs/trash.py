"""Deleted runs that can still be brought back: set aside beside the runs, where nothing lists them.

Each screen has a folder of its own, held by a lock that the kernel frees however the screen ends. It is removed at the
end; one that a killed screen left behind is removed by the next that starts.
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

PREFIX = ".deleted-"  # no list of runs shows what begins with a dot
HELD = "held"
WITHOUT_LOCKS_SECONDS = 7 * 86400.0  # a screen is not open for longer, where no lock tells


class Trash:
    """What this process has deleted, the latest last; several runs deleted at once come back at once."""

    def __init__(self) -> None:
        self._folder: Path | None = None
        self._lock: locks.Lock | None = None
        self._deleted: list[list[Run]] = []  # as they were called

    def put(self, runs: list[Run]) -> tuple[list[Run], list[str]]:
        """Set runs aside; those that were, and why each other could not be."""
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
        """The runs that were deleted last are there again; those that are, and why each other is not."""
        back, refused = [], []
        for run in self._deleted.pop() if self._deleted else ():
            try:
                self._bring_back(run)
            except OSError as fault:
                refused.append(f"{run.id} cannot be brought back: {fault.strerror or fault}")
            else:
                back.append(run)
        return back, refused

    def _bring_back(self, run: Run) -> None:
        assert self._folder is not None
        if os.path.lexists(run.path):
            raise FileExistsError(0, "there is a run of this name again")
        (self._folder / run.id).rename(run.path)

    def empty(self) -> None:
        """Remove all of it for good."""
        if self._folder is not None and self._lock is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._lock.release()
            self._folder, self._lock, self._deleted = None, None, []

    def _own(self, runs: Path) -> Path:
        """This process's folder, made and held when something is first put there."""
        while self._folder is None:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=runs))
            # One that another screen swept away before it was held is made anew.
            with contextlib.suppress(FileNotFoundError, locks.Taken):
                self._lock = locks.take(folder / HELD)
                self._folder = folder
        return self._folder


def sweep() -> None:
    """Remove what screens that are no more have left behind."""
    try:
        left = [path for path in runs_folder().iterdir() if path.name.startswith(PREFIX)]
    except OSError:
        return  # there are no runs, or none that can be listed
    for folder in left:
        with contextlib.suppress(OSError, locks.Taken), locks.take(folder / HELD) as lock:
            if lock.works or time.time() - os.stat(folder).st_mtime > WITHOUT_LOCKS_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
