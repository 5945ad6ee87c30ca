"""A small application around one screen, and how to wait for what a screen shows."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from textual.app import App
from textual.pilot import Pilot
from textual.screen import Screen

from tests.doors.engine import Options, Proof, Run
from tests.doors.tui import RICH, BaseApp, Glyphs


class Tiny(BaseApp):
    """Shows the screen that `make` makes; keeps what it is asked to open."""

    def __init__(self, make: Callable[[], Screen[Any]], glyphs: Glyphs = RICH) -> None:
        super().__init__()
        self.make, self.glyphs = make, glyphs
        self.opened: list[tuple[str, Any]] = []
        self.engines = []

    def on_mount(self) -> None:
        self.push_screen(self.make())

    def open_form(self, path: Path) -> None:
        self.opened.append(("form", path))

    def apply(self, path: Path, values: Mapping[str, Any], what: str, options: Options | None = None) -> None:
        self.opened.append(("apply", (path, dict(values), what)))

    def open_run(self, run: Run) -> None:
        self.opened.append(("run", run))

    def open_compare(self, runs: list[Run]) -> None:
        self.opened.append(("compare", runs))

    def open_proof(self, proof: Proof) -> None:
        self.opened.append(("proof", proof))


def tiny(pilot: Pilot[None]) -> Tiny:
    """The application under test, which knows what it was asked to open."""
    assert isinstance(pilot.app, Tiny)
    return pilot.app


def text_of(app: App[Any]) -> str:
    """What stands on the screen, line by line."""
    compositor = app.screen._compositor
    return "\n".join(strip.text for strip in compositor.render_strips())


STILL_SECONDS = 0.8  # the live view repaints all of itself every half second
LOOKS = 16  # in that time, where the process gets its core meanwhile


async def still(pilot: Pilot[None], *what: str) -> None:
    """Until all texts stand on the screen, and nothing of it has changed for longer than it takes to repaint it."""
    await wait_for(pilot, lambda: all(text in text_of(pilot.app) for text in what))
    shown, since, looks = "", time.monotonic(), 0
    while looks < LOOKS or time.monotonic() - since < STILL_SECONDS:
        await pilot.pause(0.05)
        looks += 1
        if (now := text_of(pilot.app)) != shown:
            shown, since, looks = now, time.monotonic(), 0


async def wait_for(pilot: Pilot[None], what: str | Callable[[], Any], seconds: float = 120.0) -> str:
    """Until the text stands on the screen, or the condition holds; returns the screen's text if it waits for a text.

    It lets all widgets come to rest before it believes what it has seen. To read the screen is most of what it costs.
    """
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        await pilot.pause()
        if (shown := _seen(pilot, what)) is not None:
            return shown
        while time.monotonic() < until and _seen(pilot, what) is None:
            await asyncio.sleep(0.05)
    raise AssertionError(f"not seen in {seconds} s: {what}\n{text_of(pilot.app)}")


def _seen(pilot: Pilot[None], what: str | Callable[[], Any]) -> str | None:
    """The screen's text, if what is waited for stands there; nothing is read for a condition."""
    if not isinstance(what, str):
        return "" if what() else None
    shown = text_of(pilot.app)
    return shown if what in shown else None
