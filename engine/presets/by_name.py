"""Finds the file of a preset by its name or path, or of a run by its id, and suggests another if there is none."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from ..files import located_yaml
from ..files.located_yaml import YamlFault, shorten
from ..files.places import PRESET_SUFFIXES, named_presets, runs_folder, user_presets_folder
from ..files.places import SHIPPED_PRESETS as SHIPPED
from ..options.catalogue import did_you_mean, nearest
from .preset import TOP_LEVEL, PresetError, Problem

RUN = "run:"  # before the id of a run, for the options of that run
STAMP = re.compile(r"^\d{8}-\d{6}-")  # of the id of a run, before the name of its preset


def in_current_folder() -> list[Path]:
    """Return the preset files in the current folder, without other YAML files and without presets that have a name."""
    named = {path.resolve() for path in named_presets().values()}
    with contextlib.suppress(OSError):
        paths = [Path(name).absolute() for name in sorted(os.listdir()) if name.endswith(PRESET_SUFFIXES)]
        return [path for path in paths if path.resolve() not in named and _looks_like_preset(path)]
    return []


def twin(name: str) -> str:
    """Return a message if `name` is the name of a preset and the current folder has another preset file of this name;
    else an empty text.
    """
    named = named_presets().get(name)
    for suffix in PRESET_SUFFIXES if named else ():
        here = Path(f"{name}{suffix}").absolute()
        if named and here.resolve() != named.resolve() and here.is_file() and _looks_like_preset(here):
            whose = "the shipped preset" if named.parent == SHIPPED else str(named)
            return f"{name} is {whose}; the file in this folder is another preset: give ./{here.name} for it"
    return ""


def name_of(path: Path) -> str:
    """Return the name of a preset and of its runs: the name of its file, or of its folder if the file is `preset.yaml`,
    as `gputui init` writes it.
    """
    folder = path.absolute().parent
    if path.stem == "preset" and folder.parent == runs_folder().absolute():
        return STAMP.sub("", folder.name)  # the name of its preset, so the next run has it, too
    return folder.name or path.stem if path.stem == "preset" and folder != user_presets_folder() else path.stem


def _looks_like_preset(path: Path) -> bool:
    try:
        return not set(TOP_LEVEL).isdisjoint(located_yaml.read(path))
    except (YamlFault, OSError):
        return False


def find(name_or_path: str, beside: Path | None = None) -> Path:
    """Return the file of a preset by its name or path, or the preset file of a run for `run:ID`. Raises PresetError.

    A relative path is resolved from `beside`, by default from the current folder.
    """
    if name_or_path.startswith(RUN) and beside is None:
        return _of_run(name_or_path.removeprefix(RUN))
    if python := of_python(name_or_path):
        raise PresetError([Problem(name_or_path, None, "", python)])
    as_path = Path(os.path.expanduser(name_or_path))
    looks_like_path = as_path.suffix in PRESET_SUFFIXES or os.sep in name_or_path
    if looks_like_path:
        path = beside / as_path if beside and not as_path.is_absolute() else as_path
        if os.path.isfile(path):
            return path
        what = "is a folder, not a preset file" if os.path.isdir(path) else f"no such file{_hint(path, beside)}"
        raise PresetError([Problem(str(path), None, "", what)])
    named = named_presets()
    if name_or_path in named:
        return named[name_or_path]
    for suffix in PRESET_SUFFIXES:
        if os.path.isfile(f"{name_or_path}{suffix}"):
            what = f"no preset of this name, but there is a file: gputui --preset {name_or_path}{suffix}"
            raise PresetError([Problem(shorten(name_or_path), None, "", what)])
    message = f"no preset of this name{did_you_mean(name_or_path, named)}"
    raise PresetError([Problem(shorten(name_or_path), None, "", f"{message} (known: {', '.join(named)})")])


def _of_run(text: str) -> Path:
    """Return the preset file of a run; `text` is its id, or a part that no other id contains. Raises PresetError."""
    folders = runs_folder()
    with contextlib.suppress(OSError):
        names = [name for name in sorted(os.listdir(folders)) if text and text in name and not name.startswith(".")]
        if len(names) == 1 or text in names:
            return folders / (text if text in names else names[0]) / "preset.yaml"
        if names:
            what = f"{len(names)} runs have that in their ids ({', '.join(names[:3])} ...); give more of the id"
            raise PresetError([Problem(shorten(f"{RUN}{text}"), None, "", what)])
    raise PresetError([Problem(shorten(f"{RUN}{text}"), None, "", "there is no such run; gputui runs lists them")])


def of_python(word: str) -> str:
    """Return advice if a file of Python code is given as a preset; empty for other words."""
    if not (word.endswith(".py") and os.path.isfile(word)):
        return ""
    line = f'workload: {{entry: "{os.path.basename(word)}:build"}}'
    return f"Python code: write {line} into a preset.yaml beside it; gputui guide says what build returns"


def _hint(path: Path, beside: Path | None) -> str:
    """Return a suggestion for a path that does not exist: the name of a preset, or a file in the same folder."""
    named = named_presets()
    near = path.stem if path.stem in named else nearest(path.stem, named)
    try:
        file = nearest(path.name, [name for name in os.listdir(path.parent) if name.endswith(PRESET_SUFFIXES)])
    except (OSError, ValueError):
        file = None
    if file is not None and near != path.stem:
        return f", did you mean {path.with_name(file)}?"
    if near is None:
        return "; gputui presets lists the presets that have a name"
    whose = "ships with gputui" if named[near].parent == SHIPPED else "is among your own"
    give = "extends:" if beside else "gputui --preset"
    return f"; the preset {near} {whose} and is given by name: {give} {near}"
