"""Puts changes that a diagnosis or a hint proposes into the form of a run, unless the form cannot start it."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...engine.proof import sentences

if TYPE_CHECKING:
    from ...engine.runs import Run
    from ..base.services import Host


async def apply(app: Host, run: Run, changes: Mapping[str, Any]) -> None:
    """Reads the run's folder in a thread."""
    if await asyncio.to_thread(_can_be_trained, run):
        app.apply(run, changes, sentences.changes(changes))
    else:
        app.complain("this is a fit of your own script: change it there")


def _can_be_trained(run: Run) -> bool:
    from ...engine.proof.request import can_be_trained  # only where something is put into the form

    return can_be_trained(run)
