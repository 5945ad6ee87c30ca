"""Resolves the paths in options, and writes them relative to a folder.

A path in a preset's file is relative to that file's folder; one that is typed (--set, the form) is relative to the
current folder. A resolved preset has only absolute paths, so that it means the same wherever it is read.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .. import entry as entries
from ..interpreter import interpreter
from ..options.workload import ENTRY, PATH_SOURCES

if TYPE_CHECKING:
    from ..options import Options

Parts = tuple[str, str, str]  # the text before the path, the path, the text after it


def _of_data(value: str) -> Parts | None:
    kind, _, place = value.partition(":")
    return (f"{kind}:", place, "") if kind in PATH_SOURCES and place else None


def _of_entry(value: str) -> Parts | None:
    match = ENTRY.fullmatch(value)
    return ("", match["place"], f":{match['function']}") if match and match["place"].endswith(".py") else None


def _of_cache(value: str) -> Parts | None:
    return None if value in ("off", "memory") else ("", value, "")


def _of_folder(value: str) -> Parts | None:
    return "", value, ""


DATA, ENTRY_KEY, FOLDER, CACHE = "workload.data", "workload.entry", "workload.folder", "input.cache"
PYTHON = "run.python"
PATTERN = "tfrecord:"
_PARTS: Mapping[str, Callable[[str], Parts | None]] = {
    DATA: _of_data, ENTRY_KEY: _of_entry, FOLDER: _of_folder, CACHE: _of_cache, PYTHON: _of_folder
}  # fmt: skip
KEYS = tuple(_PARTS)


def absolute(options: Options, bases: Mapping[str, str]) -> Options:
    """Return the options with absolute paths.

    `bases` has, by the key of the option, the folder from which its path is resolved; for other options it is the
    current folder. The file of an entry is resolved from workload.folder if that is given; if not, workload.folder is
    set to the base of the entry, if it has one.
    """
    workload = options.workload
    update: dict[str, Any] = {"data": _whole(DATA, workload.data, bases.get(DATA, ""))}
    if workload.folder is not None:
        update["folder"] = _whole(FOLDER, workload.folder, bases.get(FOLDER, ""))
    elif workload.entry is not None and ENTRY_KEY in bases:
        update["folder"] = os.path.abspath(bases[ENTRY_KEY])
    if workload.entry is not None:
        update["entry"] = _whole(ENTRY_KEY, workload.entry, update.get("folder", ""))
    cache = _whole(CACHE, options.input.cache, bases.get(CACHE, ""))
    run = options.run
    if run.python is not None:
        run = replace(run, python=interpreter.file_of(_whole(PYTHON, run.python, bases.get(PYTHON, ""))))
    return replace(options, workload=replace(workload, **update), input=replace(options.input, cache=cache), run=run)


def relative(key: str, options: Options, folder: str = "") -> Any:
    """Return the value of an option, with a relative path if the path is within `folder` (by default the current
    folder).

    The file of an entry is made relative to workload.folder.
    """
    group, name = key.split(".", 1)
    value = getattr(getattr(options, group), name)
    parts = _parts(key, value)
    if parts is None:
        return value
    before, place, behind = parts
    base = (key == ENTRY_KEY and options.workload.folder) or folder
    return before + _inside(place, _base(before, base)) + behind


def near(place: str) -> str:
    """Return the path relative to the current folder if it is within that folder; else unchanged."""
    return _inside(place, os.path.abspath("")) if os.path.isabs(place) else place


def typed_here(key: str, options: Options, file: str) -> str | None:
    """Return the value that an option should have, if its path in the preset's `file` does not exist but the same path
    in the current folder does.

    Return None if that is not so, or if the option has no path.
    """
    group, name = key.split(".", 1)
    value = getattr(getattr(options, group), name)
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
    return _PARTS[key](value) if key in _PARTS and isinstance(value, str) else None


def _base(before: str, folder: str) -> str:
    """Return the absolute path of the folder; for a pattern (`before` is `tfrecord:`), with its special characters
    escaped.
    """
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
    """Return the path relative to the folder if it is within the folder; else unchanged."""
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
