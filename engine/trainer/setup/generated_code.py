"""Moves the code that AutoGraph generates into the run's folder for temporary files, which the engine removes.

AutoGraph writes its version of each function into a file among all temporary files, and removes it when Python ends.
Those of a killed process, with their compiled bytecode, would stay.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from tensorflow.python.autograph.pyct import loader

from ...files import scratch


class _Tempfile:
    """Replaces the module `tempfile`: files go into one folder as long as it exists."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(tempfile, name)

    def NamedTemporaryFile(self, **how: Any) -> Any:
        folder = self._folder if os.path.isdir(self._folder) else None
        return tempfile.NamedTemporaryFile(**{"dir": folder} | how)


def keep_apart() -> None:
    """Replace the module for this process from now on."""
    folder = os.environ.get(scratch.VARIABLE)
    if folder is not None:
        loader.tempfile = _Tempfile(folder)
