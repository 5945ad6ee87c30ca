"""Reads the entries of the queue repeatedly: the files again only if their folder has changed."""

from __future__ import annotations

import time

from . import entries
from .entries import Listing

SETTLED_SECONDS = 0.1  # a folder that has changed just now may change again without a new time
_UNKNOWN = ("", -1)


class ListingReader:
    """`listing` has the entries as of the last call of `read`."""

    def __init__(self) -> None:
        self.listing = Listing()
        self._stamp = ("", 0)

    def read(self) -> bool:
        """Read the entries if their folder has changed. Returns True if it has changed, or may just have changed."""
        folder = entries.queue_folder()
        try:
            changed_ns = folder.stat().st_mtime_ns
        except OSError:
            changed_ns = 0
        stamp = str(folder), changed_ns
        if stamp == self._stamp:
            return False
        self.listing = entries.listing()
        self._stamp = stamp if time.time() - changed_ns / 1e9 > SETTLED_SECONDS else _UNKNOWN
        return True
