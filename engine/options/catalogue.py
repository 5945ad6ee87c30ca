"""Makes from the declarations of options a flat list, with their types in words, and finds options by key.

Views, presets and documents use this module. It names no single option.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import Field, field, fields, replace
from typing import Annotated, Any, ClassVar, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from ..frozen import dataclass
from .own_code import Own

Check = TypeVar("Check", bound=Callable[..., Any])


@dataclass(frozen=True)
class About:
    """The texts about an option that are not its type and range.

    `helps` and `hurts` are its advantage and its cost. `call` is the TensorFlow or Keras call that the option sets.
    `gpu_only`: it has no effect without an NVIDIA GPU. `own` is the condition on which it applies to a user's own
    training (own_code.py). `part` names a part of its group that the form folds while no option in it is used.
    `not_offered` has words that TensorFlow accepts and gputui refuses, with the reason for each. `examples` are values
    that the form offers while one types, besides the fixed words.

    `learning` is the effect of a change on what a model learns. It is empty if the model learns the same.
    `not_exported` is the reason why an exported script has no line for the option although it was changed. It is empty
    for an option that always has a line. `other_names` are names of the option in other frameworks, in TensorFlow's
    calls and in everyday language.
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
    examples: tuple[str, ...] = ()
    learning: str = ""
    not_exported: str = ""
    other_names: tuple[str, ...] = ()


class Limits:
    """Limits of one type inside a union or list, named as in pydantic: `ge`, `gt`, `le`, `lt`, `max_length`, `pattern`.

    `words` describe the type to a user if its name and its range do not.
    """

    def __init__(self, words: str = "", **limits: Any) -> None:
        self.limits, self.words = limits, words

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Return pydantic's schema of the type `source` with these limits. Pydantic calls this method for an object in
        `Annotated`.
        """
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
    examples: tuple[str, ...] = (),
    learning: str = "",
    not_exported: str = "",
    other_names: str = "",
    **limits: Any,
) -> Any:
    """Declare an option of a group; the result is a dataclass field.

    `other_names` are separated by blanks. `limits` are pydantic's (`ge`, `le`, `gt`, `min_length` ...). The other
    parameters are described at `About`.
    """
    about = About(
        help, call, helps, hurts, unit, gpu_only, own, part, not_offered or {}, examples, learning, not_exported,
        tuple(other_names.split()),
    )  # fmt: skip
    metadata = {"about": about, "limits": limits}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def check(name: str, before: bool = False) -> Callable[[Check], Check]:
    """Return a decorator for a static method of a group that gets a value of the option `name` and returns the value to
    use.

    The method raises ValueError for a wrong value. With `before` it gets the value as written, before its type is
    checked, to translate other spellings.
    """

    def mark(function: Check) -> Check:
        function.__dict__["checks"] = name, before
        return function

    return mark


class Group:
    """A group of options: a frozen dataclass whose fields are declared by `option`.

    `learning` is the effect of each of its options on what a model learns, unless the option declares its own.
    `private`: its values may be secrets and do not concern the training. Titles, comparisons, reports, exported folders
    and the trainer do not get them.
    """

    learning: ClassVar[str] = ""
    private: ClassVar[bool] = False


def default_of(info: dataclasses.Field[Any]) -> Any:
    return info.default if info.default_factory is dataclasses.MISSING else info.default_factory()


def literals(annotation: Any) -> tuple[str, ...]:
    """Return the fixed words that a type annotation accepts, such as `off` and `auto`, also those inside a union."""
    return tuple(_words(annotation))


def _words(annotation: Any) -> Iterator[str]:
    for part in get_args(annotation):
        if isinstance(part, str):
            yield part
        else:
            yield from _words(part)


@dataclass(frozen=True)
class OptionInfo:
    """An option as the views need it: its key, its default and the rest of its declaration.

    `choices` are its fixed words, and `only_choices` is True if it accepts nothing else. `accepts` describes in words
    the values that it accepts. `is_bool` and `is_number` say whether it accepts booleans and numbers.
    """

    group: str
    name: str
    default: Any
    choices: tuple[str, ...]
    only_choices: bool
    accepts: str
    is_bool: bool
    is_number: bool
    about: About

    @property
    def key(self) -> str:
        return f"{self.group}.{self.name}"

    @property
    def fixed_values(self) -> tuple[str, ...]:
        """The fixed words that it accepts, and `true` and `false` if it also accepts booleans.

        Empty for a plain boolean.
        """
        return (*self.choices, "true", "false") if self.is_bool and self.choices else self.choices


def catalogue(groups: Mapping[str, type[Group]]) -> tuple[OptionInfo, ...]:
    """Return all options of the groups, in the order of declaration."""
    infos = []
    for name, group in groups.items():
        types_of = get_type_hints(group, include_extras=True)
        infos += [_describe(name, group, info, types_of[info.name]) for info in fields(group)]  # type: ignore[arg-type]
    return tuple(infos)


def by_key(options: Iterable[OptionInfo]) -> dict[str, OptionInfo]:
    return {info.key: info for info in options}


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Return `, did you mean X?` with the most similar of the words, or an empty text if none is similar."""
    near = nearest(word, words)
    return f", did you mean {near}?" if near else ""


def nearest(word: str, words: Iterable[str]) -> str | None:
    """Return the most similar of the words; None if none is similar."""
    near = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return near[0] if near else None


def _describe(name: str, group: type[Group], info: Field[Any], annotation: Any) -> OptionInfo:
    about: About = info.metadata["about"]
    parts = list(_parts(annotation, info.metadata["limits"]))
    choices = tuple(word for part, _ in parts if get_origin(part) is Literal for word in get_args(part))
    kinds = {part for part, _ in parts}
    return OptionInfo(
        group=name,
        name=info.name,
        default=default_of(info),
        choices=choices,
        only_choices=all(get_origin(part) is Literal for part, _ in parts),
        accepts=_in_words(parts, about),
        is_bool=bool in kinds,
        is_number=bool({int, float} & kinds),
        about=about if about.learning or not group.learning else replace(about, learning=group.learning),
    )


def _parts(annotation: Any, limits: Mapping[str, Any]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Yield each type of a union in a type annotation with its limits; for another annotation, its type with
    `limits`.
    """
    origin = get_origin(annotation)
    if origin is Annotated:
        inner, *more = get_args(annotation)
        limiting = [item for item in more if isinstance(item, Limits)]
        own = {name: value for item in limiting for name, value in {**item.limits, "words": item.words}.items()}
        yield from _parts(inner, {**limits, **own})
    elif origin in (Union, types.UnionType):
        for part in get_args(annotation):
            yield from _parts(part, limits)
    else:
        yield annotation, limits


def _in_words(parts: list[tuple[Any, Mapping[str, Any]]], about: About) -> str:
    words: list[str] = []
    for part, limits in parts:
        if limits.get("words"):
            words.append(limits["words"])
        elif get_origin(part) is Literal:
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


def _range(limits: Mapping[str, Any]) -> str:
    low = f" from {limits['ge']:,}" if "ge" in limits else f" above {limits['gt']:,}" if "gt" in limits else ""
    high = f" to {limits['le']:,}" if "le" in limits else f", below {limits['lt']:,}" if "lt" in limits else ""
    return low + high
