"""How an option is declared: a field of a frozen dataclass with its help, unit, limits and TensorFlow call.

Declaring costs little, so that everything may import the options: the modules that declare them do not put off the
evaluation of annotations (`from __future__ import annotations`), as catalogue.py needs the type of each option at once,
and evaluating text takes longer. validation.py makes pydantic models of the declarations, once values are to be
checked; catalogue.py derives everything else.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar, get_args

from .own import Own

Check = TypeVar("Check", bound=Callable[..., Any])


@dataclass(frozen=True)
class About:
    """The texts about an option that are not its type and range.

    `call` is the TensorFlow or Keras call that obeys it. `gpu_only`: it has no effect without an NVIDIA GPU. `own` says
    to which of a user's own trainings (workload.entry) it applies; own.py explains the words. `part` names a part of
    its group that the form folds while no option in it is used. `not_offered` are words that TensorFlow has and gputui
    refuses, with the reason.
    """

    help: str
    call: str = ""
    helps: str = ""
    hurts: str = ""
    unit: str = ""
    gpu_only: bool = False
    own: Own = "applies"
    part: str = ""
    not_offered: Mapping[str, str] = field(default_factory=dict)


class Limits:
    """Limits of one type inside a union or list: pydantic's `ge`, `gt`, `le`, `lt`, `max_length`, `pattern`.

    `words` describe the type to a user if its name and its range do not.
    """

    def __init__(self, words: str = "", **limits: Any) -> None:
        self.limits, self.words = limits, words

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """The hook by which pydantic reads an object in `Annotated` ("Custom types" in its documents)."""
        return handler(source) | self.limits


def option(
    default: Any,
    help: str,
    *,
    call: str = "",
    helps: str = "",
    hurts: str = "",
    unit: str = "",
    gpu_only: bool = False,
    own: Own = "applies",
    part: str = "",
    not_offered: Mapping[str, str] | None = None,
    **limits: Any,
) -> Any:
    """Declare an option; `limits` are pydantic's (`ge`, `le`, `gt`, `min_length` ...)."""
    about = About(help, call, helps, hurts, unit, gpu_only, own, part, not_offered or {})
    metadata = {"about": about, "limits": limits}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def check(name: str, before: bool = False) -> Callable[[Check], Check]:
    """Mark a static method of a group that checks the value of the option `name` and returns it; raises ValueError.

    With `before` it gets the value as written, before its type is checked, to translate other spellings.
    """

    def mark(function: Check) -> Check:
        function.__dict__["checks"] = name, before
        return function

    return mark


class Group:
    """A group of options: a frozen dataclass whose fields are declared by `option`."""


def default_of(info: dataclasses.Field[Any]) -> Any:
    return info.default if info.default_factory is dataclasses.MISSING else info.default_factory()


def literals(annotation: Any) -> tuple[str, ...]:
    """The fixed words that an annotation accepts, including `off` and `auto` inside a union."""
    return tuple(_words(annotation))


def _words(annotation: Any) -> Iterator[str]:
    for part in get_args(annotation):
        if isinstance(part, str):
            yield part
        else:
            yield from _words(part)
