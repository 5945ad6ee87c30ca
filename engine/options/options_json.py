"""Options as plain JSON, for the trainer, whose interpreter need not have pydantic or a reader of YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from . import GROUPS, PRIVATE, Options

FILE = "options.json"  # in a run folder, made from its preset.yaml


def to_json(options: Options) -> str:
    return of_values(asdict(options))


def of_values(values: Mapping[str, Any]) -> str:
    """Leave out private groups and keys that are not groups; each other group must be present."""
    return json.dumps({group: values[group] for group in GROUPS if group not in PRIVATE}, indent=1)


def from_json(text: str) -> Options:
    """Private options have their defaults; values are not checked again. Raises ValueError, TypeError or KeyError."""
    values = json.loads(text)
    groups: dict[str, Any] = {name: group(**values[name]) for name, group in GROUPS.items() if name not in PRIVATE}
    return Options(**groups)
