"""A start beside another training on the same devices: one question for runs and for all that measures.

It waits until the devices are free, begins all the same, or is left. What was measured all the same says in each of its
trials what ran beside it.

Deferred imports: the machine and proofs are needed only where something is started.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base.errors import clean
from ..base.waiting import Start
from .questions import Ask

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable

    from ...engine.proof.folder import Proof
    from ...engine.proof.request import Request
    from ..base.services import Host

WAIT, START, MEASURE, CANCEL = "Wait for it", "Start anyway", "Measure anyway", "Cancel"


async def may_start(app: Host, start: Start) -> bool:
    """Whether to start now: nothing is in the way, or the user begins all the same. Where it waits, it is queued."""
    busy = await asyncio.to_thread(start.in_the_way)
    if not busy:
        return True
    anyway = MEASURE if start.measures else START
    answer = await app.push_screen_wait(Ask(_question(busy, start.measures), (WAIT, anyway, CANCEL)))
    if answer == WAIT:
        app.waiting.add(start)
        app.notify(clean(_waits(app, start.title, busy)), markup=False)
    return answer == anyway


async def launched(app: Host, start: Start) -> tuple[Any, Any] | None:
    """The run or the proof, and its process; None where it waits or was left. Raises what its launch raises."""
    return await asyncio.to_thread(start.launch) if await may_start(app, start) else None


async def measured(app: Host, start: Start) -> bool:
    """Start what measures, and open it; whether it was started. Raises what its launch raises."""
    made = await launched(app, start)
    if made is not None:
        show(app, *made)
    return made is not None


def show(app: Host, proof: Proof, process: subprocess.Popen[bytes]) -> None:
    """Open what was started."""
    app.engines.append(process)
    app.open_proof(proof)


def measuring(app: Host, title: str, wanted: Request) -> Start:
    """The start of a new proof, search or measurement of scaling."""

    def launch() -> tuple[Proof, subprocess.Popen[bytes]]:
        from ...engine.proof import folder

        proof = folder.create(wanted)
        return proof, folder.start(proof)

    return _alone(app, title, lambda: wanted, launch)


def going_on(app: Host, title: str, proof: Proof, resume: Callable[[], subprocess.Popen[bytes]]) -> Start:
    """The start of what has ended before its time."""
    return _alone(app, title, lambda: proof.request, lambda: (proof, resume()), proof.path)


def _alone(
    app: Host,
    title: str,
    wanted: Callable[[], Request],
    launch: Callable[[], tuple[Proof, subprocess.Popen[bytes]]],
    but: Path | None = None,
) -> Start:
    """Of what is measured: no engine imports TensorFlow beside its trials. `but` is its own folder, if it has one."""

    def in_the_way() -> str:
        from ...engine.proof import sharing
        from ...engine.telemetry import machine

        here = machine.read()
        own = () if but is None else (but,)
        return sharing.beside(sharing.of_request(wanted(), here), here, *own)

    def begin() -> tuple[Proof, subprocess.Popen[bytes]]:
        warm, app.warm = app.warm, None
        if warm is not None:
            warm.close()
        return launch()

    return Start(title, in_the_way, begin, measures=True)


def _question(busy: str, measures: bool) -> str:
    busy = f"{busy[0].upper()}{busy[1:]}"
    if measures:
        return (
            f"{busy} on the same devices, and would disturb the measurements: beside it figures are worse, and the "
            "result says so.\nMeasure beside it?"
        )
    return f"{busy} on the same devices: side by side both are slower, or run out of memory.\nStart beside it?"


def _waits(app: Host, title: str, busy: str) -> str:
    return f"{title} waits, as {busy}, and starts by itself after it; {app.key('stop')} in the form gives it up"
