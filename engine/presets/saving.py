"""Saves options as a preset file: comments and order stay, and only what changed is written.

ruamel.yaml keeps a person's layout. Nothing is written before it was read back as the very preset that is to be saved.
"""

from __future__ import annotations

import io
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.comments import CommentedMap, CommentedSeq
from ruamel.yaml.error import YAMLError
from ruamel.yaml.representer import RoundTripRepresenter
from ruamel.yaml.scalarstring import DoubleQuotedScalarString
from ruamel.yaml.util import load_yaml_guess_indent

from ..files import located_yaml
from ..files.places import SHIPPED_PRESETS as SHIPPED
from ..files.places import user_presets_folder as user_folder
from ..files.writing import write_atomically
from ..options import OPTIONS, SCHEMA_VERSION, OptionInfo
from . import paths, resolving
from .resolving import Preset, PresetError

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
NEW = f"schema_version: {SCHEMA_VERSION}\n"


class SaveError(Exception):
    """The preset was not saved; the text says why and what to do."""


def save(preset: Preset, path: Path, opened_text: str | None = None) -> None:
    """Save the options over a preset file; raises SaveError.

    `opened_text` is the text of the file when the options were read: a file that has changed since is not overwritten.
    """
    path = path.resolve()
    if path.parent == SHIPPED:
        raise SaveError(f"{path.stem} ships with gputui and cannot be overwritten; save it under another name")
    text = _read(path)
    if opened_text is not None and text != opened_text:
        raise SaveError(f"{path} was changed since it was opened; open it again, or save under another name")
    preset = _placed(preset)
    _write(path, updated(text, preset, path), preset)


def save_as(preset: Preset, path: Path, source: Path | None = None, overwrite: bool = False) -> None:
    """Save as a new preset file, with the layout of `source` where there is one; raises SaveError."""
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
    _write(path, updated(text, preset, path), preset)


def _placed(preset: Preset) -> Preset:
    """Set the folder of a typed entry to the current one, so that it is found wherever the preset is saved."""
    return replace(preset, options=paths.absolute(preset.options, {paths.ENTRY_KEY: ""}))


def place(name_or_path: str) -> Path:
    """The file of a new preset: a plain name lies in the user's preset folder; raises SaveError."""
    given = Path(name_or_path.strip()).expanduser()
    if given.suffix in (".yaml", ".yml"):
        return given if len(given.parts) > 1 else user_folder() / given
    if not NAME.fullmatch(name_or_path.strip()):
        raise SaveError("give a name of letters, digits, - and _, or a path that ends in .yaml")
    if (SHIPPED / f"{given}.yaml").exists():
        raise SaveError(f"{given} ships with gputui; choose another name")
    return user_folder() / f"{given}.yaml"


def delete(path: Path) -> None:
    """Delete a preset of the user; raises SaveError."""
    if path.resolve().parent == SHIPPED:
        raise SaveError(f"{path.stem} ships with gputui and cannot be deleted")
    try:
        path.unlink()
    except OSError as fault:
        raise SaveError(f"{path} cannot be deleted: {fault.strerror}") from None


def updated(text: str, preset: Preset, path: Path) -> str:
    """The text of a preset file at `path`, changed only where the preset differs; raises SaveError."""
    try:
        before = resolving.resolve_text(text, path)
    except PresetError as fault:
        raise SaveError(str(fault.problems[0])) from None
    changed = [info for info in OPTIONS if _value(preset, info) != _value(before, info)]
    if not changed and preset.description == before.description:
        return text
    yaml, document = _load(text)
    if preset.description != before.description:
        _describe(document, preset.description)
    for info in changed:
        if info.key == paths.FOLDER and _goes_without_saying(before, preset, path):
            continue
        _set(document, info, paths.relative(info.key, preset.options, str(path.parent)))
    stream = io.StringIO()
    yaml.dump(document, stream)
    written = stream.getvalue()
    return written.replace("\n", "\r\n") if "\r\n" in text else written


def _goes_without_saying(before: Preset, preset: Preset, path: Path) -> bool:
    """Whether a value need not be written: a new entry in a file runs in the file's folder anyway."""
    return before.options.workload.folder is None and preset.options.workload.folder == os.path.abspath(path.parent)


class _Plain(RoundTripRepresenter):
    """Writes null as a word: an empty value would look like an oversight."""


_Plain.add_representer(type(None), lambda writer, _: writer.represent_scalar("tag:yaml.org,2002:null", "null"))


def _load(text: str) -> tuple[YAML, CommentedMap]:
    _, indent, offset = load_yaml_guess_indent(text)
    yaml = YAML()
    yaml.Representer = _Plain
    yaml.preserve_quotes = True
    yaml.width = 110
    yaml.indent(mapping=indent or 2, sequence=indent or 2, offset=offset or 0)
    try:
        document = yaml.load(text)
    except YAMLError as fault:
        raise SaveError(f"the layout of the file cannot be kept: {' '.join(str(fault).split())}") from None
    return yaml, document


def _describe(document: CommentedMap, text: str) -> None:
    if "description" in document:
        document["description"] = _scalar(text)
    else:
        document.insert(1 if "schema_version" in document else 0, "description", _scalar(text))


def _set(document: CommentedMap, info: OptionInfo, value: Any) -> None:
    """Write a value in its place, at the end of its group, or in a new group at the end of the file."""
    if document.get(info.group) is None:
        group = CommentedMap()
        if not any(isinstance(v, CommentedMap) and not v.fa.flow_style() for v in document.values()):
            group.fa.set_flow_style()
        document[info.group] = group
    document[info.group][info.name] = _node(value)


def _node(value: Any) -> Any:
    """Write lists and mappings in one line."""
    if isinstance(value, list):
        items = CommentedSeq([_node(item) for item in value])
        items.fa.set_flow_style()
        return items
    if isinstance(value, dict):
        pairs = CommentedMap({_scalar(name): _node(item) for name, item in value.items()})
        pairs.fa.set_flow_style()
        return pairs
    return _scalar(value)


def _scalar(value: Any) -> Any:
    """Quote text that YAML 1.1 would read as something else; every option accepts `off` unquoted."""
    if isinstance(value, str) and value != "off" and not located_yaml.stays_text(value):
        return DoubleQuotedScalarString(value)
    return value


def _value(preset: Preset, info: OptionInfo) -> Any:
    return getattr(getattr(preset.options, info.group), info.name)


def _moved(text: str, source: Path, target: Path) -> str:
    """The text for another folder: a relative path of the base becomes absolute."""
    match = re.search(r"(?m)^extends:[ ]*(?P<base>[^#\n]+)", text)
    base = located_yaml.scalar(match["base"].strip()) if match else None
    if not match or not isinstance(base, str) or source.resolve().parent == target.resolve().parent:
        return text
    if Path(base).suffix not in (".yaml", ".yml") and "/" not in base:
        return text
    whole = str((source.resolve().parent / Path(base).expanduser()).resolve())
    gap = match["base"][len(match["base"].rstrip()) :]
    return text[: match.start("base")] + _quoted(whole) + gap + text[match.end("base") :]


def _quoted(text: str) -> str:
    """A text as one line of YAML."""
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{quoted}"'


def _read(path: Path) -> str:
    try:
        with path.open(encoding="utf-8-sig", newline="") as stream:
            return stream.read()
    except (OSError, UnicodeDecodeError) as fault:
        raise SaveError(f"{path} cannot be read: {fault}") from None


def _write(path: Path, text: str, preset: Preset) -> None:
    """Write the text after checking that it means the preset."""
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
