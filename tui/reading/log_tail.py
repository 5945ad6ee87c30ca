"""The end of a run's log, read as it grows and made safe to show."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from ...engine.files.reading import open_regular
from ..base.errors import clean

LOG_LINES = 2000
LOG_BYTES = 400_000


class LogTail:
    """The last lines of engine.log, made safe to show; `lines` is the same object until there are new ones.

    `arrived` tells of each line when it came, as Unix time, or 0 where it stood there at the first look.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset: int | None = None
        self._kept: deque[str] = deque(maxlen=LOG_LINES)
        self._arrived: deque[float] = deque(maxlen=LOG_LINES)
        self.lines: tuple[str, ...] = ()
        self.arrived: tuple[float, ...] = ()
        self.count = 0

    def poll(self) -> None:
        now = time.time() if self._offset is not None else 0.0
        block = self._block()
        if block:
            fresh = [_shown(line) for line in block.decode("utf-8", "replace").split("\n")[:-1]]
            self._kept.extend(fresh)
            self.count += len(fresh)
            self._arrived.extend([now] * len(fresh))
            self.lines, self.arrived = tuple(self._kept), tuple(self._arrived)

    def _block(self) -> bytes:
        try:
            with open_regular(self._path) as stream:
                size = stream.seek(0, 2)
                if self._offset is None:
                    self._offset = max(0, size - LOG_BYTES)
                if size == self._offset:
                    return b""
                stream.seek(self._offset)
                block = stream.read(LOG_BYTES)
        except OSError:
            return b""
        block = block[: block.rfind(b"\n") + 1]
        self._offset += len(block)
        return block


def _shown(line: str) -> str:
    """A line as a terminal would show it: text overwritten by a carriage return is removed, tabs become spaces."""
    return clean(line.rstrip("\r").rpartition("\r")[2].expandtabs(8))
