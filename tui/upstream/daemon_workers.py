"""Reads in daemon threads, as a read may never return: a network folder may not answer.

Textual (8.2) waits for its own threads when the application is left. Waits for workers in daemon threads.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from textual.widget import Widget

Result = TypeVar("Result")


def in_background(owner: Widget, reading: Callable[[], Result], take: Callable[[Result], None]) -> None:
    """Call `reading` in a daemon thread, then `take` with its result in the calling thread; nothing is taken if `owner`
    has been removed.
    """
    loop, context = asyncio.get_running_loop(), copy_context()

    def done(act: Callable[[], None]) -> None:
        if owner.is_attached:
            try:
                act()
            except Exception as error:  # noqa: BLE001 - shown like a fault in the handling of a message
                owner.app._handle_exception(error)

    def run() -> None:
        try:
            act = partial(take, reading())
        except Exception as error:  # noqa: BLE001 - raised again in the thread of the screens
            act = partial(_raise, error)
        with contextlib.suppress(RuntimeError):  # the application has been left
            loop.call_soon_threadsafe(partial(done, act), context=context)

    threading.Thread(target=run, daemon=True).start()


def _raise(error: Exception) -> None:
    raise error
