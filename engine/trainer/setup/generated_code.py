"""Puts the code that AutoGraph generates into the run's folder for temporary files, which its engine removes.

AutoGraph writes each function of the user's, as it has changed it, into a file among all temporary files. It removes
them as Python ends; those of a process that was killed would stay, as would what Python has compiled of them.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from tensorflow.python.autograph.pyct import loader

from ...files import scratch


class _Tempfile:
    """In place of the module `tempfile`: its files go into one folder, as long as that is there."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(tempfile, name)

    def NamedTemporaryFile(self, **how: Any) -> Any:
        folder = self._folder if os.path.isdir(self._folder) else None
        return tempfile.NamedTemporaryFile(**{"dir": folder} | how)


def keep_apart() -> None:
    """From here on, in this process."""
    folder = os.environ.get(scratch.VARIABLE)
    if folder is not None:
        loader.tempfile = _Tempfile(folder)
