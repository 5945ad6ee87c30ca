"""A start beside another training on the same devices: starts it anyway, lets it wait, or leaves it."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from ..base.errors import clean
from ..base.waiting import Start
from .questions import Ask

if TYPE_CHECKING:
    from ...engine.runs import Run
    from ..base.services import Host

ANYWAY, WAIT, CANCEL = "Start anyway", "Wait until it has ended", "Cancel"


async def launched(app: Host, start: Start) -> tuple[Run, Any] | None:
    """The run and its engine's process; None where it waits or was left. Raises what its launch raises."""
    if busy := await asyncio.to_thread(start.in_the_way):
        answer = await app.push_screen_wait(Ask(_question(busy), (ANYWAY, WAIT, CANCEL)))
        if answer == WAIT:
            app.waiting.add(start)
            app.notify(clean(_waits(app, start.title, busy)), markup=False)
        if answer != ANYWAY:
            return None
    return await asyncio.to_thread(start.launch)


def _question(busy: str) -> str:
    return (
        f"{busy[0].upper()}{busy[1:]} on the same devices: side by side both are slower, or run out of memory.\n"
        "Start beside it?"
    )


def _waits(app: Host, title: str, busy: str) -> str:
    return f"{title} waits, as {busy}, and starts by itself after it; {app.key('stop')} in the form gives it up"
