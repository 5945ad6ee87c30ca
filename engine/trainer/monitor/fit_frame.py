"""The `model.fit` that a callback is called from: what Keras does not tell callbacks of it, and whether it still runs.

Keras tells no callback that a fit was interrupted or failed; its frame is then no longer among those of its thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType


class Fit:
    """To be made in a callback of the fit; the frame is held until `forget`."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._frame = next((frame for frame in _from(sys._getframe()) if _is_fit(frame)), None)
        self._known = self._frame is not None

    def batch_size(self) -> int | None:
        """Fit's iterator knows it; None where it cannot be had."""
        iterator = self._frame.f_locals["epoch_iterator"] if self._frame else None
        size = getattr(getattr(iterator, "data_adapter", None), "batch_size", None)
        return int(size) if isinstance(size, int) and size > 0 else None

    def runs(self) -> bool:
        """Whether the fit still runs; always true for a training loop that is not Keras' own, as nobody can know."""
        frame = self._frame
        return not self._known or any(one is frame for one in _from(sys._current_frames().get(self._thread)))

    def forget(self) -> None:
        """The frame holds the data of the fit."""
        self._frame = None


def _is_fit(frame: FrameType) -> bool:
    return frame.f_code.co_name == "fit" and "epoch_iterator" in frame.f_locals


def _from(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
