"""Tells, in the words of the system, that a disk takes nothing more: it is full, read-only, or a limit is reached.

Python, TensorFlow and HDF5 each say it in another way; here it becomes an error number and one wording.
"""

from __future__ import annotations

import errno
import os
import re
import tempfile
from pathlib import Path

_WHAT = {
    errno.ENOSPC: "disk full",
    errno.EDQUOT: "disk quota used up",
    errno.EROFS: "read-only disk",
    errno.EFBIG: "largest file size (ulimit -f) reached",
}
_BY_WORDS = {os.strerror(number): number for number in _WHAT}
_IN_TEXT = re.compile(rf"; ({'|'.join(map(re.escape, _BY_WORDS))})|\berrno = ([0-9]+)")  # of TensorFlow, of HDF5
_NAMED = re.compile(r"(/[^;]*); ")
_NODE = re.compile(r"\{\{[^}]*\}\}|\[Op:.*", re.DOTALL)
PROBE_BYTES = 16384


def refusal(fault: BaseException) -> int | None:
    """The error number of a disk that takes nothing more, or None for any other fault."""
    if isinstance(fault, OSError) and fault.errno is not None:
        return fault.errno if fault.errno in _WHAT else None
    match = _IN_TEXT.search(str(fault))
    if match is None:
        return None
    number = _BY_WORDS[match[1]] if match[1] else int(match[2])
    return number if number in _WHAT else None


def place(fault: BaseException) -> str | None:
    """The file or folder that a fault names."""
    if isinstance(fault, OSError):
        return None if fault.filename is None else str(fault.filename)
    match = _NAMED.search(_NODE.sub("", str(fault)))
    return match[1] if match else None


def reason(fault: BaseException) -> str:
    """What the system said; of another fault its first 200 characters, without TensorFlow's names of its nodes."""
    number = refusal(fault) or (fault.errno if isinstance(fault, OSError) else None)
    return os.strerror(number) if number else " ".join(_NODE.sub("", str(fault)).split())[:200]


def describe(number: int, path: Path | str) -> str:
    """The one wording of a disk that takes nothing more."""
    return f"{_WHAT[number]} at {path} ({_no_inodes(path) if number == errno.ENOSPC else ''}{os.strerror(number)})"


def looked_at(folder: Path) -> str:
    """The same, found out by writing a file without a name to the folder; empty where there is room."""
    try:
        with tempfile.TemporaryFile(dir=folder) as stream:
            stream.write(bytes(PROBE_BYTES))
    except OSError as fault:
        number = refusal(fault)
        return describe(number, folder) if number is not None else ""
    return ""


def _no_inodes(path: Path | str) -> str:
    """Room for bytes and none for one more file is the less known way to be full."""
    try:
        facts = os.statvfs(os.path.dirname(path) if not os.path.isdir(path) else path)
    except OSError:
        return ""
    return "no inode is free: " if facts.f_files and not facts.f_favail and facts.f_bavail else ""
