"""Makes folders that only their user may open: run folders, and a trainer's folder for temporary files.

Run folders contain paths, logs and arguments of the user's code. Imports hardly anything, as the temporary folder is
made before the trainer is started.
"""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

ONLY_MINE = 0o700
SCRATCH_VARIABLE = "GPUTUI_SCRATCH"  # environment variable of engine and trainer: the trainer's temporary folder


def make(path: Path, exist_ok: bool = False) -> None:
    """Create a folder that only this user may open; missing parent folders get the usual permissions."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.mkdir(mode=ONLY_MINE, exist_ok=exist_ok)
    tighten(path)


def tighten(path: Path) -> None:
    """Restrict an existing folder to this user; a folder of another user is not changed."""
    with contextlib.suppress(OSError):
        about = path.lstat()
        if stat.S_ISDIR(about.st_mode) and about.st_uid == os.geteuid() and about.st_mode & 0o077:
            path.chmod(ONLY_MINE)


def make_scratch() -> None:
    """Create the folder for temporary files that TensorFlow does not delete; the engine removes the folder later.

    Temporary files of the user's code stay in the usual folder. If the folder cannot be created, TensorFlow's files are
    written there, too.
    """
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"gputui-{os.urandom(6).hex()}")
    os.environ.pop(SCRATCH_VARIABLE, None)
    with contextlib.suppress(OSError):
        os.mkdir(folder, ONLY_MINE)
        os.environ[SCRATCH_VARIABLE] = folder


def remove_scratch() -> None:
    """Remove the trainer's temporary folder with its content."""
    import shutil  # not needed before the trainer has ended

    folder = os.environ.get(SCRATCH_VARIABLE)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
