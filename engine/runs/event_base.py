"""The base class of events, and what stands for a field that a file lacks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Literal, get_origin, get_type_hints

from ..files.values import EMPTY

T_DIGITS = 4  # decimals of `t` in a file: 0.1 ms


@dataclass(frozen=True, kw_only=True)
class Event:
    """Base of all events; `type` is the value in the JSON.

    An event that has been read has its time `t` (Unix seconds) and its `run`. Of a field that the file lacks, as that
    of another version of gputui may, nothing is known: lists, mappings and texts are empty, anything else is None.
    """

    type: ClassVar[str]
    t: ClassVar[float]
    run: ClassVar[str]

    if not TYPE_CHECKING:

        def __getattr__(self, name):
            return _absent(type(self))[name] if name in _absent(type(self)) else object.__getattribute__(self, name)


@cache
def _absent(kind: type[Event]) -> Mapping[str, Any]:
    """What stands for a field that is absent and has no default."""
    return {name: _nothing(hint) for name, hint in get_type_hints(kind).items() if get_origin(hint) is not ClassVar}


def _nothing(hint: Any) -> Any:
    origin = get_origin(hint) or hint
    if origin is str or origin is Literal:
        return ""
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return EMPTY
    return () if isinstance(origin, type) and issubclass(origin, Sequence) else None


def fields_of(event: Event) -> dict[str, Any]:
    """All that the file has of an event that has been read, with `t`, `type` and `run`."""
    return vars(event)
