"""Reads from a run's folder, without pydantic, its options and Python at the launch, and its `started` event."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

from ..entry import parse
from ..files import located_yaml
from ..files.reading import read_object, why, written_at
from ..files.values import harmless, harmless_in
from ..interpreter import interpreter
from ..options import Options, options_json
from ..options.workload import ENTRY
from .event_reading import HEAD_BYTES, events_of
from .events import Started
from .folders import all_runs
from .run import Run

_SEARCHED = 50  # newest runs in which an earlier run of the same code is searched


def options_of(run: Run) -> dict[str, Any]:
    """Return the options at the launch as one mapping by `group.name`; empty if the preset cannot be read."""
    return read_options(run)[0]


def trained_with(run: Run) -> dict[str, Any]:
    """Return the options that the trainer got, by `group.name`; empty if they cannot be read."""
    groups = read_object(run.file(options_json.FILE)).value
    dicts = {group: values for group, values in groups.items() if isinstance(values, dict)}
    return {f"{group}.{name}": value for group, values in dicts.items() for name, value in values.items()}


def python_of(run: Run) -> str:
    """Return the path of the interpreter with which the run was launched, even if GPUTUI_PYTHON names another now."""
    given = options_of(run).get("run.python")
    return interpreter.file_of(str(given), str(run.path)) if given else sys.executable


def read_options(run: Run) -> tuple[dict[str, Any], str]:
    """By `group.name`, with an empty text; or none, and the reason why they cannot be read."""
    try:
        preset = located_yaml.read(run.file("preset.yaml"))
    except located_yaml.YamlFault as fault:
        return {}, f"line {fault.line} of preset.yaml is damaged, so that its options are unknown: {fault.message}"
    except OSError as fault:
        return {}, f"preset.yaml cannot be read: {why(fault)}"
    groups = {name: located.value for name, located in preset.items() if isinstance(located.value, dict)}
    return {
        harmless(f"{group}.{name}"): harmless_in(located.value)
        for group, items in groups.items()
        for name, located in items.items()
    }, ""


def started(run: Run) -> Started | None:
    """Return the first `started` event of the run; None if there is none yet, or if the file cannot be read."""
    return next(iter(events_of(run.path, Started, most=HEAD_BYTES)), None)


def of_same_code(options: Options) -> Started | None:
    """Of the newest of 50 runs with the same workload.entry, None if its file has changed since."""
    code = _code(options.workload.entry, options.workload.folder)
    if code is None:
        return None
    for run in all_runs()[:_SEARCHED]:
        values = trained_with(run)
        if _code(values.get("workload.entry"), values.get("workload.folder")) == code and (event := started(run)):
            return event if written_at(Path(code[0])) <= event.t else None
    return None


def _code(entry: Any, folder: Any) -> tuple[str, str | None] | None:
    # The absolute path of the entry's file, and its function (None: a script); None if the entry is not valid.
    if not isinstance(entry, str) or not ENTRY.fullmatch(entry):
        return None
    called = parse(entry)
    file = os.path.expanduser(called.file) if called.file else f"{str(called.module).replace('.', '/')}.py"
    return os.path.abspath(os.path.join(os.path.expanduser(str(folder or ".")), file)), called.function
