"""Reads files that any program may have written. Only regular files are opened, so that reading never blocks, and whole
files are only read if they fit in memory.
"""

from __future__ import annotations

import errno
import io
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Generic, TypeVar

from ..units import size
from .values import LARGEST, LARGEST_WHOLE, MAX_DEPTH, depth, harmless, harmless_in

T = TypeVar("T")
MAX_OBJECT_BYTES = 20 * 1024**2  # of a file that holds one JSON object
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading, without waiting. Raises OSError for anything else, such as a pipe."""
    flags = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    _refuse_special(path, os.stat(path))  # merely opening a device may have an effect
    descriptor = os.open(path, flags)
    try:
        _refuse_special(path, os.fstat(descriptor))
    except OSError:
        os.close(descriptor)
        raise
    return io.BufferedReader(_NeverWaiting(descriptor))


class _NeverWaiting(io.FileIO):
    """A file that raises OSError if no data can be read at once, as for some files of /proc. FileIO returns None."""

    def readall(self) -> bytes:
        return self._data(super().readall())

    def readinto(self, buffer: Any, /) -> int:
        read: int | None = super().readinto(buffer)
        return self._data(read)

    def _data(self, read: T | None) -> T:
        if read is None:
            raise OSError(errno.EINVAL, "has nothing to read, and may wait for ever: it is not a file of text")
        return read


def _refuse_special(path: Path, status: os.stat_result) -> None:
    if not stat.S_ISREG(status.st_mode):
        what = next((name for is_kind, name in _KINDS if is_kind(status.st_mode)), "no file")
        raise OSError(errno.EINVAL, f"is {what}, not a file", str(path))


def read_bytes(path: Path, most: int = MAX_OBJECT_BYTES) -> bytes:
    """Return the whole content of a file. Raises OSError, also if the file has more than `most` bytes."""
    with open_regular(path) as stream:
        block = stream.read(most + 1)
    if len(block) > most:
        raise OSError(errno.EFBIG, f"is larger than {size(most)}", str(path))
    return block


def written_at(path: Path) -> float:
    """The Unix time at which a file was written; 0 if it cannot be seen."""
    try:
        return path.stat().st_mtime
    except (OSError, ValueError):
        return 0.0


def bytes_of(path: Path) -> int | None:
    """The size of a file; None if it cannot be seen."""
    try:
        return path.stat().st_size
    except OSError:
        return None


def last_lines(path: Path, most: int) -> list[bytes]:
    """The lines in the last `most` bytes, of which the first may be cut; none if the file cannot be read."""
    try:
        with open_regular(path) as stream:
            stream.seek(max(0, stream.seek(0, os.SEEK_END) - most))
            return stream.read().splitlines()
    except OSError:
        return []


class GrowingFile:
    """Reads each complete line of a growing file once, from byte `offset` on; one that is not complete is left for
    later. Each reading opens the file again, and raises OSError as `open_regular` does.
    """

    def __init__(self, path: Path, offset: int = 0) -> None:
        self.path, self.offset = path, offset
        self.size = offset  # bytes of the file at the last reading

    def block(self, most: int = -1) -> bytes:
        """All new lines, at most `most` bytes if not negative; empty if the next is longer. Raises OSError."""
        with open_regular(self.path) as stream:
            self.size = stream.seek(0, os.SEEK_END)
            stream.seek(self.offset)
            block = stream.read(most)
        block = block[: block.rfind(b"\n") + 1]
        self.offset += len(block)
        return block

    def lines(self) -> Iterator[bytes]:
        """Yield the new lines with their newlines, as the file may be larger than the memory. Raises OSError."""
        with open_regular(self.path) as stream:
            self.size = stream.seek(0, os.SEEK_END)
            stream.seek(self.offset)
            for line in stream:
                if not line.endswith(b"\n"):
                    return
                self.offset += len(line)
                yield line


def why(fault: OSError) -> str:
    """Return the reason of an error in the words of the system or of this module, without the path."""
    return harmless(str(fault.strerror or fault))


@dataclass(frozen=True)
class Content(Generic[T]):
    """The content of a JSON file: an object (empty) or an instance of a class (None) if there is no such file."""

    value: T
    damage: str = ""  # why it, or a part of it, cannot be used
    unreadable: bool = False  # the file may exist, but cannot be read now


def read_object(path: Path) -> Content[Mapping[str, Any]]:
    """Return the content of a JSON file that has one object. Errors are in the result's `damage` and are not raised."""
    try:
        content = parse_object(read_bytes(path))
    except FileNotFoundError:
        return Content({})
    except OSError as fault:
        return Content({}, f"{path.name} cannot be read: {why(fault)}", unreadable=True)
    return Content({}, f"{path.name} is damaged, left out") if content is None else Content(content)


def parse_object(raw: bytes) -> dict[str, Any] | None:
    """Return the JSON object in `raw`, with harmless texts; None if `raw` is no JSON object or too deeply nested. NaN
    and Infinity, which are no JSON, become None. A number too large for figures is read as a text.
    """
    try:
        value = json.loads(raw, parse_constant=lambda _name: None, parse_float=_float, parse_int=_int)
    except (ValueError, RecursionError):
        return None
    return harmless_in(value) if isinstance(value, dict) and depth(value) <= MAX_DEPTH else None


def _float(digits: str) -> float | str:
    return value if abs(value := float(digits)) <= LARGEST else digits


def _int(digits: str) -> int | str:
    return value if len(digits) < 25 and abs(value := int(digits)) <= LARGEST_WHOLE else digits
