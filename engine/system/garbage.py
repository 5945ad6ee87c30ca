"""Keeps Python's garbage collector away from what is imported and stays.

Importing TensorFlow makes a million objects. The collector would look through them again and again, which takes a fifth
of the import's time, and would do so in each full collection later.
"""

import contextlib
import gc
from collections.abc import Iterator
from typing import Any

_imported = 0


@contextlib.contextmanager
def imported_to_stay() -> Iterator[None]:
    """What is made inside is not collected, neither meanwhile nor later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        global _imported
        _imported = gc.get_freeze_count()


def objects() -> list[Any]:
    """All objects that the collector knows, without those that were imported; also those that a user's code froze."""
    if gc.get_freeze_count() > _imported:
        gc.unfreeze()
    return gc.get_objects()
