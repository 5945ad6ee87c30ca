"""Reads what TensorFlow and CUDA log to standard error about the devices that they open or cannot open.

The libraries write to the file descriptor without Python. It is not redirected, so that nothing is lost in a crash: the
log is read back where standard error is a file, as it is in a trainer (engine.log).
"""

from __future__ import annotations

import os
import re
import stat
from dataclasses import dataclass

_STANDARD_ERROR = 2
_AT_MOST_BYTES = 1024**2
# As tensorflow/core/common_runtime/gpu/gpu_device.cc words it.
_CREATED = re.compile(r"Created device \S*/device:(GPU:\d+) with .* device: (\d+), .* pci bus id: ([\w:.]+)")


@dataclass(frozen=True)
class Created:
    """A logical device that TensorFlow has opened: CUDA's ordinal and the PCI address of its GPU."""

    ordinal: int
    pci_bus_id: str


class LibraryLog:
    """What is written to standard error after this object was created."""

    def __init__(self) -> None:
        self._from = _size()

    def text(self) -> str:
        """The text; empty where standard error is not a file."""
        if self._from is None:
            return ""
        try:
            with open(f"/proc/self/fd/{_STANDARD_ERROR}", "rb") as log:
                log.seek(self._from)
                return log.read(_AT_MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def created(self) -> dict[str, Created]:
        """The devices that TensorFlow has opened, by names such as GPU:0."""
        return {name: Created(int(ordinal), bus) for name, ordinal, bus in _CREATED.findall(self.text())}


def _size() -> int | None:
    try:
        state = os.fstat(_STANDARD_ERROR)
    except OSError:
        return None
    return state.st_size if stat.S_ISREG(state.st_mode) else None
