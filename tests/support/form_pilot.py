"""What the tests of the screens share: the application opened by Textual's pilot, and ways to look and write."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gputui.engine.telemetry.machine import Gpu, Machine
from gputui.tui.app import GputuiApp
from gputui.tui.screens.form import FormScreen
from gputui.tui.widgets.option_row import OptionRow
from textual.pilot import Pilot

SIZES = [(80, 24), (120, 40)]
NO_GPU = Machine((), "no NVIDIA driver on this machine", 4, 8 * 1024**3)
H100 = Gpu(0, "GPU-1", "NVIDIA H100", (9, 0), 80 * 1024**3)
TWO_GPUS = Machine((H100, Gpu(1, "GPU-2", "NVIDIA H100", (9, 0), 80 * 1024**3)), "", 16, 64 * 1024**3)


@asynccontextmanager
async def opened(size: tuple[int, int] = (80, 24), app: GputuiApp | None = None) -> AsyncIterator[Pilot[None]]:
    """The application with the machine looked at."""
    app = app or GputuiApp()
    async with app.run_test(size=size) as pilot:
        await settled(pilot)
        yield pilot


async def settled(pilot: Pilot[Any]) -> None:
    """Wait for what follows the start and typing: the look at the machine, the check of the options."""
    for _ in range(200):
        await pilot.pause(0.02)
        known = pilot.app.screen is not form(pilot) or form(pilot).checked is form(pilot).state.preset
        if known and not any(worker.group in ("machine", "checks", "offer") for worker in pilot.app.workers):
            break
    await pilot.pause()


async def finished(pilot: Pilot[Any], *groups: str) -> None:
    """Wait for workers of these groups."""
    workers = [worker for worker in pilot.app.workers if worker.group in groups]
    if workers:
        await pilot.app.workers.wait_for_complete(workers)


async def write(pilot: Pilot[Any], text: str) -> None:
    names = {"/": "slash", " ": "space", ".": "full_stop", "-": "minus", ":": "colon", "_": "underscore"}
    await pilot.press(*(names.get(c, c) for c in text))


def form(pilot: Pilot[Any]) -> FormScreen:
    assert isinstance(pilot.app, GputuiApp)
    return pilot.app.form


def seen(pilot: Pilot[Any]) -> str:
    """The screen as plain text."""
    strips = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in strips)


def told(pilot: Pilot[Any]) -> str:
    """What the notifications say."""
    return "\n".join(notification.message for notification in pilot.app._notifications)


async def go(pilot: Pilot[Any], key: str) -> OptionRow:
    form(pilot).go_to(key)
    await pilot.pause()
    return form(pilot).options.rows[key]


async def calm(pilot: Pilot[Any]) -> None:
    """Wait until questions, answers and what follows from them are through."""
    for _ in range(3):
        await pilot.pause(0.05)
    await pilot.pause()
