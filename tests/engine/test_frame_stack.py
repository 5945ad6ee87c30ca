"""A program has room for its frames: no depth of calls maps memory again and again."""

from __future__ import annotations

import resource
import threading
from collections.abc import Callable

from gputui.engine.system import import_cost

DEPTHS, CALLS = 400, 100  # more than a chunk of the frames of `descend`


def page_faults(program: Callable[[], None]) -> int:
    """Of a new thread: its frames begin in a new chunk."""
    counts: list[int] = []

    def count() -> None:
        before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
        program()
        counts.append(resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before)

    thread = threading.Thread(target=count)
    thread.start()
    thread.join()
    return counts[0]


def descend() -> None:
    """At each depth, calls that return at once."""

    def at(depth: int) -> None:
        for _ in range(CALLS):
            nothing()
        if depth < DEPTHS:
            at(depth + 1)

    at(0)


def nothing() -> None:
    return None


def test_no_depth_of_calls_maps_memory_again_and_again() -> None:
    def program() -> None:
        import_cost.with_room(descend)

    assert page_faults(program) < CALLS / 2 < page_faults(descend)
