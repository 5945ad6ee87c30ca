"""The JSON Schema of presets, derived from the options: editors complete and check with it."""

from __future__ import annotations

from typing import Any

from . import GROUPS, SCHEMA_VERSION
from .validation import model


def preset_schema() -> dict[str, Any]:
    """JSON Schema, draft 2020-12; every key may be left out, none may be unknown."""
    schema = model().model_json_schema()
    for group in schema["$defs"].values():
        for field in group["properties"].values():
            about = field.pop("about", None)
            if about:
                field["description"] = _told(about)
    head = {
        "schema_version": {"const": SCHEMA_VERSION, "description": "version of the preset format"},
        "description": {"type": "string", "description": "what the preset is for, in one line"},
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
        "properties": head | {name: _group(name, schema) for name in GROUPS},
        "$defs": schema["$defs"],
    }


def _group(name: str, schema: dict[str, Any]) -> dict[str, Any]:
    """A group in a preset may also be empty."""
    return {"anyOf": [{"$ref": schema["properties"][name]["$ref"]}, {"type": "null"}]}


def _told(about: dict[str, Any]) -> str:
    parts = [about["help"]]
    parts += [f"{name}: {about[name]}" for name in ("call", "helps", "hurts", "unit") if about[name]]
    return "\n".join(parts)
