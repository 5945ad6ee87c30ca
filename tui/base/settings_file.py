"""Reads and writes the file of the settings: only changed values are written, and comments stay.

Deferred imports: ruamel.yaml, which keeps the layout, is needed only for writing.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...engine.files import located_yaml
from ...engine.files.located_yaml import Located, YamlFault
from ...engine.files.writing import write_atomically

NEW = "# Settings of gputui's screens; `gputui` writes here what is changed in them. See docs/reference.md.\n"
WHOLE = ("theme", "keys")  # the settings without a section


class SettingsFault(Exception):
    """The settings file cannot be used. `line` is the number of the wrong line; 0 if the fault has no line."""

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def read(path: Path) -> list[tuple[str, int, Any]]:
    """Return (dotted key, line, value) for each setting in the file; an empty list if there is no file."""
    entries: list[tuple[str, int, Any]] = []
    for name, value in _parsed(_text(path)).items():
        if isinstance(value.value, dict) and name not in WHOLE:
            entries += [(f"{name}.{inner}", item.line, _plain(item)) for inner, item in value.value.items()]
        elif value.value is not None or name in WHOLE:
            entries.append((name, value.line, _plain(value)))
    return entries


def write(path: Path, changes: Mapping[str, Any]) -> None:
    """Write the changed values, given by dotted key, into the file; everything else in the file stays."""
    from ...engine.files import yaml_writing

    path = path.resolve()  # a link to a file elsewhere stays one
    before = _text(path)
    _parsed(before)
    try:
        yaml, document = yaml_writing.load(before if _has_content(before) else "{}\n")
    except yaml_writing.LayoutFault as fault:
        raise SettingsFault(str(fault)) from None
    if not _has_content(before):
        document.fa.set_block_style()
    for key, value in changes.items():
        section, _, name = key.rpartition(".")
        place = document
        if section:
            if not isinstance(document.get(section), dict):
                document[section] = type(document)()
            place = document[section]
        place[name] = yaml_writing.node(dict(value) if isinstance(value, Mapping) else value)
    text = yaml_writing.dump(yaml, document, before)
    _put(path, text if _has_content(before) else (before or NEW) + text)


def _put(path: Path, text: str) -> None:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, text)
    except OSError as fault:
        raise SettingsFault(f"cannot be written: {fault.strerror}") from None


def _text(path: Path) -> str:
    try:
        return located_yaml.read_text(path)
    except FileNotFoundError:
        return ""
    except OSError as fault:
        raise SettingsFault(f"cannot be read: {fault.strerror or fault}") from None
    except YamlFault as fault:
        raise _fault(fault) from None


def _parsed(text: str) -> dict[str, Located]:
    try:
        return located_yaml.parse(text) if _has_content(text) else {}
    except YamlFault as fault:
        raise _fault(fault) from None


def _has_content(text: str) -> bool:
    """Return whether the text has anything except comments and empty lines."""
    lines = (line.strip() for line in text.splitlines())
    return any(line and not line.startswith("#") and line not in ("---", "{}") for line in lines)


def _plain(value: Located) -> Any:
    """Return the value and its inner values without their line numbers."""
    if isinstance(value.value, dict):
        return {name: _plain(item) if isinstance(item, Located) else item for name, item in value.value.items()}
    return value.value


def _fault(fault: YamlFault) -> SettingsFault:
    """Convert a fault of the YAML reader to a SettingsFault; the reader's message speaks of presets."""
    message = fault.message.replace("so it is no preset", "so it holds no settings").replace("in presets", "here")
    return SettingsFault(f"{fault.key}: {message}" if fault.key else message, fault.line)
