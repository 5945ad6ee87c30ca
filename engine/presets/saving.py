"""Saves options as a preset file: comments and order stay, and only what changed is written. A text is written only if
reading it gives the same preset.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from ruamel.yaml.comments import CommentedMap

from ..files import located_yaml, yaml_writing
from ..files.places import PRESET_SUFFIXES
from ..files.places import SHIPPED_PRESETS as SHIPPED
from ..files.places import user_presets_folder as user_folder
from ..files.writing import write_atomically
from ..files.yaml_writing import LayoutFault
from ..options import OPTIONS, SCHEMA_VERSION
from . import paths, resolving
from .preset import Preset, PresetError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
HEAD = yaml_writing.HEAD
_SCHEMA_LINE = re.compile(r"(?m)^#[ ]*yaml-language-server:[ ]*\$schema=(?P<file>\S+)[ ]*\r?\n")
TUNED = "tuned"  # the beginning of comments that say why a value was changed
NEW = f"schema_version: {SCHEMA_VERSION}\n"


class SaveError(Exception):
    """The preset was not saved, deleted or restored: the reason, and often the remedy."""


def save(preset: Preset, path: Path, opened_text: str | None = None) -> None:
    """Overwrite a file whose text is still `opened_text`. Raises SaveError, also for a preset that gputui ships."""
    path = path.resolve()
    if path.parent == SHIPPED:
        raise SaveError(f"{path.stem} ships with gputui and cannot be overwritten; save it under another name")
    text = _read(path)
    if opened_text is not None and text != opened_text:
        raise SaveError(f"{path} was changed since it was opened; open it again, or save under another name")
    preset = _placed(preset)
    _write(path, updated(text, preset, path), preset)


def changed_since(path: Path, opened_text: str | None) -> str:
    """A phrase; empty if unchanged. With an `opened_text` of None only a missing file counts. Raises SaveError."""
    if not os.path.lexists(path):
        return "is no longer there"
    return "" if opened_text is None or _read(path) == opened_text else "was changed since it was opened"


def save_as(
    preset: Preset,
    path: Path,
    source: Path | None = None,
    overwrite: bool = False,
    comments: Mapping[tuple[str, str], str] | None = None,
) -> None:
    """Save with the layout of `source`. `comments` are written at the values of (group, name), that of HEAD in the
    first line. Raises SaveError, also if `path` exists without `overwrite`.
    """
    if path.exists() and not overwrite:
        raise SaveError(f"{path} exists")
    if path.resolve().parent == SHIPPED:
        raise SaveError("that folder holds the presets that ship with gputui; choose another one")
    text = _moved(_read(source), source, path) if source else NEW
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as fault:
        raise SaveError(f"{path.parent} cannot be created: {fault.strerror}") from None
    preset = _placed(preset)
    made = updated(text, preset, path)
    _write(path, yaml_writing.with_comments(made, comments, TUNED) if comments else made, preset)


def _placed(preset: Preset) -> Preset:
    return replace(preset, options=paths.absolute(preset.options, {paths.ENTRY_KEY: ""}))


def place(name_or_path: str) -> Path:
    """The path of a new preset: a plain name in the user's folder, or a path (`~` is expanded). Raises SaveError."""
    text = name_or_path.strip()
    folder = user_folder()
    given = Path(os.path.expanduser(text))  # an unknown ~user is left unchanged
    if given.suffix in PRESET_SUFFIXES:
        given = given if os.sep in text else folder / given
    elif NAME.fullmatch(text):
        given = folder / f"{text}.yaml"
    else:
        raise SaveError("give a name of letters, digits, - and _, or a path that ends in .yaml")
    if given.parent == user_folder() and (SHIPPED / f"{given.stem}.yaml").exists():
        raise SaveError(f"{given.stem} ships with gputui; choose another name")
    return given


@dataclass(frozen=True)
class Deleted:
    """`target` is that of a symbolic link."""

    path: Path
    content: bytes
    mode: int
    target: str = ""

    def bring_back(self) -> None:
        """Raises SaveError."""
        if os.path.lexists(self.path):
            raise SaveError(f"{self.path} cannot be restored: there is another file of this name now")
        descriptor = None
        try:
            if self.target:
                self.path.symlink_to(self.target)
                return
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, self.mode)
            with open(descriptor, "wb") as stream:
                with contextlib.suppress(OSError):  # a file system without modes
                    os.fchmod(descriptor, self.mode)
                stream.write(self.content)
        except OSError as fault:
            if descriptor is not None:  # the user can try again
                with contextlib.suppress(OSError):
                    self.path.unlink()
            raise SaveError(f"{self.path} cannot be restored: {fault.strerror}") from None


