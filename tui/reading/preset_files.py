"""The preset files that can be opened: of the current folder, recent, the user's own, shipped, or below a typed path.
All functions read a limited number of files from disks that may never answer, so callers use daemon threads."""

from __future__ import annotations

import contextlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

from ...engine import presets
from ...engine.files import located_yaml, places
from ...engine.files.located_yaml import YamlFault
from ...engine.files.places import PRESET_SUFFIXES, presets_in
from ...engine.files.reading import read_bytes, why
from ...engine.files.writing import write_atomically
from ...engine.presets.preset import TOP_LEVEL

MOST = 20
ANSWER_SECONDS = 0.3
OPENING_SECONDS = 1.0  # for a preset with its bases; a busy machine may need some of it
MAX_BYTES = 200_000
MAX_PATH = 4096  # of Linux; a longer one is no path
_writing = threading.Lock()
T = TypeVar("T")


def file() -> Path:
    return places.home() / "recent.json"


def recent() -> list[Path]:
    """Return the last opened files, the latest first. They may no longer exist: their disks are not waited for."""
    try:
        stored = json.loads(read_bytes(file(), MAX_BYTES))
    except (OSError, ValueError, RecursionError):
        return []
    texts = stored if isinstance(stored, list) else []
    kept = (text for text in texts if isinstance(text, str) and len(text) <= MAX_PATH and text.isprintable())
    return [Path(text) for text in dict.fromkeys(kept) if text.startswith("/")][:MOST]


def is_there(path: Path) -> bool:
    """Return True if the path is a file. False also if its disk does not answer within ANSWER_SECONDS."""
    return bool(answer(path.is_file, ANSWER_SECONDS))


def answer(ask: Callable[[], T], seconds: float) -> T | None:
    """Call `ask` in a thread, and return its result; None if it fails or takes more than `seconds`."""
    answers: list[T] = []

    def put() -> None:
        with contextlib.suppress(Exception):  # whatever it is, there is no answer; a thread would print a traceback
            answers.append(ask())

    asking = threading.Thread(target=put, daemon=True)
    asking.start()
    asking.join(seconds)
    return answers[0] if answers else None


def note(path: Path) -> threading.Thread:
    """Put a file at the first place of the recent files, in the returned thread, if gputui's home can be written."""
    thread = threading.Thread(target=_note, args=(path,), daemon=True)
    thread.start()
    return thread


def _note(path: Path) -> None:
    with contextlib.suppress(OSError), _writing:
        whole = [str(file_path) for file_path in (path.absolute(), *recent())]
        file().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file(), json.dumps(list(dict.fromkeys(whole))[:MOST], indent=1) + "\n", durable=False)


Group = Literal["here", "recent", "yours", "shipped", "path"]
GROUPS: tuple[Group, ...] = ("here", "recent", "yours", "shipped")
MOST_ENTRIES = 20_000  # of a folder that are looked through by name
MOST_FILES = 200  # of a folder that are read
_OURS = re.compile(rf"^(?:{'|'.join(TOP_LEVEL)})[ \t]*:", re.MULTILINE)


@dataclass(frozen=True)
class PresetFile:
    """A file in the list, or a folder of the typed path. `text` is the preset's description. `other` says why the file
    is no preset, and `fault` what is wrong with a preset; both are empty for a valid preset."""

    path: Path
    group: Group
    text: str = ""
    fault: str = ""
    other: str = ""
    folder: bool = False

    @property
    def name(self) -> str:
        if self.folder:
            return f"{self.path.name}/"
        return self.path.stem if self.group in ("yours", "shipped") else self.path.name


@dataclass(frozen=True)
class Listing:
    """The files of one group. `note` says which were left out, or why there are none, else it is empty."""

    files: tuple[PresetFile, ...] = ()
    note: str = ""


def read(group: Group, folder: Path | None = None) -> Listing:
    """Return the files of a group; those of `path` are in `folder`, by default the current one."""
    if group == "path":
        return in_folder(folder or Path.cwd(), "path")
    if group == "here":
        return in_folder(Path.cwd(), "here")
    if group == "recent":
        return Listing(tuple(PresetFile(path, "recent", str(path.parent)) for path in recent()))
    home = presets.SHIPPED if group == "shipped" else presets.user_folder()
    return Listing(tuple(read_entry(path, group) for path in presets_in(home)[:MOST_FILES]))


def in_folder(folder: Path, group: Group) -> Listing:
    """Return the YAML files of a folder, presets first. For the group `path`, its folders, too."""
    try:
        with os.scandir(folder) as scanned:
            entries = list(islice(scanned, MOST_ENTRIES + 1))
    except OSError as fault:
        return Listing(note=f"{folder} cannot be read: {why(fault)}")
    names = sorted(entry.name for entry in entries[:MOST_ENTRIES] if entry.name.endswith(PRESET_SUFFIXES))
    presets_first = [read_entry(folder / name, group) for name in names[:MOST_FILES]]
    folders = sorted(entry.name for entry in _folders(entries)) if group == "path" else []
    listed = [PresetFile(folder / name, group, folder=True) for name in folders[:MOST_ENTRIES]]
    left = len(names) - MOST_FILES
    note = f"{left} more YAML files: type a path to one" if left > 0 else ""
    if len(entries) > MOST_ENTRIES:
        note = f"more than {MOST_ENTRIES:,} entries: type a path to a file that is not listed"
    return Listing(
        (*(file for file in presets_first if not file.other), *listed, *(file for file in presets_first if file.other)),
        note,
    )


def _folders(entries: list[os.DirEntry[str]]) -> Iterator[os.DirEntry[str]]:
    for entry in entries:
        try:
            if entry.is_dir() and not entry.name.startswith("."):
                yield entry
        except OSError:
            continue  # a link whose target cannot be looked at


def read_entry(path: Path, group: Group) -> PresetFile:
    """Return a file's entry: the preset's description, or why it is no preset or cannot be used."""
    text = ""
    try:
        text = located_yaml.read_text(path)
        tree = located_yaml.parse(text)
    except YamlFault as fault:
        if group in ("yours", "shipped") or _OURS.search(text):
            return PresetFile(path, group, fault=f"line {fault.line}: {fault.message}")
        return PresetFile(path, group, other="not a preset")
    except OSError as fault:
        return PresetFile(path, group, other=why(fault))
    if group in ("here", "path") and set(TOP_LEVEL).isdisjoint(tree):
        return PresetFile(path, group, other="not a preset")
    described = tree["description"].value if "description" in tree else ""
    return PresetFile(path, group, " ".join(described.split()) if isinstance(described, str) else "")


def completed(text: str, names: list[str]) -> str:
    """Return the path completed by the letters that all `names` share which begin with its last part."""
    head, begun = os.path.split(text)
    fitting = [name for name in names if name.startswith(begun)]
    if not fitting:
        return text
    first, last = min(fitting), max(fitting)
    same = next((i for i, (letter, other) in enumerate(zip(first, last, strict=False)) if letter != other), len(first))
    return os.path.join(head, first[:same])


def is_path(text: str) -> bool:
    """Return True if the text is the beginning of a path, and False if it has words to filter by."""
    return os.sep in text or text.startswith("~") or text in (".", "..")


def split(text: str) -> tuple[Path, str]:
    """Return the folder of a typed path as an absolute path, and the typed beginning of a name in this folder."""
    head, begun = os.path.split(os.path.expanduser(text) if text.startswith("~") and os.sep in text else text)
    return Path(head or ".").absolute(), begun
