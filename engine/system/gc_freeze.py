"""Exempts imported modules from Python's garbage collection.

Importing TensorFlow creates a million objects that stay until the process ends. Scanning them takes a fifth of the
import's time, and would be repeated in each full collection later.
"""

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

_imported = 0


@contextlib.contextmanager
def exempt_from_gc() -> Iterator[None]:
    """Do not collect garbage inside, and never scan later what was created inside."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        global _imported
        _imported = gc.get_freeze_count()


def objects() -> list[Any]:
    """All objects that the collector tracks except the imported ones; includes those that user code has frozen."""
    if gc.get_freeze_count() > _imported:
        gc.unfreeze()
    return gc.get_objects()
