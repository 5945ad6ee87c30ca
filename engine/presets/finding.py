"""Finds the file of a preset by its name or path, and says what may have been meant where there is none."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from ..files import located_yaml
from ..files.located_yaml import YamlFault, shorten
from ..files.places import SHIPPED_PRESETS as SHIPPED
from ..files.places import user_presets_folder
from ..files.preset_names import SUFFIXES, available
from ..options.catalogue import did_you_mean, nearest
from .preset import TOP_LEVEL, PresetError, Problem


def in_current_folder() -> list[Path]:
    """The preset files in the current folder, without other YAML files."""
    known = {path.resolve() for path in available().values()}
    with contextlib.suppress(OSError):
        found = [Path(name).absolute() for name in sorted(os.listdir()) if name.endswith(SUFFIXES)]
        return [path for path in found if path.resolve() not in known and _looks_like_preset(path)]
    return []


def name_of(path: Path) -> str:
    """What a preset and its runs are called: as its file is, or as its folder where that says nothing: `preset.yaml`,
    as `gputui init` writes it.
    """
    folder = path.absolute().parent
    return folder.name or path.stem if path.stem == "preset" and folder != user_presets_folder() else path.stem


def _looks_like_preset(path: Path) -> bool:
    try:
        return not set(TOP_LEVEL).isdisjoint(located_yaml.read(path))
    except (YamlFault, OSError):
        return False


def find(name_or_path: str, beside: Path | None = None) -> Path:
    """The file that a preset's name or path refers to; raises PresetError."""
    if python := of_python(name_or_path):
        raise PresetError([Problem(name_or_path, None, "", python)])
    as_path = Path(os.path.expanduser(name_or_path))
    looks_like_path = as_path.suffix in SUFFIXES or os.sep in name_or_path
    if looks_like_path:
        path = beside / as_path if beside and not as_path.is_absolute() else as_path
        if os.path.isfile(path):
            return path
        what = "is a folder, not a preset file" if os.path.isdir(path) else f"no such file{_hint(path, beside)}"
        raise PresetError([Problem(str(path), None, "", what)])
    named = available()
    if name_or_path in named:
        return named[name_or_path]
    for suffix in SUFFIXES:
        if os.path.isfile(f"{name_or_path}{suffix}"):
            what = f"no preset of this name, but there is a file: gputui --preset {name_or_path}{suffix}"
            raise PresetError([Problem(shorten(name_or_path), None, "", what)])
    message = f"no preset of this name{did_you_mean(name_or_path, named)}"
    raise PresetError([Problem(shorten(name_or_path), None, "", f"{message} (known: {', '.join(named)})")])


def of_python(word: str) -> str:
    """What to do with a file of Python code that was given as a preset; nothing where it is none."""
    if not (word.endswith(".py") and os.path.isfile(word)):
        return ""
    line = f'workload: {{entry: "{os.path.basename(word)}:build"}}'
    return f"Python code: write {line} into a preset.yaml beside it; gputui guide says what build returns"


def _hint(path: Path, beside: Path | None) -> str:
    """What may have been meant by a path that does not exist: a preset by name, or a file beside it."""
    named = available()
    near = path.stem if path.stem in named else nearest(path.stem, named)
    try:
        file = nearest(path.name, [name for name in os.listdir(path.parent) if name.endswith(SUFFIXES)])
    except (OSError, ValueError):
        file = None
    if file is not None and near != path.stem:
        return f", did you mean {path.with_name(file)}?"
    if near is None:
        return "; gputui presets lists the presets that have a name"
    whose = "ships with gputui" if named[near].parent == SHIPPED else "is among your own"
    give = "extends:" if beside else "gputui --preset"
    return f"; the preset {near} {whose} and is given by name: {give} {near}"
