"""Returns a value from a file as a number, a whole number, a text or a mapping, or None if it is none.

Any program can write to a file, so its content is tested here before it is used. JSON is written strictly: without NaN
and Infinity, which other programs do not read.
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

EMPTY: Mapping[str, Any] = MappingProxyType({})
NO_NAME = "contains control characters or is not UTF-8 text"
LARGEST = 1e100  # far above any measurement; sums, squares and means of such numbers are still finite
LARGEST_WHOLE = 2**63 - 1
LONGEST_LINE = 200  # length of an error's line
LONGEST_PLACE, LONGEST_WORD = (
    130,
    50,
)  # how much of the file name at its beginning, and of other words, such a line keeps
MAX_DEPTH = 32  # nesting depth of values; a preset has 8 at most
LATEST_T = 253402300799.0  # the end of the year 9999, in Unix seconds


def number(value: Any) -> float | None:
    """Return the value if it is a number of at most 1e100 in size; None for anything else, such as a bool, NaN or
    infinity.
    """
    if isinstance(value, int | float) and not isinstance(value, bool) and -LARGEST <= value <= LARGEST:
        return value
    return None


def whole(value: Any) -> int | None:
    """Return the value if it is a whole number of at most 64 bits; None for anything else, such as a bool or 1.0."""
    if isinstance(value, int) and not isinstance(value, bool) and -LARGEST_WHOLE <= value <= LARGEST_WHOLE:
        return value
    return None


def text(value: Any) -> str | None:
    """Return the value if it is a text; None for anything else."""
    return value if isinstance(value, str) else None


def mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping; an empty mapping for anything else."""
    return value if isinstance(value, Mapping) else EMPTY


def moment(value: Any) -> float | None:
    """Return the value if it is a time in Unix seconds, from 1970 to the year 9999; None for anything else."""
    t = number(value)
    return t if t is not None and 0 <= t <= LATEST_T else None


def harmless(text: str) -> str:
    """Return the text with `?` for characters that could control a terminal.

    Line breaks are kept; a tab becomes a space.
    """
    if text.isprintable():  # nearly every text
        return text
    return "".join(c if c.isprintable() or c == "\n" else " " if c == "\t" else "?" for c in text)


def nameable(path: str) -> bool:
    """Return True if presets and TensorFlow can use the path: it is UTF-8 text without control characters."""
    return not any(ord(c) < 32 or 0x7F <= ord(c) < 0xA0 or 0xD800 <= ord(c) < 0xE000 for c in path)


def brief(line: str, limit: int = LONGEST_LINE) -> str:
    """Return the line in at most `limit` characters.

    First the middle of its longest words is replaced by `...`, then words in its middle. The first word, which is
    mostly a file with a line number, is shortened last.
    """
    place, _, rest = line.partition(" ")
    while len(place) + 1 + len(rest) > limit and len(longest := max(rest.split(" "), key=len)) > LONGEST_WORD:
        over = len(place) + 1 + len(rest) - limit
        rest = rest.replace(longest, _without_middle(longest, max(LONGEST_WORD, len(longest) - over)), 1)
    if len(place) + 1 + len(rest) > limit:
        place = _without_middle(place, max(LONGEST_PLACE, limit - 1 - len(rest)))
    return f"{place} {_whole_words(rest, limit - 1 - len(place))}" if rest else _without_middle(place, limit)


def _whole_words(text: str, limit: int) -> str:
    """Return the text in at most `limit` characters, with `...` for words in its middle.

    If it has hardly any spaces, it is cut within a word.
    """
    if len(text) <= limit:
        return text
    front, mark, back = _without_middle(text, limit - 2).rpartition("...")
    kept, _, _ = front.rpartition(" ")
    _, _, end = back.partition(" ")
    return f"{kept} {mark} {end}" if kept and end else _without_middle(text, limit)


def _without_middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    front = 2 * (limit - 3) // 3
    return f"{text[:front]}...{text[len(text) - (limit - 3 - front) :]}"


def harmless_in(value: Any) -> Any:
    """Return nested values in which every text and every name is made harmless.

    The content of mappings and lists below MAX_DEPTH + 1 levels is left out.
    """
    return _harmless_in(value, MAX_DEPTH + 1)


def _harmless_in(value: Any, levels: int) -> Any:
    if isinstance(value, str):
        return harmless(value)
    if isinstance(value, dict):
        inside = value.items() if levels else ()
        return {harmless(str(name)): _harmless_in(item, levels - 1) for name, item in inside}
    if isinstance(value, list):
        return [_harmless_in(item, levels - 1) for item in (value if levels else ())]
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
    """Return nested values in which each float that is NaN or infinite is None. Tuples become lists, and an object
    its `as_json()`.
    """
    if isinstance(value, float):
        return finite(value)
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return plain(value.as_json()) if hasattr(value, "as_json") else value


def to_json(value: Any, *, indent: int | None = None, short: bool = False) -> str:
    """Return the value as strict JSON, on one line or with `indent` spaces for each level; `short` leaves out the
    spaces.

    A value that JSON does not have, such as a path or a date, is written as text.
    """
    separators = (",", ":") if short else None
    return json.dumps(plain(value), allow_nan=False, indent=indent, separators=separators, default=str)


