"""A folder for the temporary files that TensorFlow leaves behind; made for a trainer, removed by its engine.

Only TensorFlow's files go there. Temporary files of the user's code stay in the usual place. This module imports hardly
anything, as the folder is made before the trainer is started.
"""

from __future__ import annotations

import contextlib
import os

VARIABLE = "GPUTUI_SCRATCH"  # environment variable of engine and trainer: the folder


def make() -> None:
    """Make the folder among all temporary files, for this user only; without it TensorFlow's files lie among all
    others.
    """
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"gputui-{os.urandom(6).hex()}")
    os.environ.pop(VARIABLE, None)
    with contextlib.suppress(OSError):
        os.mkdir(folder, 0o700)
        os.environ[VARIABLE] = folder


def remove() -> None:
    """Remove the folder with its content."""
    import shutil  # not needed before the trainer has ended

    folder = os.environ.get(VARIABLE)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
