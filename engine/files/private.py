"""Folders that only their user may look into: runs hold paths, logs and what was given to the user's code."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

ONLY_MINE = 0o700


def make(path: Path, exist_ok: bool = False) -> None:
    """A folder of the user's own; whatever of its parents is missing is made as usual."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=ONLY_MINE, exist_ok=exist_ok)
    tighten(path)


def tighten(path: Path) -> None:
    """Of a folder that is there already, and this user's; any other stays as it is."""
    with contextlib.suppress(OSError):
        about = path.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and about.st_mode & 0o077:
            path.chmod(ONLY_MINE)
