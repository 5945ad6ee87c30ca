"""Keeps Python's garbage collector away from what is imported and stays.

Importing TensorFlow makes a million objects. The collector would look through them again and again, which takes a fifth
of the import's time, and would do so in each full collection later.
"""

import contextlib
import gc
from collections.abc import Iterator


@contextlib.contextmanager
def imported_to_stay() -> Iterator[None]:
    """What is made inside is not collected, neither meanwhile nor later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
