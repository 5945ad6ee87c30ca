"""Derived from the declarations of options: a flat list, their types in words, and look-up by key.

Views, presets and documents use this; nothing here knows a single option by name.
"""

from __future__ import annotations

import difflib
import types
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from .field import About


@dataclass(frozen=True)
class OptionInfo:
    """An option for the views. `key` is `group.name`; `accepts` says in words what values it accepts."""

    group: str
    name: str
    default: Any
    choices: tuple[str, ...]
    accepts: str
    is_bool: bool
    is_number: bool
    about: About

    @property
    def key(self) -> str:
        return f"{self.group}.{self.name}"

    @property
    def fixed_values(self) -> tuple[str, ...]:
        """The fixed values it can be switched between: its words, and true and false where it takes them."""
        return (*self.choices, "true", "false") if self.is_bool and self.choices else self.choices


def catalogue(model: type[BaseModel]) -> tuple[OptionInfo, ...]:
    """All options of a model whose fields are option groups, in the order of declaration."""
    found = []
    for group, field in model.model_fields.items():
        assert field.annotation is not None
        for name, info in field.annotation.model_fields.items():
            found.append(_describe(group, name, info))
    return tuple(found)


def by_key(options: Iterable[OptionInfo]) -> dict[str, OptionInfo]:
    return {info.key: info for info in options}


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """`, did you mean X?` or nothing."""
    near = nearest(word, known)
    return f", did you mean {near}?" if near else ""


def nearest(word: str, known: Iterable[str]) -> str | None:
    """The known word that is most similar to this one, if any is similar."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return near[0] if near else None


def _describe(group: str, name: str, info: FieldInfo) -> OptionInfo:
    extra = info.json_schema_extra
    assert isinstance(extra, dict)
    about = About(**extra["about"])  # type: ignore[arg-type]
    parts = list(_parts(info.annotation, tuple(info.metadata)))
    choices = tuple(word for part, _ in parts if get_origin(part) is Literal for word in get_args(part))
    kinds = {part for part, _ in parts}
    return OptionInfo(
        group=group,
        name=name,
        default=info.get_default(call_default_factory=True),
        choices=choices,
        accepts=_in_words(parts, about),
        is_bool=bool in kinds,
        is_number=bool({int, float} & kinds),
        about=about,
    )


def _parts(annotation: Any, metadata: tuple[Any, ...]) -> Iterable[tuple[Any, tuple[Any, ...]]]:
    """The types of a union, with the limits of each."""
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        limits = [limit for item in more for limit in (item.metadata if isinstance(item, FieldInfo) else [item])]
        yield from _parts(inner, metadata + tuple(limits))
    elif origin in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _parts(part, metadata)
    else:
        yield annotation, metadata


def _in_words(parts: list[tuple[Any, tuple[Any, ...]]], about: About) -> str:
    words: list[str] = []
    for part, limits in parts:
        if get_origin(part) is Literal:
            words.extend(get_args(part))
        elif get_origin(part) is list:
            words.append("a list such as [0, 1]")
        elif get_origin(part) is dict:
            words.append("a mapping such as {lr: 0.1}")
        elif part is bool:
            words.extend(("true", "false"))
        elif part is type(None):
            words.append("null")
        elif part in (int, float):
            words.append(("a whole number" if part is int else "a number") + _range(limits))
        else:
            words.append("text: " + about.help)
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1]


def _range(limits: tuple[Any, ...]) -> str:
    low = high = ""
    for limit in limits:
        if isinstance(limit, annotated_types.Ge):
            low = f" from {limit.ge}"
        elif isinstance(limit, annotated_types.Gt):
            low = f" above {limit.gt}"
        elif isinstance(limit, annotated_types.Le):
            high = f" to {limit.le}"
        elif isinstance(limit, annotated_types.Lt):
            high = f", below {limit.lt}"
    return low + high
