"""How an option is declared: a pydantic field with its help, unit and TensorFlow call.

Everything that is derived from the declarations is in catalogue.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator

from .own import Own


@dataclass(frozen=True)
class About:
    """What a person is told about an option, beside its type and range.

    `call` is the very TensorFlow or Keras call that obeys it. `gpu_only` means that it
    does nothing on a machine without an NVIDIA GPU. `own` tells to which of a user's own trainings (workload.entry) it
    applies; own.py says what the words mean. `not_offered` are words that TensorFlow has and gputui refuses, with why.
    """

    help: str
    call: str = ""
    helps: str = ""
    hurts: str = ""
    unit: str = ""
    gpu_only: bool = False
    own: Own = "applies"
    not_offered: Mapping[str, str] = field(default_factory=dict)


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
    not_offered: Mapping[str, str] | None = None,
    **limits: Any,
) -> Any:
    """Declare an option; `limits` are pydantic's (`ge`, `le`, `gt`, `min_length` ...)."""
    about = About(help, call, helps, hurts, unit, gpu_only, own, not_offered or {})
    return Field(default, description=help, json_schema_extra={"about": asdict(about)}, **limits)


def literals(annotation: Any) -> tuple[str, ...]:
    """The fixed words that an annotation accepts, including `off` and `auto` inside a union."""
    words: list[str] = []
    for part in get_args(annotation):
        if isinstance(part, str):
            words.append(part)
        else:
            words.extend(literals(part))
    return tuple(words)


class Group(BaseModel):
    """A group of options: strict types, unknown names and control characters refused, immutable."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _words_that_yaml_reads_as_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        """YAML 1.1 reads a bare `off` or `on` as a boolean; for an option with that word, the word is used."""
        if isinstance(value, bool) and info.field_name:
            word = "on" if value else "off"
            if word in literals(cls.model_fields[info.field_name].annotation):
                return word
        if isinstance(value, str) and any(ord(character) < 32 for character in value):
            raise ValueError("control characters")
        return value
