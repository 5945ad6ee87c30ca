"""Deletes runs and proofs: for good, or into a hidden folder next to them, from which they can be restored. Each screen
has one, with a lock, and removes it when it ends; that of a killed screen is removed by the next one that starts.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..system import locks
from .run import RunError, reserved

PREFIX = ".deleted-"  # names with a leading dot are not listed
HELD = "held"
LOCKS = ".lock"  # the end of the names of the locks of runs and proofs
LAST = ("preset.yaml", "request.json")  # the file that makes a folder a run or a proof
WITHOUT_LOCKS_SECONDS = 7 * 86400.0  # assumed longest life of a screen, if there are no locks


class Deletable(Protocol):
    """A run or a proof, which has an id and a folder."""

    @property
    def path(self) -> Path: ...

    @property
    def id(self) -> str: ...


Reserve = Callable[[Any], contextlib.AbstractContextManager[object]]  # holds a folder; raises RunError if it is in use


def _of_run(run: Any) -> contextlib.AbstractContextManager[object]:
    return reserved(run, "delete")


def delete(item: Deletable, reserve: Reserve = _of_run) -> None:
    """Delete a run or proof without moving it, as a full disk has no room: what makes it one goes last, so that a rest
    is still listed, then the lock file, which NFS keeps while it is open. RunError if it is in use or cannot be
    deleted.
    """
    parent = os.path.dirname(os.path.realpath(item.path))
    if not os.access(parent, os.W_OK | os.X_OK):
        raise RunError(f"{item.id} cannot be deleted: {parent} cannot be written; nothing of it was deleted")
    try:
        with reserve(item):
            _clear(item.path, lambda name: name in LAST or name.endswith(LOCKS))
        _clear(item.path, lambda name: name in LAST)
        _clear(item.path)
        os.rmdir(os.path.realpath(item.path))
        if item.path.is_symlink():
            item.path.unlink()
    except OSError as fault:
        why = f"{fault.strerror or fault}: {fault.filename or item.path}"
        raise RunError(f"{item.id} cannot be deleted: {why}\nwhat is left of it is in {item.path}") from None


def _clear(folder: Path, stays: Callable[[str], bool] = lambda _: False) -> None:
    with os.scandir(folder) as entries:
        removable = [entry for entry in entries if not stays(entry.name)]
    for entry in removable:
        if entry.is_dir(follow_symlinks=False):
            shutil.rmtree(entry.path)
        else:
            os.unlink(entry.path)


def delete_all(chosen: Iterable[Deletable], reserve: Reserve = _of_run) -> tuple[list[Deletable], list[str]]:
    """Delete for good: the deleted items, and a sentence for each other one."""
    deleted, refused = [], []
    for item in chosen:
        try:
            delete(item, reserve)
        except RunError as reason:
            refused.append(str(reason))
        else:
            deleted.append(item)
    return deleted, refused


class Trash:
    """The runs and proofs that this process has deleted and can restore. They are in groups: a group is deleted and
    restored together. `reserve` holds a folder while it is moved.
    """

    def __init__(self, reserve: Reserve = _of_run) -> None:
        self.reserve = reserve
        self._folder: Path | None = None
        self._lock: locks.Lock | None = None
        self._deleted: list[Sequence[Deletable]] = []  # their original names

    def refusal(self, parent: Path) -> str:
        """Return the reason why folders in `parent` cannot be moved to the trash; empty if they can."""
        try:
            self._own(parent)
        except OSError as fault:
            return fault.strerror or str(fault)
        return ""

    def put(self, chosen: Sequence[Deletable]) -> tuple[Sequence[Deletable], list[str]]:
        """Move folders to the trash as one group: the moved items, and a sentence for each other one."""
        moved, refused = [], []
        for run in chosen:
            try:
                with self.reserve(run):
                    run.path.rename(self._own(run.path.parent) / run.id)
                moved.append(run)
            except RunError as reason:
                refused.append(str(reason))
            except OSError as fault:
                refused.append(f"{run.id} cannot be deleted: {fault.strerror or fault}")
        if moved:
            self._deleted.append(moved)
        return moved, refused

    def bring_back(self, group: Sequence[Deletable] | None = None) -> tuple[Sequence[Deletable], list[str]]:
        """Restore a group of `put`, by default the last: the restored items, and a sentence for each other one, which
        the group keeps. Both are empty without such a group.
        """
        group = group if group is not None else self._deleted[-1] if self._deleted else ()
        back, refused = [], []
        for run in group:
            if self._folder is None or not (self._folder / run.id).exists():
                if not os.path.lexists(run.path):
                    refused.append(f"{run.id} cannot be restored: it is no longer among the deleted ones")
                continue  # restored before
            try:
                if os.path.lexists(run.path):
                    raise FileExistsError(0, "there is another folder of this name now")
                (self._folder / run.id).rename(run.path)
            except OSError as fault:
                refused.append(f"{run.id} cannot be restored: {fault.strerror or fault}")
            else:
                back.append(run)
        self._deleted = [other for other in self._deleted if other is not group or refused]
        return back, refused

    def empty(self) -> str:
        """Delete this process' trash folder for good; a sentence if it could not be removed."""
        if self._folder is None or self._lock is None:
            return ""
        folder, faults = self._folder, list[OSError]()
        self._lock.release()  # first: NFS keeps a file that is deleted while it is open
        self._folder, self._lock, self._deleted = None, None, []
        shutil.rmtree(folder, onerror=lambda _, _path, info: faults.append(info[1]))  # type: ignore[arg-type]
        faults = [fault for fault in faults if not isinstance(fault, FileNotFoundError)]  # another screen was first
        return f"{folder} cannot be removed: {faults[0].strerror or faults[0]}" if faults else ""

    def _own(self, parent: Path) -> Path:
        # The first call creates and locks it in `parent`. Raises OSError.
        while self._folder is None:
            folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
            # A folder that another screen removed before it was locked is created again.
            with contextlib.suppress(FileNotFoundError, locks.Taken):
                self._lock = locks.take(folder / HELD)
                self._folder = folder
        return self._folder


def sweep(parent: Path) -> None:
    """Remove the trash folders in `parent` whose screens have ended without removing them."""
    try:
        left = [path for path in parent.iterdir() if path.name.startswith(PREFIX)]
    except OSError:
        return  # the parent does not exist, or cannot be listed
    for folder in left:
        # It is renamed first: a screen that is about to lock its new folder does not find it, and creates another. One
        # without locks may be in use. NFS keeps a file that is deleted while it is open.
        with contextlib.suppress(OSError, locks.Taken):
            with locks.take(folder / HELD) as lock:
                if not lock.works and time.time() - os.stat(folder).st_mtime <= WITHOUT_LOCKS_SECONDS:
                    continue
                renamed = folder.rename(folder.with_name(f"{PREFIX}{uuid.uuid4().hex}"))
            shutil.rmtree(renamed, ignore_errors=True)
