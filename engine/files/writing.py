"""Writes files: completely or not at all, never over a file that the user named, and logs also on a full disk.

Imports hardly anything, as engine and trainer start with it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import sys
from pathlib import Path
from typing import Any

_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # the errors of a file system that cannot sync a folder


def write_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace the content of a file: a reader sees the old content or the new content, never a part of it.

    Raises OSError with the file's name, and then leaves no temporary file. `durable` waits until the content is on the
    disk; a file that is rewritten every second does not need it.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with draft.open("w", encoding="utf-8") as stream:
            stream.write(text)
            stream.flush()
            if durable:
                os.fsync(stream.fileno())
        os.replace(draft, path)
        if durable:
            sync(path.parent)
    except BaseException as fault:
        with contextlib.suppress(OSError):
            draft.unlink()
        if isinstance(fault, OSError):
            raise OSError(fault.errno, fault.strerror, str(path)) from None
        raise


def sync(path: Path) -> None:
    """Wait until the content of a file, or the entries of a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as fault:
        if fault.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)


# ---- output files that the user names ---------------------------------------------------------


class ExistsError(Exception):
    """The output file already exists; the text says what the user can do."""


def refuse_existing(path: Path) -> None:
    """Raise ExistsError if the path is a file or a folder that is not empty."""
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        kind = "folder" if path.is_dir() else "file"
        raise ExistsError(f"{path} exists, and is not overwritten; name another {kind}, or remove it first")


def write_new(path: Path, text: str) -> None:
    """Write a file that does not exist yet. Raises ExistsError, or OSError; no file is left then."""
    try:
        stream = path.open("x", encoding="utf-8")
    except FileExistsError:
        refuse_existing(path)
        raise
    try:
        with stream:
            stream.write(text)
    except OSError:
        path.unlink(missing_ok=True)
        raise


# ---- standard output and error of engine and trainer ------------------------------------------


class _Forgiving(io.FileIO):
    """A stream that drops output that cannot be written, and raises no error."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def forgive_full_disk() -> None:
    """Replace standard output and error, so that printing never fails: output that the disk refuses is dropped.

    Each line is written at once, as a log is read while it is written, and a process may end without Python's own end.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is not None:
            setattr(sys, name, _forgiving(stream))
            setattr(sys, f"__{name}__", getattr(sys, name))


def _forgiving(stream: Any) -> io.TextIOWrapper:
    raw = _Forgiving(stream.fileno(), "wb", closefd=False)
    buffer: Any = raw if stream.write_through else io.BufferedWriter(raw)  # as Python does with PYTHONUNBUFFERED
    return io.TextIOWrapper(
        buffer,
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=True,
        write_through=stream.write_through,
    )
