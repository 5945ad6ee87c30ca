"""From which folder the paths in options count, and how they are told.

A path that is written in a preset's file counts from that file's folder, one that is typed (--set, the form) from the
current folder. A resolved preset holds whole paths only, so that it means the same wherever it is read.
"""

from __future__ import annotations

import glob
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..options.data import ENTRY, PATH_SOURCES
from . import entry as entries

if TYPE_CHECKING:
    from ..options import Options

Parts = tuple[str, str, str]  # what stands before the path, the path, what stands behind it


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
PATTERN = "tfrecord:"
_PARTS: Mapping[str, Callable[[str], Parts | None]] = {
    DATA: _of_data, ENTRY_KEY: _of_entry, FOLDER: _of_folder, CACHE: _of_cache
}  # fmt: skip
KEYS = tuple(_PARTS)


def absolute(options: Options, bases: Mapping[str, str]) -> Options:
    """The options with whole paths; `bases` tells by key from which folder they count, if not from the current one.

    The file of an entry counts from workload.folder where that is given. It is filled in for an entry that has a base.
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
    return options.model_copy(
        update={
            "workload": workload.model_copy(update=update),
            "input": options.input.model_copy(update={"cache": cache}),
        }
    )


def relative(key: str, options: Options, folder: str = "") -> Any:
    """The option's value with its path as it is written in `folder` (if not given, the current one), where it lies in
    it; an entry's file as it is written beside workload.folder."""
    group, name = key.split(".", 1)
    value = getattr(getattr(options, group), name)
    parts = _parts(key, value)
    if parts is None:
        return value
    before, place, behind = parts
    base = (key == ENTRY_KEY and options.workload.folder) or folder
    return before + _inside(place, _base(before, base)) + behind


def near(place: str) -> str:
    """A path as a person would type it here."""
    return _inside(place, os.path.abspath("")) if os.path.isabs(place) else place


def typed_here(key: str, options: Options, file: str) -> str | None:
    """What to type here for a path that a preset's file names in vain, where it is right from the current folder."""
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
    """The folder as it stands in front of a path; some data is given by a pattern, and the folder is none."""
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
    # A folder above one that is a link is not what the text without ".." says.
    if ".." in place.split(os.sep) and os.path.realpath(plain) != os.path.realpath(place):
        plain = place
    return before + plain + behind


def _inside(place: str, folder: str) -> str:
    """Relative where it lies in the folder, else as it is."""
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
