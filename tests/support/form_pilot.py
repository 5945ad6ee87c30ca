"""What the tests of the screens share: the application opened by Textual's pilot, and ways to look and write."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from textual.pilot import Pilot

from tests.doors.engine import Gpu, Machine
from tests.doors.tui import FormScreen, FormState, GputuiApp, OptionRow
from tests.support.tiny import text_of, wait_for

SIZES = SMALL, LARGE = [(80, 24), (120, 40)]
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
    await pilot.pause(0.02)
    until = time.monotonic() + 60
    while time.monotonic() < until and not _is_known(pilot):
        await asyncio.sleep(0.01)
    await pilot.pause()


def _is_known(pilot: Pilot[Any]) -> bool:
    checked = pilot.app.screen is not form(pilot) or form(pilot).checked is form(pilot).state.preset
    return checked and not any(worker.group in ("machine", "checks", "offer") for worker in pilot.app.workers)


async def finished(pilot: Pilot[Any], *groups: str) -> None:
    """Wait for workers of these groups."""
    workers = [worker for worker in pilot.app.workers if worker.group in groups]
    if workers:
        await pilot.app.workers.wait_for_complete(workers)


async def write(pilot: Pilot[Any], text: str) -> None:
    names = {"/": "slash", " ": "space", ".": "full_stop", "-": "minus", ":": "colon", "_": "underscore"}
    names["="] = "equals_sign"
    await pilot.press(*(names.get(c, c) for c in text))


def form(pilot: Pilot[Any]) -> FormScreen:
    assert isinstance(pilot.app, GputuiApp)
    return pilot.app.form


def seen(pilot: Pilot[Any]) -> str:
    """The screen as plain text."""
    return text_of(pilot.app)


def told(pilot: Pilot[Any]) -> str:
    """What the notifications say."""
    return "\n".join(notification.message for notification in pilot.app._notifications)


async def go(pilot: Pilot[Any], key: str) -> OptionRow:
    """The row of the option, focused and in view: the form scrolls to it after its next layout."""
    form(pilot).go_to(key)
    row = form(pilot).options.rows[key]
    await wait_for(pilot, lambda: row in pilot.app.screen._compositor.visible_widgets)
    return row


async def calm(pilot: Pilot[Any]) -> None:
    """Wait until questions, answers and what follows from them are through."""
    for _ in range(3):
        await pilot.pause(0.05)
    for _ in range(50):  # turns that a busy machine has not given to other tasks meanwhile
        await asyncio.sleep(0)
    await pilot.pause()


async def anew(pilot: Pilot[Any], size: tuple[int, int] = (80, 24)) -> None:
    """The form as the application opens it, in this size: for a test that goes on with something else."""
    while len(pilot.app.screen_stack) > 1:
        pilot.app.pop_screen()
        await pilot.pause()
    pilot.app.clear_notifications()
    if (pilot.app.size.width, pilot.app.size.height) != size:
        await pilot.resize_terminal(*size)
    form(pilot).load(FormState.first())
    await settled(pilot)
    form(pilot).set_focus(next(iter(form(pilot).options.rows.values())))
    await pilot.pause()
