"""Starts a search for the fastest settings of what the form holds. Uses no screen; runs in a thread.

Deferred imports: the machine and proofs are needed only when a search is started.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import subprocess
    from pathlib import Path

    from ...engine.presets import Preset
    from ...engine.proof.folder import Proof
    from ...engine.proof.request import Request
    from ...engine.proof.search import Limits
    from ...engine.telemetry.machine import Machine


def fast_policies(preset: Preset, here: Machine | None) -> list[str]:
    """The mixed precisions that the devices of the training are made for; `here` is the machine, if it is known."""
    from ...engine.telemetry import chips, machine
    from ...engine.telemetry.training_gpus import training_gpus

    gpus = training_gpus(preset.options, here or machine.read())
    slowest = min((gpu.compute_capability or (0, 0) for gpu in gpus), default=None)
    return chips.fast_policies(slowest, chips.cpu_multiplies_bfloat16())


def asked(preset: Preset, path: Path | None, limits: Limits) -> Request:
    """The search; raises the reason where it is not possible."""
    from ...engine.proof import request
    from ...engine.telemetry import machine
    from ...engine.tune import asking

    wanted = asking.of_opened(preset, path, limits)
    request.refuse(wanted, machine.read())
    return wanted


def in_the_way(wanted: Request) -> str:
    """What trains on the devices of the search, in words."""
    from ...engine.proof import sharing
    from ...engine.telemetry import machine

    here = machine.read()
    return sharing.beside(sharing.of_request(wanted, here), here)


def begin(wanted: Request) -> tuple[Proof, subprocess.Popen[bytes]]:
    from ...engine.proof import folder

    proof = folder.create(wanted)
    return proof, folder.start(proof)
