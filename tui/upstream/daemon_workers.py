"""Reads in daemon threads, for what may never come back: a network folder that does not answer keeps nobody waiting.

Textual's own workers would be waited for when the application is left.
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
    """Call `reading` in a thread of its own, and `take` with the result here, if `owner` is then still shown."""
    loop, context = asyncio.get_running_loop(), copy_context()

    def done(act: Callable[[], None]) -> None:
        if owner.is_attached:
            try:
                act()
            except Exception as error:  # noqa: BLE001 - shown as of any message that is handled
                owner.app._handle_exception(error)

    def run() -> None:
        try:
            act = partial(take, reading())
        except Exception as error:  # noqa: BLE001 - raised again where it is shown
            act = partial(_raise, error)
        with contextlib.suppress(RuntimeError):  # the application has been left
            loop.call_soon_threadsafe(partial(done, act), context=context)

    threading.Thread(target=run, daemon=True).start()


def _raise(error: Exception) -> None:
    raise error