Fits = Callable[[Any], bool]
EXACTLY = "exactly"  # of Annotated[Literal[...], EXACTLY]: a file with another word is damaged
_SCALARS: Mapping[Any, Fits] = {
    Any: lambda _value: True,
    bool: lambda value: type(value) is bool,
    float: lambda value: number(value) is not None,
    int: lambda value: whole(value) is not None,
    Path: lambda value: isinstance(value, Path),
    str: lambda value: type(value) is str,
    type(None): lambda value: value is None,
}
_KINDS: Mapping[Any, tuple[type, ...]] = {
    bool: (bool,),
    float: (float, int),
    int: (int,),
    str: (str,),
    type(None): (type(None),),
}


@dataclass(frozen=True, eq=False)
class Fields:
    """The types of a mapping's entries by their names, or the dataclass that declares them.

    Entries that are not declared are allowed. The entries in `needed` must be present.
    """

    of: Mapping[str, Any] | type
    needed: tuple[str, ...] = ()


class Form:
    """The types of a mapping's named entries, given as type hints by name (`hints`).

    A declared entry may be missing, as readers can do without it. Entries that are not declared are allowed.
    """

    def __init__(self, hints: Mapping[str, Any]) -> None:
        self._kinds = {name: _kinds(hint) for name, hint in hints.items()}
        self._fits = {name: fits(hint) for name, hint in hints.items()}

    def holds(self, content: Mapping[str, Any]) -> bool:
        """Return True if every declared entry that is present in `content` has its type.

        One loop does all tests, since files have many lines.
        """
        kinds = self._kinds
        for name, value in content.items():
            if name not in kinds:
                continue
            kind = type(value)
            if kind in kinds[name]:
                if kind is float:
                    if not -LARGEST <= value <= LARGEST:
                        return False
                elif kind is int and not -LARGEST_WHOLE <= value <= LARGEST_WHOLE:
                    return False
            elif not self._fits[name](value):
                return False
        return True

    def wrong(self, content: Mapping[str, Any]) -> list[str]:
        """Return the names of the entries of `content` that do not have their declared type."""
        return [name for name, value in content.items() if name in self._fits and not self._fits[name](value)]


@cache
def form_of(declared: Any) -> Form:
    """Return the form that the fields of the dataclass `declared` declare."""
    hints = get_type_hints(declared, include_extras=True)
    return Form({name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar})


def completed(declared: Any, content: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return the values of all fields of the dataclass `declared`: from `content`, or else their defaults.

    Undeclared entries are kept. Return None if a field without a default is missing, or if a value does not have its
    declared type.
    """
    return _filled(declared, content) if fits(declared)(content) else None


def _filled(declared: Any, content: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same as `completed`, but without the check. Dataclasses within the fields are filled, too."""
    filled = {field.name: _default(field) for field in fields(declared) if _has_default(field)} | dict(content)
    for name, inner in _inner(declared).items():
        value = filled.get(name)
        if isinstance(value, list):
            filled[name] = [_filled(inner, item) for item in value]
        elif isinstance(value, dict):
            filled[name] = _filled(inner, value)
    return filled


@cache
def _inner(declared: Any) -> Mapping[str, Any]:
    parts = {name: (hint, *get_args(hint)) for name, hint in get_type_hints(declared).items()}
    inner = {name: next(filter(is_dataclass, of), None) for name, of in parts.items()}
    return {name: dataclass for name, dataclass in inner.items() if dataclass is not None}


def _has_default(field: Field[Any]) -> bool:
    return field.default is not MISSING or field.default_factory is not MISSING


def _default(field: Field[Any]) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def fits(hint: Any) -> Fits:
    """Return the function that tests whether a value has the type of a hint.

    It supports the kinds of hints that runs/events.py uses. A Literal accepts every text, as another version of gputui
    may have more words.
    """
    if hint in _SCALARS:
        return _SCALARS[hint]
    if is_dataclass(hint):
        declared: Any = hint
        form, needed = form_of(declared), [field.name for field in fields(hint) if not _has_default(field)]
        return lambda value: isinstance(value, dict) and all(name in value for name in needed) and form.holds(value)
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _declared(*inner)
    if origin is Literal:
        return _SCALARS[str]  # another version of gputui may know more words
    if origin in (Union, types.UnionType):
        members = [fits(member) for member in inner]
        if len(members) == 2 and inner[1] is type(None):
            fits_first = members[0]
            return lambda value: value is None or fits_first(value)
        return lambda value: any(member(value) for member in members)
    if origin is tuple:
        parts = [fits(part) for part in inner]
        return lambda value: isinstance(value, list) and len(value) == len(parts) and all(_each(parts, value))
    assert isinstance(origin, type), f"no form for {hint}"
    if issubclass(origin, Mapping):
        of_value = fits(inner[1])
        return lambda value: isinstance(value, dict) and all(map(of_value, value.values()))
    assert issubclass(origin, Sequence), f"no form for {hint}"
    of_item = fits(inner[0])
    return lambda value: isinstance(value, list) and all(map(of_item, value))


def _declared(hint: Any, *remarks: Fields | str) -> Fits:
    if remarks == (EXACTLY,):
        words = get_args(hint)
        return lambda value: value in words
    outer, (declared,) = fits(hint), remarks
    assert isinstance(declared, Fields)
    form = form_of(declared.of) if isinstance(declared.of, type) else Form(declared.of)
    return lambda value: outer(value) and all(name in value for name in declared.needed) and form.holds(value)


def _each(parts: Sequence[Fits], values: Sequence[Any]) -> list[bool]:
    return [part(value) for part, value in zip(parts, values, strict=True)]


def _kinds(hint: Any) -> frozenset[type]:
    """Return the types that need no further test: a value of exactly such a type fits the hint.

    Only the size of a number must still be tested.
    """
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return frozenset(kind for member in members for kind in _KINDS.get(member, ()))
