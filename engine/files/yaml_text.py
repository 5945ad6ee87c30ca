"""The values of a YAML text with their lines (`Located`), its errors, and advice on words that YAML reads as numbers.
Does not import PyYAML (30 ms): the first paint needs this module and reads no YAML.
"""

from __future__ import annotations

import contextlib
import functools
import re
from typing import Any

from ..frozen import dataclass
from .values import printable


class YamlFault(Exception):
    """An error at a place in a YAML text. `line` counts from 1; `key` is one such as `input.batch_size`, or empty."""

    def __init__(self, message: str, line: int = 1, key: str = "") -> None:
        super().__init__(message)
        self.message, self.line, self.key = message, line, key


@dataclass(frozen=True)
class Located:
    """A value at its place. As text it is the value alone, as in messages about a wrong value."""

    value: Any  # of a mapping a dict of `Located` by key
    line: int  # from 1

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
        number = functools.reduce(lambda whole, part: 60 * whole + float(part), digits.split(":")[:20], 0.0)
        ways, base = f"{sign}{number:.15g}", "of base 60"
    else:
        return ""
    what = f"{shorten(text)[1:-1]} is a number {base} in YAML"
    return f"{what}: write {shorten(ways, 60)[1:-1]}, or quote it if it is text"


def shorten(value: object, limit: int = 40) -> str:
    """On one line, without control characters, about `limit` characters; a text in quotes, others as in YAML."""
    text = value[: 2 * limit] if isinstance(value, str) else repr(value)
    if not isinstance(value, str):
        import yaml  # not needed for the first paint

        with contextlib.suppress(yaml.YAMLError):
            dumped = yaml.safe_dump(value, default_flow_style=True, width=10_000)
            text = dumped.removesuffix("\n").removesuffix("\n...")
    text = printable(text)
    text = text if len(text) <= limit else text[:limit] + "..."
    return repr(text) if isinstance(value, str) else text
