"""Finds out which preset a run is started from, and what was changed of it.

A run that is started with the options of another run has that one's origin: what was changed adds up.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .. import presets
from ..files.places import runs_folder
from ..files.reading import read_object
from ..files.values import mapping, text
from ..options import OPTIONS
from ..presets import Preset, PresetError, paths
from ..runs import Run
from ..runs.titles import FILE, record, recorded, title_of

_PLAIN = tuple(info.key for info in OPTIONS if info.key != paths.FOLDER)  # the folder goes with its entry


def of(preset: Preset) -> str:
    """The record of the preset's origin; empty where it comes from no file."""
    if preset.file is None:
        return ""
    now = _values(preset)
    run = _run_of(preset.file)
    earlier = read_object(run.file(FILE)).value if run else {}
    before = _of_file(preset.file, now)
    before |= {key: mapping(change).get("from") for key, change in mapping(earlier.get("changes")).items()}
    changes = {key: (before[key], now[key]) for key in _PLAIN if key in before and before[key] != now[key]}
    name = title_of(run).preset if run else preset.name
    return record(name, text(earlier.get("file")) or str(preset.file), changes)


def title(preset: Preset) -> str:
    """What a run of the preset will be called."""
    return str(recorded(json.loads(of(preset) or "{}"), preset.name))


def _of_file(file: Path, otherwise: Mapping[str, Any]) -> dict[str, Any]:
    """The values of the preset itself; where it cannot be read alone, nothing of it counts as changed."""
    try:
        return _values(presets.resolve(str(file)))
    except PresetError:
        return dict(otherwise)


def _values(preset: Preset) -> dict[str, Any]:
    groups = asdict(preset.options)
    return {f"{group}.{name}": value for group, options in groups.items() for name, value in options.items()}


def _run_of(file: Path) -> Run | None:
    """The run whose record of options the file is."""
    folder = file.resolve().parent
    return Run(folder) if file.name == "preset.yaml" and folder.parent == runs_folder().resolve() else None
