"""Checks values with pydantic models made from the options' declarations, and derives the JSON Schema of presets.
Importing pydantic and making the models takes 0.2 s, longer than a screen may take to its first paint.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, fields
from functools import cache
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, ValidationError, ValidationInfo, create_model, field_validator

from . import GROUPS, SCHEMA_VERSION, Options
from .catalogue import default_of, literals


class _Checked(BaseModel):
    """Base of the pydantic models. Types are strict; unknown names and control characters are refused."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _words_that_yaml_reads_as_booleans(cls, value: Any, info: ValidationInfo) -> Any:
        if isinstance(value, bool) and info.field_name:
            word = "on" if value else "off"
            if word in literals(cls.model_fields[info.field_name].annotation):
                return word
        if isinstance(value, str) and any(ord(character) < 32 for character in value):
            raise ValueError  # as for a value of another type, the message says what is allowed
        return value


class MisfitsError(Exception):
    """The keys of options that do not accept their values, or unknown keys, each with the reason that the option's own
    check gives, if any.
    """

    def __init__(self, reasons: Mapping[str, str]) -> None:
        super().__init__(", ".join(reasons))
        self.reasons = reasons


def validated(values: Mapping[str, Mapping[str, Any]]) -> Options:
    """The values are by group and name; other options have their defaults. Raises MisfitsError."""
    try:
        checked = model().model_validate(values)
    except ValidationError as fault:
        # pydantic reports an error for each type of a union
        reasons: dict[str, str] = {}
        for error in fault.errors():
            reasons[".".join(map(str, error["loc"][:2]))] = str(error.get("ctx", {}).get("error", ""))
        raise MisfitsError(reasons) from None
    groups: dict[str, Any] = {name: group(**vars(getattr(checked, name))) for name, group in GROUPS.items()}
    return Options(**groups)


def _raising_unless(allows: Callable[[Any], object]) -> Callable[[Any], Any]:
    def checked(value: Any) -> Any:
        if value is None or allows(value):
            return value
        raise ValueError

    return checked


@cache
def model() -> type[BaseModel]:
    """Return the model of all options, with one model for each group. It is made once."""
    groups: dict[str, Any] = {}
    for group_name, group in GROUPS.items():
        hints = get_type_hints(group, include_extras=True)
        declared: dict[str, Any] = {}
        validators: dict[str, Any] = {}
        for info in fields(group):  # type: ignore[arg-type]
            about, limits = info.metadata["about"], info.metadata["limits"]
            extra: dict[str, Any] = {"about": asdict(about)}
            of_option = Field(default_of(info), description=about.help, json_schema_extra=extra, **limits)
            declared[info.name] = hints[info.name], of_option
            if reads := info.metadata["reads"]:
                validators[f"{info.name}_reads"] = field_validator(info.name, mode="before")(staticmethod(reads))
            if checks := info.metadata["checks"]:
                checks = _raising_unless(checks)
                validators[f"{info.name}_checks"] = field_validator(info.name, mode="after")(staticmethod(checks))
        checked = create_model(
            group.__name__, __base__=_Checked, __doc__=group.__doc__, __validators__=validators, **declared
        )
        groups[group_name] = checked, Field(default_factory=checked)
    return create_model("Options", __base__=_Checked, __doc__=Options.__doc__, **groups)


# ---- the JSON Schema of presets ----------------------------------------------------------------


def preset_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12). Every key may be left out, and unknown keys are refused."""
    schema = model().model_json_schema()
    for group in schema["$defs"].values():
        for field in group["properties"].values():
            about = field.pop("about", None)
            if about:
                more = (f"{name}: {about[name]}" for name in ("call", "helps", "hurts", "unit") if about[name])
                field["description"] = "\n".join([about["help"], *more])
    head = {
        "schema_version": {"const": SCHEMA_VERSION, "description": "version of the preset format"},
        "description": {"type": "string", "description": "what the preset is for, in one line"},
        "sweep": {
            "type": "object",
            "description": "options of gputui sweep (docs/sweeps-and-queue.md), which a run ignores",
        },
        "extends": {
            "type": "string",
            "minLength": 1,
            "description": "name or path of a preset whose values this one overrides",
        },
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "gputui preset",
        "type": "object",
        "additionalProperties": False,
        "properties": head
        | {name: {"anyOf": [{"$ref": schema["properties"][name]["$ref"]}, {"type": "null"}]} for name in GROUPS},
        "$defs": schema["$defs"],
    }
