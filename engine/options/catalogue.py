"""Makes from the declarations of options a flat list, with their types in words, and finds options by key."""

from __future__ import annotations

import dataclasses
import difflib
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass, field, fields, replace
from typing import Annotated, Any, ClassVar, Literal, Union, get_args, get_origin, get_type_hints

from .own_code import Own


@dataclass(frozen=True)
class About:
    """The texts about an option that are not its type and range."""

    help: str
    call: str = ""  # of TensorFlow or Keras, which the option sets
    helps: str = ""  # its advantage
    hurts: str = ""  # its cost
    unit: str = ""
    gpu_only: bool = False  # no effect without an NVIDIA GPU
    own: Own = "applies"  # the condition on which it applies to a user's own training (own_code.py)
    part: str = ""  # of its group: options that have an effect only together
    essential: int = 0  # its place among the options that the form shows first; 0: it is not one of them
    label: str = ""  # its name there, if the name alone says too little without its group
    not_offered: Mapping[str, str] = field(default_factory=dict)  # words of TensorFlow that gputui refuses, and why
    examples: tuple[str, ...] = ()  # values that the form offers while one types, besides the fixed words
    learning: str = ""  # the effect of a change on what a model learns; empty if it learns the same
    not_exported: str = ""  # why an exported script has no line for it although it was changed
    other_names: tuple[str, ...] = ()  # in other frameworks, in TensorFlow's calls and in everyday language


_TEXTS = {info.name for info in fields(About)}


class Limits:
    """The limits of one type inside a union or list, named as in pydantic: `ge`, `gt`, `le`, `lt`, `max_length`,
    `pattern`. `words` describe the type to a user if its name and its range do not.
    """

    def __init__(self, words: str = "", **limits: Any) -> None:
        self.limits, self.words = limits, words

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> Any:
        """Pydantic calls this for an object in `Annotated`."""
        return handler(source) | self.limits


def option(
    default: Any,
    help: str,
    *,
    other_names: str = "",
    reads: Callable[[Any], Any] | None = None,
    checks: Callable[[Any], object] | None = None,
    **texts_and_limits: Any,
) -> Any:
    """A field of a group, as a dataclass has it. `other_names` are separated by blanks. `reads` translates other
    spellings of a value before its type is checked; `checks` then tells whether a value other than None is allowed.
    The rest are fields of `About` and limits of pydantic (`ge`, `le`, `gt`, `min_length` ...).
    """
    texts = {name: texts_and_limits.pop(name) for name in _TEXTS & texts_and_limits.keys()}
    about = About(help, other_names=tuple(other_names.split()), **texts)
    metadata = {"about": about, "limits": texts_and_limits, "reads": reads, "checks": checks}
    if isinstance(default, list | dict):
        return field(default_factory=lambda: copy(default), metadata=metadata)
    return field(default=default, metadata=metadata)


def off_if_false(value: object) -> object:
    """For `reads` of an option that takes `off`: YAML reads that word as false."""
    return "off" if value is False else value


class Group:
    """A frozen dataclass whose fields are declared by `option`. `learning` holds unless the option declares its own.
    `private`: its values may be secrets; titles, comparisons, reports, exported folders and the trainer do not get
    them.
    """

    learning: ClassVar[str] = ""
    private: ClassVar[bool] = False


def default_of(info: dataclasses.Field[Any]) -> Any:
    return info.default if info.default_factory is dataclasses.MISSING else info.default_factory()


def literals(annotation: Any) -> tuple[str, ...]:
    """The fixed words that a type annotation accepts, such as `off` and `auto`, also those inside a union."""
    parts = ((part,) if isinstance(part, str) else literals(part) for part in get_args(annotation))
    return tuple(word for words in parts for word in words)


@dataclass(frozen=True)
class OptionInfo:
    """An option as the views need it. `choices` are its fixed words, and `only_choices`: it accepts nothing else."""

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
        """The words, and `true` and `false` if it also accepts booleans; empty for a plain boolean."""
        return (*self.choices, "true", "false") if self.is_bool and self.choices else self.choices


def catalogue(groups: Mapping[str, type[Group]]) -> tuple[OptionInfo, ...]:
    """Return the options in the order of declaration."""
    infos = []
    for name, group in groups.items():
        types_of = get_type_hints(group, include_extras=True)
        for info in fields(group):  # type: ignore[arg-type]
            about: About = info.metadata["about"]
            parts = list(_parts(types_of[info.name], info.metadata["limits"]))
            choices = tuple(word for part, _ in parts if get_origin(part) is Literal for word in get_args(part))
            only_choices = all(get_origin(part) is Literal for part, _ in parts)
            kinds = {part for part, _ in parts}
            infos.append(OptionInfo(
                name, info.name, default_of(info), choices, only_choices, _in_words(parts, about),
                is_bool=bool in kinds, is_number=bool({int, float} & kinds),
                about=replace(about, learning=about.learning or group.learning),
            ))  # fmt: skip
    return tuple(infos)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """`, did you mean X?` with the most similar word, if any."""
    near = nearest(word, words)
    return f", did you mean {near}?" if near else ""


def nearest(word: str, words: Iterable[str]) -> str | None:
    near = difflib.get_close_matches(word, list(words), n=1, cutoff=0.6)
    return near[0] if near else None


def _parts(annotation: Any, limits: Mapping[str, Any]) -> Iterator[tuple[Any, Mapping[str, Any]]]:
    """Each type of a union with its limits; of another annotation its type with `limits`."""
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
