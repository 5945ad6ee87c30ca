"""Reads a YAML file into values with their line numbers, so that every error can name its place.

The text may come from anywhere: size and depth are limited, aliases and duplicate keys are refused. What presets mean
is decided in presets/. PyYAML, which only yaml_nodes.py needs, is imported when the first text is read.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from ..frozen import dataclass
from ..units import size
from .reading import open_regular

MAX_BYTES = 100 * 1024


class YamlFault(Exception):
    """An error at a place in a YAML text, described by `message`.

    `line` counts from 1. `key` is a key such as `input.batch_size`, or empty.
    """

    def __init__(self, message: str, line: int = 1, key: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.key = message, line, key


@dataclass(frozen=True)
class Located:
    """A value and the number of its line, counted from 1. The value of a mapping is a dict of `Located` by key.

    As text it is the value alone, as in messages about a wrong value.
    """

    value: Any
    line: int

    def __repr__(self) -> str:
        return repr(self.value)


def trap(text: str) -> str:
    """Advice on an unquoted word that YAML 1.1 reads as another number: `010` is 8, `1:30` is 90, `0b101` is 5."""
    digits = text.lstrip("+-").replace("_", "")
    sign = "-" if text.startswith("-") else ""
    if re.fullmatch(r"0[0-7]+", digits):
        ways, base = f"{sign}{int(digits)} or {sign}{int(digits, 8)}", "octal"
    elif re.fullmatch(r"0b[01]+", digits):
        ways, base = f"{sign}{int(digits, 2)}", "binary"
    elif re.fullmatch(r"[0-9]+(:[0-5]?[0-9])+(\.[0-9]*)?", digits):
        ways, base = f"{sign}{_base_60(digits)}", "of base 60"
    else:
        return ""
    return (
        f"{shorten(text)[1:-1]} is a number {base} in YAML: write {shorten(ways, 60)[1:-1]}, or quote it if it is text"
    )


def _base_60(digits: str) -> str:
    whole = 0.0
    for part in digits.split(":")[:20]:
        whole = 60 * whole + float(part)
    return f"{whole:.15g}"


def shorten(value: object, limit: int = 40) -> str:
    """On one line, without control characters, about `limit` characters; a text in quotes, others as in YAML."""
    text = printable(value[: 2 * limit] if isinstance(value, str) else _as_yaml(value))
    text = text if len(text) <= limit else text[:limit] + "..."
    return repr(text) if isinstance(value, str) else text


def _as_yaml(value: object) -> str:
    import yaml  # not needed for the first paint

    try:
        return yaml.safe_dump(value, default_flow_style=True, width=10_000).removesuffix("\n").removesuffix("\n...")
    except yaml.YAMLError:
        return repr(value)


def printable(text: str) -> str:
    """Return the text with `?` for line breaks and for characters that control a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


# ---- files and texts ----------------------------------------------------------------------------


def read(path: Path) -> dict[str, Located]:
    """The values by key, with their lines, in the two upper levels. Raises YamlFault or OSError."""
    return parse(read_text(path))


def read_settings(path: Path) -> dict[str, Located]:
    """As `read`; empty without content. YamlFault has the text of `about_settings`."""
    try:
        text = read_text(path)
        return parse(text) if has_content(text) else {}
    except YamlFault as fault:
        raise about_settings(fault) from None


def has_content(text: str) -> bool:
    """Return True if the text has anything except comments and empty lines."""
    lines = (line.strip() for line in text.splitlines())
    return any(line and not line.startswith("#") and line not in ("---", "{}") for line in lines)


def about_settings(fault: YamlFault) -> YamlFault:
    """Return a fault whose message names the key, and speaks of settings, not of presets."""
    message = fault.message.replace("so it is no preset", "so it holds no settings").replace("in presets", "here")
    return YamlFault(f"{fault.key}: {message}" if fault.key else message, fault.line, fault.key)


def read_text(path: Path) -> str:
    """Return the text of a file that may be a preset; raises the same exceptions as `read`."""
    with open_regular(path) as stream:
        raw = stream.read(MAX_BYTES + 1)
    if len(raw) > MAX_BYTES:
        raise YamlFault(f"the file is larger than {size(MAX_BYTES)}, so it is no preset")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as fault:
        line = raw[: fault.start].count(b"\n") + 1
        raise YamlFault("the file is not UTF-8 text, so it is no preset", line) from None


def parse(text: str) -> dict[str, Located]:
    """Return the values of a YAML text by key, each with its line number, in the two upper levels. Raises YamlFault."""
    from . import yaml_nodes  # PyYAML is not needed for the first paint

    return yaml_nodes.parse(text)


def scalar(text: str) -> Any:
    """The value that YAML reads from a text, None for an empty one; the text itself if it is not valid YAML."""
    try:
        return parse(f"set:\n  v: {text}")["set"].value["v"].value if text.strip() else None
    except YamlFault:
        return text


def stays_text(text: str) -> bool:
    """Return True if YAML reads the unquoted text as the same text, and not as another value such as a number."""
    return scalar(text) == text and not trap(text)
