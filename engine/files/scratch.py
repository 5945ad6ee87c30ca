"""A folder for the temporary files that TensorFlow writes and leaves; made for a trainer, removed by its engine.

Only what TensorFlow makes goes there. A user's own temporary files lie where they lie in any program, and stay. Imports
next to nothing, as the folder is made before the trainer is started.
"""

from __future__ import annotations

import contextlib
import os

VARIABLE = "GPUTUI_SCRATCH"  # names the folder in the environment of engine and trainer


def make() -> None:
    """For this user alone, where temporary files lie; without it TensorFlow's files lie among all others."""
    folder = os.path.join(os.environ.get("TMPDIR") or "/tmp", f"gputui-{os.urandom(6).hex()}")
    os.environ.pop(VARIABLE, None)
    with contextlib.suppress(OSError):
        os.mkdir(folder, 0o700)
        os.environ[VARIABLE] = folder


def remove() -> None:
    """With all that is in it."""
    import shutil

    folder = os.environ.get(VARIABLE)
    if folder is not None:
        shutil.rmtree(folder, ignore_errors=True)
