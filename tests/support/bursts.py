"""Keys as a terminal sends them, without waiting for an answer, and a wait for a screen at rest, by looking at it."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from textual import events
from textual._xterm_parser import XTermParser
from textual.message_pump import MessagePump
from textual.pilot import Pilot, WaitForScreenTimeout

from tests.doors.tui import BaseApp

DOWN, LEFT, F4, F6 = "\x1b[B", "\x1b[D", "\x1bOS", "\x1b[17~"
ENTER, ESCAPE, PALETTE = "\r", "\x1b", "\x10"


async def burst(pilot: Pilot[Any], *keys: str, seed: int | None = None, seconds: float = 0.003) -> None:
    """All at once; with a seed, cut at random places with up to so many seconds between the pieces.

    Each key is dated as it was typed, however long the application takes between two of them on a busy machine.
    """
    chance, typed_at = random.Random(seed), time.monotonic()
    driver, parser = pilot.app._driver, XTermParser()
    assert driver is not None
    for key in keys:
        found = [events.Key("escape", key)] if key == ESCAPE else list(parser.feed(key))
        for event in found:
            event.time = typed_at
            driver.process_message(event)
            if seed is not None and chance.random() < 0.5:
                pause = chance.choice((0, 0, chance.random() * seconds))
                typed_at += pause
                await asyncio.sleep(pause)


async def answered(pilot: Pilot[Any]) -> None:
    """Until the application has taken all of it."""
    for _ in range(2):
        await pilot.pause(0.02)
        while isinstance(pilot.app, BaseApp) and pilot.app.typeahead.busy:
            await pilot.pause(0.01)


AT_ONCE = 50  # times that it looks without sleeping


async def at_rest(pilot: Pilot[Any], timeout: float = 120.0) -> bool:
    """Until neither the application nor a widget of its screen has a message left; False where it has failed. Textual's
    pilot wakes every widget for that, after each key.
    """
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
