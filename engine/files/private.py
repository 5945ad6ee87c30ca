"""Makes folders that only their user may open: runs contain paths, logs and arguments of the user's code."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

ONLY_MINE = 0o700


def make(path: Path, exist_ok: bool = False) -> None:
    """Make a folder for this user only; missing parents are made with the usual permissions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=ONLY_MINE, exist_ok=exist_ok)
    tighten(path)


def tighten(path: Path) -> None:
    """Restrict an existing folder of this user; anybody else's stays as it is."""
    with contextlib.suppress(OSError):
        about = path.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and about.st_mode & 0o077:
            path.chmod(ONLY_MINE)
