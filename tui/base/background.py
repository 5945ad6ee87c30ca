"""Reads in daemon threads, for what may never come back: a network folder that does not answer keeps nobody waiting.

Textual's own workers would be waited for when the application is left.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar

from textual.widget import Widget

Result = TypeVar("Result")


def in_background(owner: Widget, reading: Callable[[], Result], take: Callable[[Result], None]) -> None:
    """Call `reading` in a thread of its own, and `take` with the result here, if `owner` is then still shown."""
    loop = asyncio.get_running_loop()

    def done(result: Result) -> None:
        if owner.is_attached:
            take(result)

    def run() -> None:
        result = reading()
        with contextlib.suppress(RuntimeError):  # the application has been left
            loop.call_soon_threadsafe(done, result)

    threading.Thread(target=run, daemon=True).start()
