"""Makes the records of proofs from plain values, as tests write them down: a needed field that they lack is empty."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from tests.doors.engine import Record, completed, of_plain

Declared = TypeVar("Declared")
_EMPTY: Mapping[Any, Any] = {str: "", int: 0, float: 0.0, bool: False, Path: Path()}


def typed(declared: type[Declared], plain: Any) -> Declared:
    """An instance of the dataclass, with those that it contains; other values are left out."""
    if isinstance(plain, declared):
        return plain
    made: Any = declared
    hints = get_type_hints(declared)
    values = {}
    for field in fields(made):
        hint = hints[field.name]
        given = plain.get(field.name)
        if given is not None or (field.name in plain and NoneType in get_args(hint)):
            values[field.name] = _value(hint, given)
        elif field.default is MISSING and field.default_factory is MISSING:
            values[field.name] = _empty(hint)
    return declared(**values)


def _value(hint: Any, given: Any) -> Any:
    inner: Any = next((part for part in (hint, *get_args(hint)) if is_dataclass(part)), None)
    if inner is None or given is None:
        return given
    return [typed(inner, item) for item in given] if isinstance(given, list | tuple) else typed(inner, given)


def _empty(hint: Any) -> Any:
    if hint in _EMPTY:
        return _EMPTY[hint]
    if NoneType in get_args(hint):
        return None
    origin = get_origin(hint)
    if is_dataclass(hint):
        return typed(hint, {})  # type: ignore[arg-type]
    return {} if isinstance(origin, type) and issubclass(origin, Mapping) else []


def as_read(plain: Mapping[str, Any]) -> Record:
    """The record that a reader of a proof.json with these values gets."""
    path = Path("proof.json")
    return of_plain(path, completed(Record, {**plain, "path": path}) or {})
