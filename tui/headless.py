"""A run without a screen: a progress bar on a terminal, plain lines elsewhere, JSON lines for machines.

Separates the viewer from the run: this only follows the run folder. Ctrl-C asks the run to stop and shows its
summary; a second one ends it at once. Losing the terminal (SIGHUP) ends this viewer and not the run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from rich.console import Console

from ..engine import checks, launch, machine
from ..engine import presets as preset_files
from ..engine import runs as run_folders
from ..engine.checks import Finding
from ..engine.presets import Preset
from ..engine.runs import Follower, Run, RunError
from ..engine.values import to_json
from .errors import DONE, Refused, complain, exit_code

POLL_SECONDS = 0.1


class View(Protocol):
    """Shows the events of one run as they come."""

    def show(self, event: Mapping[str, Any]) -> None: ...

    def stopping(self) -> None: ...

    def close(self) -> None: ...


def console() -> Console:
    """Standard output; never guesses markup or emoji in text that is not ours."""
    return Console(markup=False, emoji=False, highlight=False)


def run_preset(
    name: str, settings: Sequence[str], *, as_json: bool = False, detach: bool = False, dry_run: bool = False
) -> int:
    """Resolve, check, launch and follow a preset; returns the exit code."""
    preset = preset_files.resolve(name, settings)
    findings = checks.of_preset(preset, machine.read())
    errors = [finding for finding in findings if finding.level == "error"]
    if errors:
        more = f"\nand {len(errors) - 1} more conflict(s)" if len(errors) > 1 else ""
        raise Refused(f"{place(preset, errors[0])}: {errors[0]}{more}")
    if dry_run:
        _say(findings)
        sys.stdout.write(launch.settle(preset, Path.cwd()).to_yaml())
        return DONE
    run, process = launch.start(preset)
    if detach:
        _say(findings)
        print(run.id)
        return DONE
    return _follow(run, Follower(run), process, as_json, findings)


def place(preset: Preset, finding: Finding, otherwise: str = "") -> str:
    """Where one of the options that conflict was set: file and line, or --set; else the preset as it was named."""
    set_at = [preset.origins[key] for key in finding.options if key in preset.origins]
    where, line = set_at[0] if set_at else (otherwise or preset.name, None)
    return f"{where}:{line}" if line is not None else where


def resume_run(name: str, *, as_json: bool = False, detach: bool = False) -> int:
    """Go on with a run from its last checkpoint and follow it; returns the exit code."""
    run = run_folders.find(name)
    findings = checks.of_job(machine.read())
    for finding in findings:
        if finding.level == "error":
            raise Refused(f"{run.id}: {finding}")
    follower = Follower(run, from_now=True)
    process = launch.resume(run)
    if detach:
        _say(findings)
        print(run.id)
        return DONE
    return _follow(run, follower, process, as_json, findings)


def _say(findings: Sequence[Finding]) -> None:
    for finding in findings:
        complain(f"{finding.level}: {finding}")


def _follow(
    run: Run, follower: Follower, process: subprocess.Popen[bytes], as_json: bool, findings: Sequence[Finding]
) -> int:
    view = _view(run, as_json, findings)
    presses = Presses()
    asked = 0
    try:
        while not follower.ended:
            for event in follower.poll():
                view.show(event)
            if presses.count > asked:
                asked += 1
                view.stopping()
                _ask_to_stop(run)
            if not follower.ended:
                time.sleep(POLL_SECONDS)
    finally:
        view.close()
    process.wait()
    return exit_code((run.result or {}).get("outcome"))


def _ask_to_stop(run: Run) -> None:
    """Also in the moment before the engine has told its process id."""
    for _ in range(50):
        try:
            run_folders.request_stop(run)
            return
        except RunError:
            if run.state != "starting":
                return
            time.sleep(POLL_SECONDS)


class Presses:
    """Counts Ctrl-C (SIGINT) and SIGTERM instead of dying of them."""

    def __init__(self) -> None:
        self.count = 0
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._pressed)

    def _pressed(self, number: int, frame: Any) -> None:
        self.count += 1


def _view(run: Run, as_json: bool, findings: Sequence[Finding]) -> View:
    if as_json:
        _say(findings)
        return JsonView()
    from .lines import BarView, LineView

    kind = BarView if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else LineView
    view = kind(run, console())
    view.findings(findings)
    return view


class JsonView:
    """The merged events on stdout, and nothing else there."""

    def show(self, event: Mapping[str, Any]) -> None:
        print(to_json(event, short=True), flush=True)

    def stopping(self) -> None:
        complain("stopping after this step; once more ends it at once")

    def close(self) -> None:
        sys.stdout.flush()