@dataclass(frozen=True)
class Replaced:
    """A file that was written over, with its former content."""

    path: Path
    former: str
    written: str

    def bring_back(self) -> None:
        """SaveError also if the file was changed since."""
        try:
            if content_of(self.path) != self.written:
                raise SaveError(f"{self.path} was changed since it was saved, and keeps that change")
            write_atomically(self.path.resolve(), self.former)
        except OSError as fault:
            raise SaveError(f"{self.path} cannot be written: {fault.strerror}") from None


def content_of(path: Path) -> str | None:
    """None if it cannot be read."""
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError):
        return None


def delete(path: Path) -> Deleted:
    """Raises SaveError."""
    if path.resolve().parent == SHIPPED:
        raise SaveError(f"{path.stem} ships with gputui and cannot be deleted")
    try:
        target = os.readlink(path) if path.is_symlink() else ""
        deleted = Deleted(path, b"" if target else path.read_bytes(), stat.S_IMODE(path.lstat().st_mode), target)
        path.unlink()
    except OSError as fault:
        raise SaveError(f"{path} cannot be deleted: {fault.strerror}") from None
    return deleted


def updated(text: str, preset: Preset, path: Path) -> str:
    """`text` with only those values changed that differ. Raises SaveError if its layout cannot be kept."""
    try:
        before = resolving.resolve_text(text, path)
    except PresetError as fault:
        raise SaveError(str(fault.problems[0])) from None
    changed = [info for info in OPTIONS if preset.options.value(info.key) != before.options.value(info.key)]
    if not changed and preset.description == before.description:
        return text
    try:
        yaml, document = yaml_writing.load(text)
    except LayoutFault as fault:
        raise SaveError(str(fault)) from None
    if preset.description != before.description:
        if "description" not in document:
            document.insert(1 if "schema_version" in document else 0, "description", "")
        document["description"] = yaml_writing.scalar(preset.description)
    folder = preset.options.workload.folder
    goes_without_saying = before.options.workload.folder is None and folder == os.path.abspath(path.parent)
    for info in changed:
        if info.key == paths.FOLDER and goes_without_saying:
            continue
        if document.get(info.group) is None:
            group = CommentedMap()
            if not any(isinstance(v, CommentedMap) and not v.fa.flow_style() for v in document.values()):
                group.fa.set_flow_style()
            document[info.group] = group
        value = paths.relative(info.key, preset.options, str(path.parent))
        document[info.group][info.name] = yaml_writing.node(value)
    return yaml_writing.dump(yaml, document, text)


def _moved(text: str, source: Path, target: Path) -> str:
    """Return the text for another folder: a relative `extends` becomes absolute, and an absent schema goes."""
    schema = _SCHEMA_LINE.search(text)
    if schema and "://" not in schema["file"] and not (target.parent / schema["file"]).exists():
        text = text[: schema.start()] + text[schema.end() :]
    match = re.search(r"(?m)^extends:[ ]*(?P<base>[^#\n]+)", text)
    base = located_yaml.scalar(match["base"].strip()) if match else None
    if not match or not isinstance(base, str) or source.resolve().parent == target.resolve().parent:
        return text
    if Path(base).suffix not in (".yaml", ".yml") and "/" not in base:
        return text
    whole = str((source.resolve().parent / Path(base).expanduser()).resolve())
    gap = match["base"][len(match["base"].rstrip()) :]
    return text[: match.start("base")] + json.dumps(whole, ensure_ascii=False) + gap + text[match.end("base") :]


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as fault:
        raise SaveError(f"{path} cannot be read: {fault}") from None


def _write(path: Path, text: str, preset: Preset) -> None:
    """Checked: it is read as the same preset."""
    try:
        meant = resolving.resolve_text(text, path)
    except PresetError as fault:
        raise SaveError(f"not saved: {fault.problems[0]}") from None
    if meant.options != preset.options or meant.description != preset.description:
        raise SaveError(f"not saved: {path} cannot be changed without losing something; save under another name")
    try:
        write_atomically(path, text)
    except OSError as fault:
        raise SaveError(f"{path} cannot be written: {fault.strerror}") from None
