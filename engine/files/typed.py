"""Reads JSON as the classes that declare it: msgspec tests the type of every value. A trainer trusts the files of its
own run instead, as its Python may have no msgspec.
"""

from __future__ import annotations

import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NotRequired,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)  # fmt: skip

from .reading import Content, parse_object, read_bytes, read_object, why
from .values import LARGEST, LARGEST_WHOLE, LATEST_T

T = TypeVar("T")
_AT = re.compile(r" - at `\$\.?(.*)`$")
_MISSING = re.compile(r"missing required field `(.+?)`")
_trusts = False


def trust_files() -> None:
    """Test no types in this process from now on, for a Python that may have no msgspec."""
    global _trusts
    _trusts = True


@cache
def _msgspec() -> Any:
    import msgspec  # 20 ms, and a trainer's Python may have none

    return msgspec


class Damaged(ValueError):
    """A value is not of its declared type. The text says which one, such as `comparisons[0].gain is not valid`."""


def convert(content: Any, kind: type[T]) -> T:
    """Return plain values as a `kind`, a dataclass or another type. Raises Damaged."""
    if _trusts:
        trusted: T = _trusted(content, kind)
        return trusted
    try:
        if is_dataclass(kind):
            _msgspec().convert(content, _shape_of(kind))
        converted: T = _msgspec().convert(content, kind)
        return converted
    except _msgspec().ValidationError as fault:
        # Its message, such as "Expected `float`, got `str` - at `$.comparisons[0].gain`".
        where = place[1] if (place := _AT.search(str(fault))) else ""
        if absent := _MISSING.search(str(fault)):
            raise Damaged(f"{f'{where}.' * bool(where)}{absent[1]} is missing") from None
        raise Damaged(f"{where or 'its content'} is not valid") from None


def _trusted(content: Any, kind: Any) -> Any:
    if not is_dataclass(kind) or not callable(kind):
        return content
    hints: Any = get_type_hints(kind)
    try:
        return kind(**{name: _trusted(content[name], hints[name]) for name in hints if name in content})
    except TypeError as fault:
        raise Damaged(str(fault)) from None


# ---- files --------------------------------------------------------------------------------------


def read(path: Path, kind: type[T], /, **more: Any) -> Content[T | None]:
    """The object in a JSON file as a `kind`, a dataclass; `damage` is in words that follow the name of the file. `more`
    are fields that the file does not give.
    """
    try:
        content = parse_object(read_bytes(path))
        return Content(None, "is damaged") if content is None else Content(convert(content | more, kind))
    except FileNotFoundError:
        return Content(None)
    except OSError as fault:
        return Content(None, f"cannot be read: {why(fault)}", unreadable=True)
    except Damaged as fault:
        return Content(None, f"is damaged ({fault})")


def read_usable(path: Path, kind: type[T]) -> T:
    """The object in a JSON file; what is damaged or absent has its default."""
    content = read_object(path).value
    wrong = _wrong(content, kind, get_type_hints(kind))
    return convert({name: value for name, value in content.items() if name not in wrong}, kind)


def read_entries(path: Path, kind: type) -> Content[Mapping[str, Any]]:
    """The entries of the type that `kind` (a dataclass or TypedDict) declares; the rest is in `damage`."""
    content = read_object(path)
    if _trusts or not (wrong := _wrong(content.value, _shape_of(kind), _shape_of(kind).__annotations__)):
        return content
    some = ", ".join(wrong[:3]) + (" ..." if len(wrong) > 3 else "")
    usable = {name: value for name, value in content.value.items() if name not in wrong}
    return Content(usable, f"{path.name} is damaged, {some} left out")


def _wrong(content: Mapping[str, Any], kind: Any, hints: Mapping[str, Any]) -> list[str]:
    if _is(content, kind):
        return []
    hints = {name: get_args(hint)[0] if get_origin(hint) is NotRequired else hint for name, hint in hints.items()}
    return [name for name, value in content.items() if name in hints and not _is(value, hints[name])]


def _is(value: Any, hint: Any) -> bool:
    try:
        convert(value, hint)
    except Damaged:
        return False
    return True


# ---- lines, and the types for msgspec ------------------------------------------------------------


def decoder(hints: Mapping[str, Any], name: str) -> Callable[[bytes], dict[str, Any]]:
    """Return the function that reads a line with the time `t` in Unix seconds, the `type` called `name` (empty: any),
    and entries of these types, which may be absent. Other entries are left out. It raises ValueError or RecursionError.
    """
    if _trusts:
        return json.loads
    moment = Annotated[float, _msgspec().Meta(ge=0.0, le=LATEST_T)]
    shape = _shape(hints, t=moment, type=Literal[name] if name else str)
    decode: Callable[[bytes], dict[str, Any]] = _msgspec().json.Decoder(shape).decode
    return decode


def has_any(hint: Any) -> bool:
    """Return True if values of the type may have mappings of any depth."""
    declares = is_dataclass(hint) or is_typeddict(hint)
    return hint is Any or any(map(has_any, get_type_hints(hint).values() if declares else get_args(hint)))


@cache
def _shape_of(kind: Any, needed: tuple[str, ...] = ()) -> Any:
    # A mapping with the fields of a dataclass or TypedDict, of which some must be present.
    hints = get_type_hints(kind, include_extras=True).items()
    return _shape({name: hint for name, hint in hints if get_origin(hint) is not ClassVar}, needed)


def _without_default(kind: Any) -> tuple[str, ...]:
    if is_dataclass(kind):
        return tuple(field.name for field in fields(kind) if field.default is field.default_factory is MISSING)
    hints = get_type_hints(kind, include_extras=True).items()
    return tuple(name for name, hint in hints if kind.__total__ and get_origin(hint) is not NotRequired)


def _shape(hints: Mapping[str, Any], needed: Sequence[str] = (), **more: Any) -> Any:
    checked = {name: _checked(hint) for name, hint in hints.items()}
    entries = {name: each if name in needed else NotRequired[each] for name, each in checked.items()}
    return TypedDict("Shape", entries | more)  # type: ignore[operator]


def _checked(hint: Any) -> Any:
    """The type for msgspec. `Annotated[Mapping, KIND, NAMES]` has what KIND declares, always those NAMES."""
    origin, parts = get_origin(hint), get_args(hint)
    if hint in (float, int):  # numbers that figures can have
        most = LARGEST if hint is float else LARGEST_WHOLE
        return Annotated[hint, _msgspec().Meta(ge=-most, le=most)]
    if origin is Literal:  # another version of gputui may have more words
        return str
    if is_dataclass(hint) or is_typeddict(hint):
        return _shape_of(hint, _without_default(hint))
    if origin is Annotated:
        return _shape_of(parts[1], parts[2:])
    if origin is NotRequired:
        return _checked(parts[0])
    checked = tuple(_checked(part) for part in parts)
    if origin in (Union, types.UnionType):
        return Union[checked]  # noqa: UP007 - of any number
    if origin is tuple:
        return tuple[checked]  # type: ignore[valid-type]
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return dict.__class_getitem__(checked)
    return list.__class_getitem__(checked) if origin else hint
