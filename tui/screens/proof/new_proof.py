"""Starts a proof of a diagnosis, and measurements of scaling: the question to the user, and the start.

The disk is accessed in threads.

Deferred imports: proofs and the machine are needed only when one is started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from ....engine import runs
from ....engine.plan import LEAST_STEPS
from ....engine.presets import PresetError
from ....engine.runs import Run, RunError
from ....engine.trials import KEEPS
from ....engine.units import counted, estimate
from ..dialogs import Ask
from ..runs.actions import ended
from ..starting import launch_and_open, new_measurement

if TYPE_CHECKING:
    from pathlib import Path

    from ....engine.presets import Preset
    from ....engine.proof.folder import Proof
    from ....engine.proof.request import Request
    from ...base.base_app import BaseApp

STOP_FIRST = "The run has not ended and would disturb the measurements: it has to end first.\nStop it after this step?"
WHICH = (
    "Measure how the speed grows with the number of replicas?\n\n"
    "Weak scaling keeps the batch of each replica, so that the global batch grows with them; strong scaling keeps the "
    "global batch."
)
WEAK, STRONG, CANCEL, PROVE, MEASURE = "Weak", "Strong", "Cancel", "Prove", "Measure"


# ---- a proof of a diagnosis -----------------------------------------------------------------------


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
        await _begin(app, request, question, PROVE, f"the proof of {request.preset_name}")
    except (PresetError, RunError, OSError, ValueError) as reason:
        app.complain(f"cannot be proved: {reason}")


async def _begin(app: BaseApp, request: Request, question: str, yes: str, name: str) -> None:
    """Ask the user, start the measurement if the answer is `yes`, and open it."""
    if await app.push_screen_wait(Ask(question, (yes, CANCEL))) == yes:
        await launch_and_open(app, new_measurement(app, name, request))


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


# ---- scaling ---------------------------------------------------------------------------------------


async def measure_scaling(app: BaseApp, preset: Preset, source: Path | None) -> None:
    """Ask which kind of scaling of the preset to measure (weak or strong), then start the measurement."""
    answer = await app.push_screen_wait(Ask(WHICH, (WEAK, STRONG, CANCEL)))
    if answer in (WEAK, STRONG):
        await _start_scaling(app, lambda: _of_opened(preset, source, KEEPS[answer == STRONG]))


async def measure_again(app: BaseApp, proof: Proof) -> None:
    """Start a new measurement with the same request as the proof."""
    await _start_scaling(app, lambda: _checked(proof.request))


async def go_on_with_scaling(app: BaseApp, proof: Proof) -> None:
    """Resume a measurement of scaling that has ended before its time."""
    from ....engine.scaling import scaling_request
    from .actions import resume

    await resume(app, proof, "measurement", lambda: scaling_request.resume(proof, anyway=True))


async def _start_scaling(app: BaseApp, asked: Callable[[], tuple[Request, str]]) -> None:
    try:
        request, question = await asyncio.to_thread(asked)
        await _begin(app, request, question, MEASURE, f"the scaling of {request.preset_name}")
    except (PresetError, RunError, OSError, ValueError) as reason:
        app.complain(f"cannot be measured: {reason}")


def _of_opened(preset: Preset, source: Path | None, keep: str) -> tuple[Request, str]:
    from ....engine.scaling import scaling_request

    return _checked(scaling_request.of_opened(preset, source, keep))


def _checked(asked: Request) -> tuple[Request, str]:
    """The request and the question about it. Raises an error if the measurement is not possible on this machine."""
    from ....engine.job import this_machine
    from ....engine.proof import request

    request.refuse(asked, this_machine.read())
    return asked, _scaling_question(asked)


def _scaling_question(asked: Request) -> str:
    """The question to the user: what is measured, and how long that takes."""
    from ....engine.proof import duration as estimates

    settings = asked.scaling.settings if asked.scaling else ()
    counts = ", ".join(str(setting.replicas) for setting in settings)
    needed = estimates.sure_trials(asked) * estimates.of_request(asked)
    return (
        f"{asked.preset_name} is trained with {counts} replicas in turn, in {asked.repeats} rounds of trials of "
        f"{asked.measure_seconds:g} s. This takes about {estimate(needed)}.\n\n"
        "Run nothing else on the machine meanwhile. You may leave the screen; x stops the measurement."
    )
