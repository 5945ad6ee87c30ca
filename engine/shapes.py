"""Whether a value has the form that is declared for it, so that whoever reads a file need not doubt its types.

Separates the declaration, which is the type hints of events.py, from the test of what stands in a file. A form is made
from its hints once; Annotated[Mapping[str, Any], Fields(...)] declares what is in a mapping.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, ClassVar, Union, get_args, get_origin, get_type_hints

from .values import LARGEST, LARGEST_WHOLE, number, whole

Fits = Callable[[Any], bool]
_SCALARS: Mapping[Any, Fits] = {
    Any: lambda value: True,
    bool: lambda value: type(value) is bool,
    float: lambda value: number(value) is not None,
    int: lambda value: whole(value) is not None,
    str: lambda value: type(value) is str,
    type(None): lambda value: value is None,
}
_KINDS: Mapping[Any, tuple[type, ...]] = {
    bool: (bool,), float: (float, int), int: (int,), str: (str,), type(None): (type(None),),
}


@dataclass(frozen=True, eq=False)
class Fields:
    """The types of a mapping's entries by name, or the dataclass that declares them; others may stand beside them.

    The `needed` ones must be there.
    """

    of: Mapping[str, Any] | type
    needed: tuple[str, ...] = ()


class Form:
    """What the named entries of a mapping must be. An entry that is absent fits: readers do without it."""

    def __init__(self, hints: Mapping[str, Any]) -> None:
        self._kinds = {name: _kinds(hint) for name, hint in hints.items()}
        self._fits = {name: fits(hint) for name, hint in hints.items()}

    def holds(self, found: Mapping[str, Any]) -> bool:
        """Whether every declared entry is what it is declared to be; in one pass, as files have many lines."""
        kinds = self._kinds
        for name, value in found.items():
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

    def wrong(self, found: Mapping[str, Any]) -> list[str]:
        """The names of the entries that are not what they are declared to be."""
        return [name for name, value in found.items() if name in self._fits and not self._fits[name](value)]


@cache
def form_of(declared: Any) -> Form:
    """The form of a dataclass's fields."""
    hints = get_type_hints(declared, include_extras=True)
    return Form({name: hint for name, hint in hints.items() if get_origin(hint) is not ClassVar})


def fits(hint: Any) -> Fits:
    """The test for a type hint, of the kinds that stand in events.py."""
    if hint in _SCALARS:
        return _SCALARS[hint]
    origin, inner = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _declared(*inner)
    if origin in (Union, types.UnionType):
        members = [fits(member) for member in inner]
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


def _declared(hint: Any, *remarks: Fields) -> Fits:
    outer, (fields,) = fits(hint), remarks
    form = form_of(fields.of) if isinstance(fields.of, type) else Form(fields.of)
    return lambda value: outer(value) and all(name in value for name in fields.needed) and form.holds(value)


def _each(parts: Sequence[Fits], values: Sequence[Any]) -> list[bool]:
    return [part(value) for part, value in zip(parts, values, strict=True)]


def _kinds(hint: Any) -> frozenset[type]:
    """The exact types of values that need no test but that of their size."""
    members = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    return frozenset(kind for member in members for kind in _KINDS.get(member, ()))
