"""The `model.fit` that a callback is called from: what Keras does not pass to callbacks, and whether it still runs.

Keras does not notify callbacks of a fit that was interrupted or failed; its frame is then no longer on the stack of its
thread.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from types import FrameType


class Fit:
    """To be created in a callback of the fit; holds the frame until `forget`."""

    def __init__(self) -> None:
        self._thread = threading.get_ident()
        self._frame = next((frame for frame in _from(sys._getframe()) if _is_fit(frame)), None)
        self._known = self._frame is not None

    def batch_size(self) -> int | None:
        """The batch size, which fit's iterator knows; None where it is not available."""
        iterator = self._frame.f_locals["epoch_iterator"] if self._frame else None
        size = getattr(getattr(iterator, "data_adapter", None), "batch_size", None)
        return int(size) if isinstance(size, int) and size > 0 else None

    def runs(self) -> bool:
        """Whether the fit still runs; always true for a training loop that is not Keras' own, as nobody can know."""
        frame = self._frame
        return not self._known or any(one is frame for one in _from(sys._current_frames().get(self._thread)))

    def forget(self) -> None:
        """Release the frame, which holds the data of the fit."""
        self._frame = None


def _is_fit(frame: FrameType) -> bool:
    return frame.f_code.co_name == "fit" and "epoch_iterator" in frame.f_locals


def _from(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
