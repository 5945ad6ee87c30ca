"""Runs a program with room for all of its Python frames.

CPython 3.11 to 3.13 keep the frames of a thread in chunks of 16 KiB. A call that does not fit into the last chunk maps
a new one, and its return unmaps it (`_PyThreadState_PopFrame`). A function that is called in a loop just there maps and
unmaps memory at each call: a trainer did so 68,000 times while it imported TensorFlow, for a second of the CPU.
A frame that is larger than a chunk gets a chunk of its own, of twice as much at least, and calls below it share the
rest.
"""

from collections.abc import Callable
from typing import TypeVar

Returned = TypeVar("Returned")

ROOM_BYTES = 1 << 20  # of addresses: only what frames have used takes memory
_POINTER_BYTES = 8


def with_room(program: Callable[[], Returned]) -> Returned:
    """Run the program in a chunk of its own."""
    return program()


with_room.__code__ = with_room.__code__.replace(co_stacksize=ROOM_BYTES // _POINTER_BYTES)
