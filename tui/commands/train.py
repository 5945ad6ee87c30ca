"""Runs a training without a screen: a progress bar on a terminal, plain lines elsewhere, JSON lines with --json.

The command only follows the run folder. Ctrl-C asks the run to stop and shows its summary; a second one ends it at
once. Losing the terminal (SIGHUP) ends the command and not the run.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from queue import SimpleQueue
from typing import Any, Protocol

from ...engine import checks
from ...engine import presets as preset_files
from ...engine import runs as run_folders
from ...engine.checks import Finding
from ...engine.files.values import to_json
from ...engine.presets import Preset
from ...engine.process import launch
from ...engine.runs import Follower, Run, RunError
from ...engine.runs.events import Event, fields_of
from ...engine.telemetry import job, machine
from ..base.errors import DONE, UNHEARD, Refused, complain, discard_output, exit_code
from ..printing.console import console

POLL_SECONDS = 0.1


class View(Protocol):
    """Shows the events of one run as they come."""

    def show(self, event: Event) -> None: ...

    def stopping(self) -> None: ...

    def close(self) -> None: ...


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
    presses = Presses()  # from here on Ctrl-C is for the run
    run, process = launch.start(preset)
    if detach:
        _say(findings)
        if remark := job.when_detached(os.environ):
            complain(f"{remark.level}: {remark}")
        print(run.id)
        return DONE
    return _follow(run, Follower(run), process, as_json, findings, presses)


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
    follower, presses = Follower(run, from_now=True), Presses()
    process = launch.resume(run)
    if detach:
        _say(findings)
        if remark := job.when_detached(os.environ):
            complain(f"{remark.level}: {remark}")
        print(run.id)
        return DONE
    return _follow(run, follower, process, as_json, findings, presses)


def _say(findings: Sequence[Finding]) -> None:
    for finding in findings:
        complain(f"{finding.level}: {finding}")


def _follow(
    run: Run,
    follower: Follower,
    process: subprocess.Popen[bytes],
    as_json: bool,
    findings: Sequence[Finding],
    presses: Presses,
) -> int:
    presses.ask(lambda: _ask_to_stop(run))
    try:
        _show(run, follower, as_json, findings, presses)
    except OSError as fault:
        return _unheard(run, fault)
    process.wait()
    return exit_code((run.result or {}).get("outcome"))


def _show(run: Run, follower: Follower, as_json: bool, findings: Sequence[Finding], presses: Presses) -> None:
    """Until the run has ended; raises OSError where standard output cannot be written."""
    view = _view(run, as_json, findings)
    said = 0
    try:
        while not follower.ended:
            for event in follower.poll():
                view.show(event)
            if presses.count > said:
                said += 1
                view.stopping()
            if not follower.ended:
                time.sleep(POLL_SECONDS)
    finally:
        view.close()


def _unheard(run: Run, fault: OSError) -> int:
    """Nobody reads any more, or the disk behind standard output is full: the viewer goes, the run does not."""
    why = "nobody reads it" if isinstance(fault, BrokenPipeError) else fault.strerror or fault
    running = f"{run.id} is still running; show it with: gputui watch {run.id}"
    has_ended = f"{run.id} has ended; everything is in {run.path}"
    complain(f"standard output cannot be written ({why})\n{running if run.state in run_folders.GOES_ON else has_ended}")
    discard_output()
    return UNHEARD


def _ask_to_stop(run: Run) -> None:
    """Also in the moment before the engine has told its process."""
    while True:
        try:
            run_folders.request_stop(run)
            return
        except RunError:
            if run.state != "starting":
                return
            time.sleep(POLL_SECONDS)


class Presses:
    """Counts Ctrl-C (SIGINT) and SIGTERM instead of dying of them; passes each on while the main thread is blocked."""

    def __init__(self) -> None:
        self.count = 0
        self._waiting: SimpleQueue[None] = SimpleQueue()  # whose `put` a signal handler may call
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._pressed)

    def ask(self, act: Callable[[], None]) -> None:
        """From here on `act` is called for each, those that have come already too, in a thread of its own."""
        threading.Thread(target=self._pass_on, args=(act,), name="presses", daemon=True).start()

    def _pass_on(self, act: Callable[[], None]) -> None:
        while True:
            self._waiting.get()
            act()

    def _pressed(self, number: int, frame: Any) -> None:
        self.count += 1
        self._waiting.put(None)


def _view(run: Run, as_json: bool, findings: Sequence[Finding]) -> View:
    if as_json:
        _say(findings)
        return JsonView()
    from ..printing.training import BarView, LineView  # rich's progress bars, which --json does not need

    kind = BarView if sys.stdout.isatty() and os.environ.get("TERM") != "dumb" else LineView
    view = kind(run, console())
    view.findings(findings)
    return view


class JsonView:
    """The merged events on stdout, and nothing else there."""

    def show(self, event: Event) -> None:
        print(to_json(fields_of(event), short=True), flush=True)

    def stopping(self) -> None:
        complain("stopping after this step; press Ctrl-C again to end it at once")

    def close(self) -> None:
        sys.stdout.flush()
