"""Numbers and texts of files that any program may have written, tested before they are used, and strict JSON: without
NaN and Infinity, which other programs do not read.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

EMPTY: Mapping[str, Any] = MappingProxyType({})
NO_NAME = "contains control characters or is not UTF-8 text"
LARGEST = 1e100  # far above any measurement; sums, squares and means of such numbers are still finite
LARGEST_WHOLE = 2**63 - 1
LONGEST_FOREIGN = 200  # characters of an exception's text or a log line in a message
MAX_DEPTH = 32  # nesting depth of values; a preset has 8 at most
LATEST_T = 253402300799.0  # the end of the year 9999, in Unix seconds


def number(value: Any) -> float | None:
    """Return the value if it is a number of at most 1e100 in size; None for anything else, such as a bool or NaN."""
    if isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST:
        return value
    return None


def whole(value: Any) -> int | None:
    """Return the value if it is a whole number of at most 64 bits; None for anything else, such as a bool or 1.0."""
    if isinstance(value, int) and not isinstance(value, bool) and -LARGEST_WHOLE <= value <= LARGEST_WHOLE:
        return value
    return None


def harmless(text: str) -> str:
    """Return the text with `?` for characters that could control a terminal, and a space for a tab."""
    if text.isprintable():  # nearly every text
        return text
    return "".join(c if c.isprintable() or c == "\n" else " " if c == "\t" else "?" for c in text)


def printable(text: str) -> str:
    """Return the text with `?` for line breaks and for characters that control a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)


def nameable(path: str) -> bool:
    """Return True if presets and TensorFlow can use the path: it is UTF-8 text without control characters."""
    return not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in path)


def brief(text: str, limit: int = LONGEST_FOREIGN) -> str:
    """Return a text of another program or a user, without its middle if it is longer. gputui's own sentences are never
    cut: their paths and commands are to be used.
    """
    if len(text) <= limit:
        return text
    front = 2 * (limit - 3) // 3
    return f"{text[:front]}...{text[len(text) - (limit - 3 - front) :]}"


def harmless_in(value: Any, levels: int = MAX_DEPTH + 1) -> Any:
    """Return nested values with harmless texts and names, without the content of mappings and lists below `levels`."""
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, dict):
        inside = value.items() if levels else ()
        return {harmless(str(name)): harmless_in(item, levels - 1) for name, item in inside}
    if isinstance(value, list):
        return [harmless_in(item, levels - 1) for item in (value if levels else ())]
    return value


def depth(value: Any) -> int:
    """Return the number of levels of mappings and lists that are nested in one another; 0 for a single value."""
    levels, inside = 0, [value]
    while inside := [item for item in inside if isinstance(item, dict | list)]:
        levels += 1
        inside = [part for item in inside for part in (item.values() if isinstance(item, dict) else item)]
    return levels


def finite(value: float | None) -> float | None:
    """Return `value` as a float; None if it is None, NaN or infinite, which JSON cannot express."""
    return float(value) if value is not None and math.isfinite(value) else None


def plain(value: Any) -> Any:
    """NaN and infinite floats become None, tuples lists, and an object its `as_json()`."""
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return plain(value.as_json()) if hasattr(value, "as_json") else value


def to_json(value: Any, *, indent: int | None = None, short: bool = False) -> str:
    """Strict JSON, on one line or indented; a value that JSON does not have, such as a path, becomes text."""
    separators = (",", ":") if short else None
    return json.dumps(plain(value), allow_nan=False, indent=indent, separators=separators, default=str)
