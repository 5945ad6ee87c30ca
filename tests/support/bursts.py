"""Bytes as a terminal sends them: several keys in one packet, or cut anywhere, without waiting for an answer."""

from __future__ import annotations

import asyncio
import random
import time
from typing import Any

from textual import events
from textual._xterm_parser import XTermParser
from textual.pilot import Pilot

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


async def paste(pilot: Pilot[Any], text: str) -> None:
    """As a terminal does that marks what is pasted."""
    await burst(pilot, f"\x1b[200~{text}\x1b[201~")


async def answered(pilot: Pilot[Any]) -> None:
    """Until the application has taken all of it."""
    for _ in range(2):
        await pilot.pause(0.02)
        while isinstance(pilot.app, BaseApp) and pilot.app.typeahead.busy:
            await pilot.pause(0.01)
