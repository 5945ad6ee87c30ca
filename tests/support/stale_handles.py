"""Plays a network disk whose server is started again: what was opened before is stale, and can but be opened anew."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


class StaleHandles:
    """Every call with a stale descriptor fails as the kernel lets it fail: ESTALE."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self._stale: set[int] = set()
        self._part_bytes = 0
        self._write, self._close = os.write, os.close
        patch.setattr(os, "write", self._written)
        patch.setattr(os, "close", self._closed)
        for name in ("ftruncate", "fstat", "fsync"):
            patch.setattr(os, name, self._refused(getattr(os, name)))

    def restart(self, path: Path, part_bytes: int = 0) -> None:
        """What this process has open of the file is stale from here on, or after a part of the next write."""
        links = {number: Path(f"/proc/self/fd/{number}") for number in map(int, os.listdir("/proc/self/fd"))}
        self._stale = {number for number, link in links.items() if link.exists() and link.samefile(path)}
        assert self._stale, "nothing is open"
        self._part_bytes = part_bytes

    def _written(self, number: int, data: Any) -> int:
        part, self._part_bytes = (self._part_bytes, 0) if number in self._stale else (len(data), self._part_bytes)
        if number in self._stale and not part:
            raise _stale()
        return self._write(number, data[:part])

    def _closed(self, number: int) -> None:
        self._close(number)
        if number in self._stale:
            self._stale.remove(number)
            raise _stale()

    def _refused(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def played(number: int, *rest: Any) -> Any:
            if number in self._stale:
                raise _stale()
            return call(number, *rest)

        return played


def _stale() -> OSError:
    return OSError(errno.ESTALE, os.strerror(errno.ESTALE))
