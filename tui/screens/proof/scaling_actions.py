"""Starts a measurement of scaling, of the preset in the form or of the settings of another one, and goes on with one.

The disk is accessed in threads.

Deferred imports: proofs and the machine are needed only if one is started.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from ....engine.presets import PresetError
from ....engine.runs import RunError
from ....engine.trials import KEEPS
from ....engine.units import estimate
from ..dialogs import Ask
from ..starting import ask_and_launch, launch_and_open, new_measurement, resumed_measurement

if TYPE_CHECKING:
    from pathlib import Path

    from ....engine.presets import Preset
    from ....engine.proof.folder import Proof
    from ....engine.proof.request import Request
    from ...base.base_app import BaseApp

WHICH = (
    "Measure how the speed grows with the number of replicas?\n\n"
    "Weak scaling keeps the batch of each replica, so that the global batch grows with them; strong scaling keeps the "
    "global batch."
)
WEAK, STRONG, CANCEL, MEASURE = "Weak", "Strong", "Cancel", "Measure"


async def measure(app: BaseApp, preset: Preset, source: Path | None) -> None:
    """Ask which kind of scaling of the preset to measure (weak or strong), then start the measurement."""
    answer = await app.push_screen_wait(Ask(WHICH, (WEAK, STRONG, CANCEL)))
    if answer in (WEAK, STRONG):
        await _start(app, lambda: _of_opened(preset, source, KEEPS[answer == STRONG]))


async def again(app: BaseApp, proof: Proof) -> None:
    """Start a new measurement with the same request as the proof."""
    await _start(app, lambda: _checked(proof.request))


async def go_on(app: BaseApp, proof: Proof) -> None:
    """Resume a measurement of scaling that has ended before its time."""
    from ....engine.scaling import scaling_request

    start = resumed_measurement(
        app, f"the measurement {proof.id}", proof, lambda: scaling_request.resume(proof, anyway=True)
    )
    try:
        made = await ask_and_launch(app, start)
    except (RunError, PresetError, OSError) as reason:
        app.complain(str(reason))
        return
    if made is not None:
        app.engines.append(made[1])
        app.notify("the measurement goes on")


async def _start(app: BaseApp, asked: Callable[[], tuple[Request, str]]) -> None:
    """Ask the user, start the measurement and open it; if this is not possible, show the reason. `wanted` is called in
    a thread.
    """
    try:
        request, question = await asyncio.to_thread(asked)
        if await app.push_screen_wait(Ask(question, (MEASURE, CANCEL))) == MEASURE:
            await launch_and_open(app, new_measurement(app, f"the scaling of {request.preset_name}", request))
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
    return asked, _question(asked)


def _question(asked: Request) -> str:
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
