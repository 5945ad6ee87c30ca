"""Waits until a screen is at rest by looking at it: Textual's pilot wakes every widget for that, after each key."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from textual.message_pump import MessagePump
from textual.pilot import Pilot, WaitForScreenTimeout

AT_ONCE = 50  # times that it looks without sleeping


async def at_rest(pilot: Pilot[Any], timeout: float = 120.0) -> bool:
    """Until neither the application nor a widget of its screen has a message left; False where it has failed."""
    until = time.monotonic() + timeout
    looked = 0
    await asyncio.sleep(0)
    while _busy(pilot):
        if pilot.app._exception_event.is_set():
            return False
        if time.monotonic() > until:
            raise WaitForScreenTimeout(f"still at work after {timeout} s: {_busy(pilot)}")
        looked += 1
        await asyncio.sleep(0 if looked < AT_ONCE else 0.005)
    return True


def _busy(pilot: Pilot[Any]) -> list[MessagePump]:
    app = pilot.app
    if not app._screen_stack:
        return []
    return [pump for pump in (app, *app.screen.walk_children(with_self=True)) if _has_work(pump)]


def _has_work(pump: MessagePump) -> bool:
    """Whether messages wait for it, or it is at one: one that is at rest waits for the next."""
    if not pump.is_running or pump._closing or pump._closed:
        return False
    ready: Any = pump._message_queue.ready_event
    return ready.is_set() or not ready._waiters
