"""Keeps printing from failing when the disk is full: the lines are then missing in engine.log, and nothing else
happens.
"""

from __future__ import annotations

import io
import sys
from typing import Any


class _Forgiving(io.FileIO):
    """A stream that drops what cannot be written."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def forgive() -> None:
    """Replace standard output and error, which Python opened at its start."""
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
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
