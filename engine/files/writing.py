"""Writes a file completely or not at all, and, where it matters, so that it survives a power failure."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # the errors of a file system that cannot sync a folder


def write_atomically(path: Path, text: str, *, durable: bool = True) -> None:
    """Replace a file: readers see the old one or the new one, never a part.

    Raises OSError with the file's own name, leaving no draft behind. A file that is rewritten every second need not be
    durable, since syncing waits for the disk.
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
    """Wait until a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as fault:
        if fault.errno not in _NO_SYNC:
            raise
    finally:
        os.close(descriptor)
