"""Limits AutoGraph to the functions of users, and lets it write into the run's folder for temporary files.

AutoGraph writes its version of each function into a file among all temporary files, and removes it when Python ends.
The files of a killed process, with their bytecode, would stay; the engine removes the folder. gputui's own
functions have no Python control flow over tensors; converting them takes 0.3 s at each start.
"""

from __future__ import annotations

import os
import tempfile
from typing import Any

from ...files import private_folders
from ..common.versions import autograph_config, autograph_loader


class _Tempfile:
    """Replaces the module `tempfile`. While its folder exists, new files go into that folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __getattr__(self, name: str) -> Any:
        return getattr(tempfile, name)

    def NamedTemporaryFile(self, **how: Any) -> Any:
        folder = self._folder if os.path.isdir(self._folder) else None
        return tempfile.NamedTemporaryFile(**{"dir": folder} | how)


def write_into_run_folder() -> None:
    """Make AutoGraph write its temporary files into the run's folder for them, if there is such a folder. Lasts as long
    as this process.
    """
    folder = os.environ.get(private_folders.SCRATCH_VARIABLE)
    if folder is not None:
        autograph_loader.tempfile = _Tempfile(folder)


def exclude_ours() -> None:
    """Exclude the functions of gputui from conversion in this process. Functions that they call are still converted."""
    ours = autograph_config.DoNotConvert(__name__.partition(".")[0])
    autograph_config.CONVERSION_RULES = (ours, *autograph_config.CONVERSION_RULES)
