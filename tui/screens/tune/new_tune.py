"""Starts a search for the fastest settings of what the form holds. Uses no screen; runs in a thread.

Deferred imports: the machine and proofs are needed only when a search is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

    from ....engine.presets import Preset
    from ....engine.proof.request import Request
    from ....engine.telemetry.machine import Machine
    from ....engine.trials.search_record import Limits
    from ....engine.tune.time_plan import TimePlan


def fast_policies(preset: Preset, here: Machine | None) -> list[str]:
    """The mixed precisions that the devices of the training are made for; `here` is the machine, if it is known."""
    from ....engine.telemetry import chips, machine
    from ....engine.telemetry.training_gpus import training_gpus

    gpus = training_gpus(preset.options, here or machine.read())
    slowest = min((gpu.compute_capability or (0, 0) for gpu in gpus), default=None)
    return chips.fast_policies(slowest, chips.cpu_multiplies_bfloat16())


def asked(preset: Preset, path: Path | None, limits: Limits) -> Request:
    """The search; raises the reason where it is not possible."""
    from ....engine.proof import request
    from ....engine.telemetry import machine
    from ....engine.tune import tune_request

    wanted = tune_request.of_opened(preset, path, limits)
    request.refuse(wanted, machine.read())
    return wanted


def plan() -> TimePlan:
    """How the minutes of a search are shared out on this machine; it reads the latest runs."""
    from ....engine.trials.search_record import Limits
    from ....engine.tune import tune_request

    return tune_request.plan_of(Limits())


def buys(plan: TimePlan, limits: Limits) -> str:
    """What the minutes of these limits buy, with a length that works."""
    return plan.with_limits(limits).in_words()
