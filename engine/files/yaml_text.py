"""The values of a YAML text with their lines (`Located`), its errors, and advice on words that YAML reads as numbers.
Does not import PyYAML (30 ms): the first paint needs this module and reads no YAML.
"""

from __future__ import annotations

import re
from typing import Any

from ..frozen import dataclass
from .values import printable


class YamlFault(Exception):
    """An error at a place in a YAML text, described by `message`. `line` counts from 1. `key` is a key such as
    `input.batch_size`, or empty.
    """

    def __init__(self, message: str, line: int = 1, key: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.key = message, line, key


@dataclass(frozen=True)
class Located:
    """A value and the number of its line, counted from 1. The value of a mapping is a dict of `Located` by key. As text
    it is the value alone, as in messages about a wrong value.
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
