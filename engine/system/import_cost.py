"""Makes the import of TensorFlow cheaper: room for all Python frames, and no garbage collection of objects that stay.
CPython 3.11 to 3.13 keep the frames of a thread in chunks of 16 KiB. A call whose frame does not fit into the last
chunk maps a new chunk, and its return unmaps it (`_PyThreadState_PopFrame`). If a loop at the end of a chunk calls a
function, each call maps and unmaps memory: a trainer did so 68,000 times while it imported TensorFlow, which took a
second of CPU time. A frame that is larger than a chunk gets a chunk of its own, at least twice as large as the frame,
and the calls below it use the rest of that chunk. Importing TensorFlow creates a million objects that stay until the
process ends. Scanning them takes a fifth of the import's time, and would be repeated in each full collection later.
"""

import contextlib
import gc
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

Returned = TypeVar("Returned")

ROOM_BYTES = 1 << 20  # of addresses: only what frames have used takes memory
_POINTER_BYTES = 8


def with_room(program: Callable[[], Returned]) -> Returned:
    """Run the program in a large chunk of frame memory of its own."""
    return program()


with_room.__code__ = with_room.__code__.replace(co_stacksize=ROOM_BYTES // _POINTER_BYTES)


# ---- garbage collection --------------------------------------------------------------------------


_imported = 0


@contextlib.contextmanager
def exempt_from_gc() -> Iterator[None]:
    """No collection during the context; objects that exist at its end are never scanned later."""
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()
        global _imported
        _imported = gc.get_freeze_count()


def tracked_objects() -> list[Any]:
    """Return those that are not exempted, and all if user code has frozen more objects since."""
    if gc.get_freeze_count() > _imported:
        gc.unfreeze()
    return gc.get_objects()
