"""From a preset to a run: the last check against this machine, and the launch. Uses no screen; runs in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...engine import checks
from ...engine.process import launch
from ...engine.telemetry import machine

if TYPE_CHECKING:
    from ...engine.checks import Finding
    from ...engine.presets import Preset
    from ...engine.process.launch import Warm
    from ...engine.runs import Run
    from ...engine.telemetry.machine import Machine


class ConflictError(Exception):
    """The options conflict with each other or with this machine."""

    def __init__(self, here: Machine, findings: tuple[Finding, ...]) -> None:
        super().__init__("conflicts")
        self.here, self.findings = here, findings


def start(preset: Preset, warm: Warm | None) -> tuple[Run, Any]:
    """The run and its engine's process; raises ConflictError, or OSError and RunError where it cannot be launched."""
    here = machine.read()
    found = tuple(checks.of_preset(preset, here))
    if any(finding.level == "error" for finding in found):
        raise ConflictError(here, found)
    return warm.start(preset) if warm is not None else launch.start(preset)
