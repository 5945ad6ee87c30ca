"""The commands that print presets and runs: runs, stop, presets list, show and check."""

from __future__ import annotations

import json
import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.table import Table
from rich.text import Text

from ...engine import checks, figures
from ...engine import presets as preset_files
from ...engine import runs as run_folders
from ...engine.files.values import to_json
from ...engine.presets import PresetError, entry
from ...engine.runs import new_file
from ...engine.telemetry import machine
from ..base.errors import DONE, WRONG, Refused, clean, complain
from ..printing.diagnosis import show_table
from .train import place


def show_runs(as_json: bool) -> None:
    """A table of all runs, or one JSON object a line."""
    survey = run_folders.survey()
    found = survey.runs
    _tell_damage(survey)
    if as_json:
        for run in found:
            now, result = run.life, run.result or {}
            told = {"id": run.id, "state": run.state_of(now), "host": now.host or None, "path": str(run.path)}
            print(to_json(told | {"result": result}))
        return
    if not found:
        print("No runs so far; gputui --preset quickstart makes the first.")
        return
    table = Table(box=None, pad_edge=False)
    table.add_column("run", overflow="fold")
    table.add_column("state", no_wrap=True)
    columns = figures.shown("listing")
    for figure in columns:
        table.add_column(figure.head, justify="right", no_wrap=True)
    for run in found:
        now, result = run.life, run.result or {}
        table.add_row(
            Text(clean(run.id)),
            Text(clean(f"{run.state_of(now)} on {now.host}" if now.host else run.state_of(now))),
            *(figure.bare(figures.at(result, figure.key)) for figure in columns),
        )
    show_table(table)


def _tell_damage(survey: run_folders.Survey) -> None:
    """One line for the folders that cannot be looked into, one for the files that are damaged."""
    if closed := str(survey):
        complain(closed)
    damaged = [f"{run.id}: {'; '.join(damage)}" for run in survey.runs if (damage := run.damage)]
    if damaged:
        complain(damaged[0] + (f" (and {len(damaged) - 1} more such runs)" if len(damaged) > 1 else ""))


def stop_run(name: str) -> None:
    """Ask a run to stop; returns when it is asked, not when it has ended."""
    run = run_folders.find(name)
    run_folders.request_stop(run)
    deadline = time.monotonic() + 2
    while run.state in ("running", "stopping") and time.monotonic() < deadline:
        time.sleep(0.1)
    ended = run.state not in ("running", "stopping")
    print(f"{run.id} {run.state if ended else 'is stopping; repeat the command to end it at once'}")


def list_presets() -> None:
    """Name, whose, and description of every preset that can be called by name."""
    table = Table(box=None, pad_edge=False, show_header=False)
    for name, path in preset_files.available().items():
        own = "" if path.parent == preset_files.SHIPPED else "yours"
        try:
            text = preset_files.resolve(str(path)).description
        except PresetError as fault:
            text = f"cannot be used: {fault.problems[0]}"
        table.add_row(Text(clean(name)), own, Text(" ".join(clean(text).split())))
    show_table(table)


def show_preset(name: str) -> None:
    print(clean(preset_files.resolve(name).to_yaml()), end="")


def show_schema() -> None:
    from ...engine.options import schema  # only this command needs it

    print(json.dumps(schema.preset_schema(), indent=2))


def export_preset(name: str, settings: Sequence[str], output: str | None) -> None:
    """The preset as plain TensorFlow code, on stdout or in a file."""
    from ...engine.export import script as script_part  # only this command needs it

    preset = preset_files.resolve(name, settings)
    workload = preset.options.workload
    if workload.entry is not None:
        try:
            entry.look(workload.entry, Path(workload.folder or ".").expanduser().absolute())
        except entry.EntryFault as fault:
            raise Refused(f"workload.entry: {fault}; {fault.change}") from None
    script = script_part.to_script(preset)
    if output is None:
        sys.stdout.write(script)
    else:
        new_file.write(Path(output), script)
        print(f"{clean(output)} written; python {shlex.quote(clean(output))} runs it")


def check_presets(files: Sequence[str]) -> int:
    """Every problem of every file; WRONG if there is an error in any."""
    here = machine.read()
    code = DONE
    for file in files:
        try:
            preset = preset_files.resolve(file)
        except PresetError as fault:
            complain(fault)
            code = WRONG
            continue
        findings = checks.of_preset(preset, here)
        for finding in findings:
            complain(f"{place(preset, finding, file)}: {finding.level}: {finding}")
        if any(finding.level == "error" for finding in findings):
            code = WRONG
        else:
            print(f"{clean(file)}: good" + (f", {len(findings)} remark(s)" if findings else ""))
    return code
