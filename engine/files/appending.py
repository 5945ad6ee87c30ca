"""Appends whole lines to a file, and keeps them in memory while the disk refuses them. Appending never blocks and never
fails. Lines that cannot be written wait in memory, the newest of them up to a limit, and are written when the disk
accepts them again. The file is then opened again, since a handle on a network disk stays stale after its server was
restarted. The file never holds part of a line for longer than a moment.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections import deque
from dataclasses import dataclass
from itertools import accumulate, islice, takewhile
from pathlib import Path

KEPT_BYTES = 8 << 20
RETRY_SECONDS = 0.25
_BLOCK_BYTES = 1 << 16


@dataclass(frozen=True)
class Gap:
    """A period in which no line could be written."""

    seconds: float
    reason: str
    late: int  # lines that were written after it
    lost: int  # lines that were dropped


class LineFile:
    """The file `path`, to which lines are appended. Only this process appends to it, and only one of its threads at a
    time. At most `kept_bytes` of lines wait in memory; beyond that, the oldest are lost.
    """

    def __init__(self, path: Path, kept_bytes: int = KEPT_BYTES) -> None:
        self._path, self._kept_bytes = path, kept_bytes
        self._descriptor: int | None = None
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = self._late = self._lost = 0
        self._part = b""  # of a line, at the end of the file
        self._refused_at: float | None = None
        self._next_try = 0.0
        self.reason = ""  # why lines wait

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def lines(self) -> list[str]:
        return [line.decode().removesuffix("\n") for line in self._waiting]

    @property
    def missing(self) -> int:
        """Lines that are not in the file: those that wait, and those lost since writing last worked."""
        return len(self._waiting) + self._lost

    def append(self, line: str) -> Gap | None:
        """Write a line, or let it wait if the disk refused one in the last 0.25 s. Returns as `flush`."""
        self._waiting.append(line.encode() + b"\n")
        self._waiting_bytes += len(self._waiting[-1])
        while self._waiting_bytes > self._kept_bytes and len(self._waiting) > 1:
            self._waiting_bytes -= len(self._waiting.popleft())
            self._lost += 1
        return self.flush() if time.monotonic() >= self._next_try else None

    def flush(self) -> Gap | None:
        """Try to write the lines that wait. If writing works again after a gap, return the gap; else None."""
        try:
            while self._waiting:
                if self._descriptor is None:
                    _end_last_line(self._path, self._part)
                    self._part = b""
                    self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
                self._write_block(self._descriptor)
        except OSError as fault:
            self.close()
            now = time.monotonic()
            self.reason, self._next_try = fault.strerror or str(fault), now + RETRY_SECONDS
            self._refused_at = now if self._refused_at is None else self._refused_at
            return None
        if self._refused_at is None:
            return None
        gap = Gap(time.monotonic() - self._refused_at, self.reason, self._late, self._lost)
        self._refused_at, self._late, self._lost, self.reason, self._next_try = None, 0, 0, "", 0.0
        return gap

    def close(self) -> None:
        if self._descriptor is not None:
            with contextlib.suppress(OSError):  # a network disk reports earlier write errors here
                os.close(self._descriptor)
            self._descriptor = None

    def _write_block(self, descriptor: int) -> None:
        """Write as many lines as the disk accepts; what was written of a line in part is removed. Raises OSError."""
        self._take_back_part(descriptor)
        sizes = accumulate(map(len, self._waiting))
        count = max(1, sum(1 for _ in takewhile(lambda size: size <= _BLOCK_BYTES, sizes)))
        block, written = memoryview(b"".join(islice(self._waiting, count))), 0
        try:
            while written < len(block):
                written += os.write(descriptor, block[written:])
        finally:
            while self._waiting and written >= len(self._waiting[0]):
                written -= len(line := self._waiting.popleft())
                self._waiting_bytes -= len(line)
                self._late += self._refused_at is not None
            self._part = self._waiting[0][:written] if written else b""
            self._take_back_part(descriptor)

    def _take_back_part(self, descriptor: int) -> None:
        if self._part:
            os.ftruncate(descriptor, os.fstat(descriptor).st_size - len(self._part))
            self._part = b""


def _end_last_line(path: Path, part: bytes) -> None:
    """Remove `part`, which this process has written; end another incomplete line, as a killed process leaves it."""
    with contextlib.suppress(FileNotFoundError), path.open("rb+", buffering=0) as stream:
        size = stream.seek(0, os.SEEK_END)
        stream.seek(max(0, size - max(1, len(part))))
        end = stream.read()
        if part and end == part:
            stream.truncate(size - len(part))
        elif size and not end.endswith(b"\n"):
            stream.write(b"\n")
