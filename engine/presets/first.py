"""The preset that the form opens with, which is painted before YAML and pydantic have been imported.

first.json beside the presets holds what resolving the file gave, with the text that it was made of: `make docs`
writes it. It counts only while the file has this very text; else the file is resolved as any other.
"""

from __future__ import annotations

import json
from typing import Any

from ..files.places import SHIPPED_PRESETS as SHIPPED
from ..options import GROUPS, Options
from .preset import Preset
from .resolving import resolve

FIRST = SHIPPED / "quickstart.yaml"
MADE = SHIPPED / "first.json"


def first() -> Preset:
    """The preset, resolved; raises PresetError where its file was changed and is wrong."""
    try:
        made = json.loads(MADE.read_text(encoding="utf-8"))
        if made["text"] == FIRST.read_text(encoding="utf-8"):
            return _preset(made)
    except (OSError, ValueError, KeyError, TypeError):
        pass  # an incomplete installation: the file itself decides
    return resolve(str(FIRST))


def as_made() -> dict[str, Any]:
    """What first.json has to hold."""
    preset = resolve(str(FIRST))
    values: dict[str, dict[str, Any]] = {}
    for key in preset.origins:
        group, name = key.split(".")
        values.setdefault(group, {})[name] = getattr(getattr(preset.options, group), name)
    lines = {key: line for key, (_, line) in preset.origins.items()}
    text = FIRST.read_text(encoding="utf-8")
    return {"text": text, "description": preset.description, "values": values, "lines": lines}


def _preset(made: dict[str, Any]) -> Preset:
    groups: dict[str, Any] = {name: group(**made["values"].get(name, {})) for name, group in GROUPS.items()}
    origins = {key: (str(FIRST), line) for key, line in made["lines"].items()}
    return Preset(FIRST.stem, Options(**groups), made["description"], origins, FIRST)
