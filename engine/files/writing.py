"""Writes files completely or not at all, does not overwrite a file that the user has named, and recognizes full disks.
Imports hardly anything, as engine and trainer start with it.
"""

from __future__ import annotations

import contextlib
import errno
import io
import os
import re
import secrets
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

_WHAT = {
    errno.ENOSPC: "disk full",
    errno.EDQUOT: "disk quota used up",
    errno.EROFS: "read-only disk",
    errno.EFBIG: "largest file size (ulimit -f) reached",
}
_BY_WORDS = {os.strerror(number): number for number in _WHAT}
# In messages of TensorFlow, of HDF5.
_IN_TEXT = re.compile(rf"; ({'|'.join(map(re.escape, _BY_WORDS))})|\berrno = ([0-9]+)")
_NAMED = re.compile(r"(/[^;]*); ")
_NODES = re.compile(r"\[\[[^\]]*\]\]|\{\{[^}]*\}\}|\[Op:.*|^\(0\) [A-Z_]+: +")
PROBE_BYTES = 16384
_NO_SYNC = (errno.EINVAL, errno.ENOTSUP, errno.EACCES)  # the errors of a file system that cannot sync a folder
_DRAFT = ".{name}.{process}"  # with random digits: other threads and other hosts may write the same file


def refusal(fault: BaseException) -> int | None:
    """The number of an error with which a disk refuses to be written to, else None. Those of TensorFlow are texts."""
    number = fault.errno if isinstance(fault, OSError) else None
    if number is None and (match := _IN_TEXT.search(str(fault))):
        number = _BY_WORDS[match[1]] if match[1] else int(match[2])
    return number if number in _WHAT else None


def passes(number: int) -> bool:
    """False for the limit on the size of files, which does not change while the process lives."""
    return number != errno.EFBIG


def remedy(number: int) -> str:
    return "free some space" if passes(number) else "raise the limit on the size of files (ulimit -f)"


def place(fault: BaseException) -> str | None:
    """Return the path of the file or folder that an error names; None if it names none."""
    if isinstance(fault, OSError):
        return None if fault.filename is None else str(fault.filename)
    match = _NAMED.search(without_nodes(str(fault)))
    return match[1] if match else None


def without_nodes(text: str) -> str:
    """Return a message of TensorFlow without what it says of its graph: names of nodes and operations, `(0) KIND:`."""
    return _NODES.sub("", text)


def reason(fault: BaseException) -> str:
    """The system's message, or 200 characters of an error without number, without TensorFlow's node names."""
    number = refusal(fault) or (fault.errno if isinstance(fault, OSError) else None)
    return os.strerror(number) if number else " ".join(without_nodes(str(fault)).split())[:200]


def describe(number: int, path: Path | str) -> str:
    """Return the message about a disk that refuses to be written to. `number` is the error number from `refusal`."""
    inodes = ""
    with contextlib.suppress(OSError):
        facts = os.statvfs(os.path.dirname(path) if not os.path.isdir(path) else path)
        if number == errno.ENOSPC and facts.f_files and not facts.f_favail and facts.f_bavail:
            inodes = "no inode is free: "  # the disk has free space
    return f"{_WHAT[number]} at {path} ({inodes}{os.strerror(number)})"


def try_writing(folder: Path) -> str:
    """Write an unnamed file to the folder: a message if the disk refuses it. Other errors do not count."""
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(bytes(PROBE_BYTES))
    except OSError as fault:
        if (number := refusal(fault)) is not None:
            return describe(number, folder)
    return ""


def used_bytes(*folders: str | os.PathLike[str]) -> int:
    """Of all files in these folders on the disk. A folder that cannot be read counts as empty."""
    total = 0
    for folder in folders:
        with contextlib.suppress(OSError), os.scandir(folder) as entries:
            for entry in entries:
                with contextlib.suppress(OSError):
                    total += 512 * entry.stat(follow_symlinks=False).st_blocks
                    if entry.is_dir(follow_symlinks=False):
                        total += used_bytes(entry)
    return total


def write_atomically(path: Path, text: str, *, durable: bool = True, mode: int = 0o666) -> None:
    """A reader sees the old or the new content. OSError has the file's name, and no temporary file is left. `durable`
    waits for the disk: not for what is rewritten every second. `mode` is less the umask.
    """
    draft = path.with_name(_DRAFT.format(name=path.name, process=f"{os.getpid()}{secrets.randbelow(10**9):09}"))
    try:
        with open(draft, "w", encoding="utf-8", opener=partial(os.open, mode=mode)) as stream:
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


def drafts(path: Path) -> list[Path]:
    """The temporary files of `write_atomically` that killed processes have left. Raises OSError."""
    head = _DRAFT.format(name=path.name, process="")
    return [each for each in path.parent.iterdir() if each.name.startswith(head) and each.name[len(head) :].isdecimal()]


def sync(path: Path) -> None:
    """Wait for the disk. Raises OSError; a file system that cannot do this is no error."""
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
    """The output file or folder already exists. The text says what the user can do."""


def refuse_existing(path: Path) -> None:
    """ExistsError, also for `-`, which is standard output in other commands. An empty folder is accepted."""
    if str(path) == "-":
        raise ExistsError("- is not the name of a file here; name one, such as -o output")
    if os.path.lexists(path) and not (path.is_dir() and not any(path.iterdir())):
        kind = "folder" if path.is_dir() else "file"
        raise ExistsError(f"{path} exists, and is not overwritten; name another {kind}, or remove it first")


def write_new(path: Path, text: str) -> None:
    """Raises ExistsError, or OSError; then nothing new is left."""
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
    """Replace standard output and error of this process by streams that drop output that the disk refuses. Each line is
    written at once, as a log is read while it is written, and a process may end without Python's own end.
    """
    for name in ("stdout", "stderr"):
        stream: Any = getattr(sys, name)
        if stream is not None:
            raw = _Forgiving(stream.fileno(), "wb", closefd=False)
            at_once = stream.write_through  # as Python does with PYTHONUNBUFFERED
            buffer: Any = raw if at_once else io.BufferedWriter(raw)
            forgiving = io.TextIOWrapper(buffer, stream.encoding, stream.errors, None, True, at_once)
            setattr(sys, name, forgiving)
            setattr(sys, f"__{name}__", forgiving)
