"""Reads a YAML file into values with their line numbers, so that every error can name its place. The text may come from
anywhere: size and depth are limited, aliases and duplicate keys are refused. What presets mean is decided in presets/.
PyYAML, which only yaml_nodes.py needs, is imported when the first text is read.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..units import size
from .reading import open_regular
from .yaml_text import Located, YamlFault, shorten, trap

MAX_BYTES = 100 * 1024
__all__ = [
    "Located", "YamlFault", "about_settings", "has_content", "parse", "read", "read_settings", "read_text",
    "scalar", "shorten", "stays_text", "trap",
]  # fmt: skip


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
