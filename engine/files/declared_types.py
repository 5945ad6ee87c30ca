"""Tests whether a value from a file has its declared type, so that its reader need not check again.

The declarations are the type hints of dataclasses, such as the events in runs/events.py. The test of a dataclass is
made once. Annotated[Mapping[str, Any], Fields(...)] declares the entries of a mapping.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from .values import LARGEST, LARGEST_WHOLE, number, whole

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
