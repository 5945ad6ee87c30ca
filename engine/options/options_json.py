"""Options as plain JSON: what a trainer reads, whose interpreter need not have pydantic or a reader of YAML."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from . import GROUPS, Options

FILE = "options.json"  # in a run folder, beside preset.yaml, from which it is made


def to_json(options: Options) -> str:
    return of_values(asdict(options))


def of_values(values: Mapping[str, Any]) -> str:
    """The same for values by group and name; what is no group is left out."""
    return json.dumps({group: values[group] for group in GROUPS}, indent=1)


def from_json(text: str) -> Options:
    """The options, which were checked before they were written; raises ValueError, TypeError or KeyError for others."""
    values = json.loads(text)
    groups: dict[str, Any] = {name: group(**values[name]) for name, group in GROUPS.items()}
    return Options(**groups)
