"""From a diagnosis to a proof: the question to the user, and the start. The disk is accessed in threads.

Deferred imports: proofs and the machine are needed only when a proof is asked for, in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ....engine import runs
from ....engine.plan import LEAST_STEPS
from ....engine.presets import PresetError
from ....engine.runs import Run, RunError
from ....engine.units import counted, estimate
from ..dialogs import Ask
from ..runs.actions import ended
from ..starting import launch_and_open, new_measurement

if TYPE_CHECKING:
    from ....engine.proof.request import Request
    from ...base.base_app import BaseApp

STOP_FIRST = "The run has not ended and would disturb the measurements: it has to end first.\nStop it after this step?"


async def prove(app: BaseApp, run: Run, diagnosis: Mapping[str, Any]) -> None:
    """Ask the user, start the proof of the run's remedies, and open it; if this is not possible, show the reason."""
    state = await asyncio.to_thread(lambda: run.state)
    if state in runs.GOES_ON:
        await _stop_first(app, run)
        return
    if not any(remedy.get("changes") for remedy in diagnosis.get("remedies") or ()):
        app.notify("there is nothing to prove: the diagnosis proposes no change of options")
        return
    try:
        request, seconds = await asyncio.to_thread(_request, run)
        question = _question(request, seconds, diagnosis, app.key("stop"))
        if await app.push_screen_wait(Ask(question, ("Prove", "Cancel"))) == "Prove":
            await launch_and_open(app, new_measurement(app, f"the proof of {request.preset_name}", request))
    except (PresetError, RunError, OSError, ValueError) as reason:
        app.complain(f"cannot be proved: {reason}")


async def _stop_first(app: BaseApp, run: Run) -> None:
    if await app.push_screen_wait(Ask(STOP_FIRST, ("Stop it", "Keep it going"), lambda: ended(run))) != "Stop it":
        return
    try:
        await asyncio.to_thread(runs.request_stop, run)
    except (RunError, OSError) as reason:
        app.complain(str(reason))
    else:
        app.notify("stopping after this step; press p again when the run has ended")


def _request(run: Run) -> tuple[Request, float]:
    """The request for the proof, and the duration in seconds of one comparison. Raises an error if the proof is not
    possible.
    """
    from ....engine.job import this_machine
    from ....engine.proof import duration, request

    asked = request.of_run(run)
    request.refuse(asked, this_machine.read())
    return asked, duration.of_request(asked) * 2 * asked.repeats


def _question(request: Request, seconds: float, diagnosis: Mapping[str, Any], stop: str) -> str:
    """The question to the user: what the proof measures, and how long that takes at most."""
    count = sum(bool(remedy.get("changes")) for remedy in diagnosis.get("remedies") or ())
    return (
        f"Prove it by measuring? {counted(max(1, count), 'changes')} to try, one after the other, each in "
        f"{counted(request.repeats, 'pairs')} of trials of {request.measure_seconds:g} s (at least {LEAST_STEPS} "
        "steps), with and without it; what is not clearly faster is not kept.\n\n"
        f"Each change takes about {estimate(seconds)}, all of them about {estimate(count * seconds)}. "
        "Run nothing else on the machine meanwhile. You may leave the screen of the proof; "
        f"{stop} there stops the proof."
    )
