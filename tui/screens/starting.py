"""From a preset to a run: the last check against this machine, and the launch. Uses no screen; runs in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ...engine import checks, presets
from ...engine.process import launch, origin
from ...engine.proof import sharing
from ...engine.runs import RunError, code_files, title
from ...engine.runs.checkpoint_files import steps_in
from ...engine.runs.launch_options import options_of, python_of
from ...engine.telemetry import machine
from ..base.waiting import Start

if TYPE_CHECKING:
    from ...engine.checks import Finding
    from ...engine.presets import Preset
    from ...engine.process.launch import Warm
    from ...engine.runs import Run
    from ...engine.telemetry.machine import Machine
    from ..base.services import Host


class ConflictError(Exception):
    """The options conflict with each other or with this machine."""

    def __init__(self, here: Machine, findings: tuple[Finding, ...]) -> None:
        super().__init__(str(next(finding for finding in findings if finding.level == "error")))
        self.here, self.findings = here, findings


def planned(app: Host, preset: Preset) -> Start:
    """The start of a new run, with the engine that waits for it where there is one then."""

    def launch_it() -> tuple[Run, Any]:
        warm, app.warm = app.warm, None
        try:
            return start(preset, warm)
        except ConflictError:
            app.warm = warm
            raise

    return Start(origin.title(preset), lambda: sharing.in_the_way(preset.options, machine.read()), launch_it)


def code_changed(run: Run) -> str:
    """What of the code has changed since the checkpoint of a run was written; empty where nothing has."""
    return code_files.describe(run) if steps_in(run.file("checkpoints")) else ""


def resuming(run: Run, new_code: bool = False) -> Start:
    """The start of a run that goes on from its last checkpoint; with code that has changed since, if it may."""

    def in_the_way() -> str:
        if not steps_in(run.file("checkpoints")):  # said before anything is asked
            raise RunError(launch.without_checkpoint(run))
        preset = presets.resolve(str(run.file("preset.yaml")))
        return sharing.in_the_way(preset.options, machine.read(), run.path)

    def launch_it() -> tuple[Run, Any]:
        kind = options_of(run).get("strategy.kind")
        python = checks.of_resumed(python_of(run), str(run.file("preset.yaml")))
        found = [*checks.by_command(kind), *checks.of_kind(kind, machine.read()), *python]
        if errors := [finding for finding in found if finding.level == "error"]:
            raise RunError(f"{run.id} cannot be resumed: {errors[0]}")
        return run, launch.resume(run, new_code)

    return Start(title(run), in_the_way, launch_it)


def start(preset: Preset, warm: Warm | None) -> tuple[Run, Any]:
    """The run and its engine's process; raises ConflictError, or OSError and RunError where it cannot be launched."""
    here = machine.read()
    found = tuple(checks.on_screen(preset, here))
    if any(finding.level == "error" for finding in found):
        raise ConflictError(here, found)
    return warm.start(preset) if warm is not None else launch.start(preset)
