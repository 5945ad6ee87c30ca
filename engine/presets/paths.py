"""Makes the paths in options absolute, or relative to a folder, and finds the file of a preset by its name. A path in a
preset's file is relative to its folder, one that is typed (--set, the form) to the current folder.
"""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import entry as entries
from ..files import located_yaml, run_numbers
from ..files.located_yaml import YamlFault, shorten
from ..files.places import PRESET_SUFFIXES, named_presets, runs_folder, user_presets_folder
from ..files.places import SHIPPED_PRESETS as SHIPPED
from ..interpreter import interpreter
from ..options.catalogue import did_you_mean, nearest
from ..options.workload import ENTRY, PATH_SOURCES
from .preset import TOP_LEVEL, PresetError, Problem

if TYPE_CHECKING:
    from ..options import Options

Parts = tuple[str, str, str]  # the text before the path, the path, the text after it


DATA, ENTRY_KEY, FOLDER, CACHE = "workload.data", "workload.entry", "workload.folder", "input.cache"
COMMAND = "workload.command"
PYTHON = "run.python"
PATTERN = "tfrecord:"
KEYS = (DATA, ENTRY_KEY, COMMAND, FOLDER, CACHE, PYTHON)


def absolute(options: Options, bases: Mapping[str, str]) -> Options:
    """`bases` has by key the folder from which the option's path is resolved, by default the current one. An entry is
    resolved from workload.folder, which becomes the base of entry or command if it is not set.
    """
    workload, python = options.workload, options.run.python
    changes: dict[str, Any] = {key: _whole(key, options.value(key), bases.get(key, "")) for key in (DATA, CACHE)}
    if workload.folder is not None:
        changes[FOLDER] = _whole(FOLDER, workload.folder, bases.get(FOLDER, ""))
    else:
        runs_there = {ENTRY_KEY: workload.entry is not None, COMMAND: bool(workload.command)}
        for base in [bases[key] for key, is_set in runs_there.items() if is_set and key in bases]:
            changes[FOLDER] = os.path.abspath(base)
    if workload.entry is not None:
        changes[ENTRY_KEY] = _whole(ENTRY_KEY, workload.entry, changes.get(FOLDER, ""))
    if python is not None:
        changes[PYTHON] = interpreter.file_of(_whole(PYTHON, python, bases.get(PYTHON, "")))
    return options.with_values(changes)


def relative(key: str, options: Options, folder: str = "") -> Any:
    """The value, with a path within `folder` (by default the current one) made relative; an entry to its folder."""
    value = options.value(key)
    parts = _parts(key, value)
    if parts is None:
        return value
    before, place, behind = parts
    base = (key == ENTRY_KEY and options.workload.folder) or folder
    return before + _inside(place, _base(before, base)) + behind


def near(place: str) -> str:
    """Relative to the current folder if it is within that."""
    return _inside(place, os.path.abspath("")) if os.path.isabs(place) else place


def typed_here(key: str, options: Options, file: str) -> str | None:
    """The value if its path does not exist from the preset's `file`, but does from the current folder; else None."""
    value = options.value(key)
    home = (key == ENTRY_KEY and options.workload.folder) or os.path.dirname(os.path.abspath(file))
    parts = _parts(key, value)
    if parts is None:
        return value if key == ENTRY_KEY and _module_lies(value, "") and not _module_lies(value, home) else None
    before, path, behind = parts
    text = os.path.relpath(path, home)
    if _there(before, path) or not _there(before, text):
        return None
    return before + text + behind


def _parts(key: str, value: Any) -> Parts | None:
    if key not in KEYS or not isinstance(value, str) or (key == CACHE and value in ("off", "memory")):
        return None
    if key == DATA:
        kind, _, place = value.partition(":")
        return (f"{kind}:", place, "") if kind in PATH_SOURCES and place else None
    if key == ENTRY_KEY:
        match = ENTRY.fullmatch(value)
        if match is None or not match["place"].endswith(".py"):
            return None
        return "", match["place"], f":{match['function']}" if match["function"] else ""
    return "", value, ""


def _base(before: str, folder: str) -> str:
    whole = os.path.abspath(folder)
    return glob.escape(whole) if before == PATTERN else whole


def _whole(key: str, value: str, base: str) -> str:
    parts = _parts(key, value)
    if parts is None:
        return value
    before, place, behind = parts
    place = os.path.expanduser(place)
    if not os.path.isabs(place):
        place = os.path.join(_base(before, base), place)
    plain = os.path.normpath(place)
    # If a folder is a link, ".." cannot be removed from the text of a path.
    if ".." in place.split(os.sep) and os.path.realpath(plain) != os.path.realpath(place):
        plain = place
    return before + plain + behind


def _inside(place: str, folder: str) -> str:
    if place == folder:
        return "."
    prefix = folder.rstrip(os.sep) + os.sep
    return place[len(prefix) :] if place.startswith(prefix) else place


def _there(before: str, place: str) -> bool:
    return bool(glob.glob(place)) if before == PATTERN else os.path.exists(place)


