"""Output files that the user names: an existing file is never overwritten."""

from __future__ import annotations

import os
from pathlib import Path

from .run import RunError


class ExistsError(RunError):
    """The named file already exists; the text says what to do."""


def refuse(path: Path) -> None:
    """Raises ExistsError where the file, or a folder that is not empty, exists."""
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        kind = "folder" if path.is_dir() else "file"
        raise ExistsError(f"{path} exists, and is not overwritten; name another {kind}, or remove it first")


def write(path: Path, text: str) -> None:
    """Write a file that does not exist yet; raises ExistsError, or OSError having left nothing behind."""
    try:
        stream = path.open("x", encoding="utf-8")
    except FileExistsError:
        refuse(path)
        raise
    try:
        with stream:
            stream.write(text)
    except OSError:
        path.unlink(missing_ok=True)
        raise