def _module_lies(text: str, folder: str) -> bool:
    try:
        entries.source_file(entries.parse(text), Path(os.path.abspath(folder)))
    except entries.EntryFault:
        return False
    return True


# ---- presets by name ------------------------------------------------------------------------------


SCRIPT = ".py"  # after the name of a script, which is a preset without a file
RUN = "run:"  # before the id of a run, for the options of that run
OWN_FIT = "is a fit of your own script, which gputui cannot start; `gputui init` shows how to make a preset of it"
STAMP = re.compile(r"^\d{8}-\d{6}-")  # of the id of a run, before the name of its preset


def in_current_folder() -> list[Path]:
    """Preset files that are not found by name; none if the folder cannot be read."""
    named = {path.resolve() for path in named_presets().values()}
    with contextlib.suppress(OSError):
        paths = [Path(name).absolute() for name in sorted(os.listdir()) if name.endswith(PRESET_SUFFIXES)]
        return [path for path in paths if path.resolve() not in named and _looks_like_preset(path)]
    return []


def twin(name: str) -> str:
    """A message if a name means a preset and the current folder has another preset file of that name."""
    named = named_presets().get(name)
    for suffix in PRESET_SUFFIXES if named else ():
        here = Path(f"{name}{suffix}").absolute()
        if named and here.resolve() != named.resolve() and here.is_file() and _looks_like_preset(here):
            whose = "the shipped preset" if named.parent == SHIPPED else str(named)
            return f"{name} is {whose}; the file in this folder is another preset: give ./{here.name} for it"
    return ""


def name_of(path: Path) -> str:
    """The file's name; of `preset.yaml`, as `gputui init` writes it, its folder's; of a run, that of its preset."""
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
    """Return the file of a preset by name or path, a script, or that of the run for `run:ID`. A relative path is
    resolved from `beside`, with which `run:ID` is not accepted, or from the current folder. Raises PresetError.
    """
    place, as_path = shorten(name_or_path), Path(os.path.expanduser(name_or_path))
    if name_or_path.startswith(RUN) and beside is None:
        path = _of_run(name_or_path.removeprefix(RUN))
        if names_workload(path):
            return path
        what = OWN_FIT
    elif name_or_path.endswith(SCRIPT) and beside is None and os.path.isfile(as_path):
        return as_path
    elif as_path.suffix in PRESET_SUFFIXES or os.sep in name_or_path:
        path = beside / as_path if beside and not as_path.is_absolute() else as_path
        if os.path.isfile(path):
            return path
        hint = "is a folder, not a preset file" if os.path.isdir(path) else f"no such file{_hint(path, beside)}"
        place, what = str(path), hint
    else:
        named, names = named_presets(), [f"{name_or_path}{suffix}" for suffix in PRESET_SUFFIXES]
        if name_or_path in named:
            return named[name_or_path]
        if file := next(filter(os.path.isfile, names), ""):
            what = f"no preset of this name, but there is a file: gputui --preset {file}"
        else:
            meant = did_you_mean(name_or_path, named)
            what = f"no preset of this name{meant} (known: {', '.join(named)})"
    raise PresetError([Problem(place, None, "", what)])


def _of_run(text: str) -> Path:
    """`text` is the short name, the id, or a part of only one id."""
    folders, what = runs_folder(), "there is no such run; gputui runs lists them"
    if (folder := run_numbers.named(text, folders)) is not None:
        return folder / "preset.yaml"
    if deleted := run_numbers.first_name_of(text, folders):  # another run's id may contain `text`
        what = f"the run {deleted} has been deleted; gputui runs lists the others"
    else:
        with contextlib.suppress(OSError):
            names = [name for name in sorted(os.listdir(folders)) if text and text in name and not name.startswith(".")]
            if len(names) == 1 or text in names:
                return folders / (text if text in names else names[0]) / "preset.yaml"
            if names:
                what = f"{len(names)} runs have that in their ids ({', '.join(names[:3])} ...); give more of the id"
    raise PresetError([Problem(shorten(f"{RUN}{text}"), None, "", what)])


def names_workload(path: Path) -> bool:
    """False for the preset of a run of Monitor, which has no model and data to train."""
    try:
        return "workload" in located_yaml.read(path)
    except (YamlFault, OSError):
        return True


def _hint(path: Path, beside: Path | None) -> str:
    """The name of a preset or a file in the same folder that may be meant."""
    named, file = named_presets(), None
    near = path.stem if path.stem in named else nearest(path.stem, named)
    with contextlib.suppress(OSError, ValueError):
        file = nearest(path.name, [name for name in os.listdir(path.parent) if name.endswith(PRESET_SUFFIXES)])
    if file is not None and near != path.stem:
        return f", did you mean {path.with_name(file)}?"
    if near is None:
        return "; gputui presets lists the presets that have a name"
    whose = "ships with gputui" if named[near].parent == SHIPPED else "is among your own"
    give = "extends:" if beside else "gputui --preset"
    return f"; the preset {near} {whose} and is given by name: {give} {near}"
