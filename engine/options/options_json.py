"""Options as plain JSON, for the trainer, whose interpreter need not have pydantic or a reader of YAML."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from . import GROUPS, PRIVATE, Options

FILE = "options.json"  # in a run folder, made from its preset.yaml


def to_json(options: Options) -> str:
    values = asdict(options)
    return json.dumps({group: values[group] for group in GROUPS if group not in PRIVATE}, indent=1)


def from_json(text: str) -> Options:
    """Private options have their defaults; values are not checked again. Raises ValueError, TypeError or KeyError."""
    values = json.loads(text)
    groups: dict[str, Any] = {name: group(**values[name]) for name, group in GROUPS.items() if name not in PRIVATE}
    return Options(**groups)


def read(run_folder: Path) -> Options:
    """The options that the trainer of a run gets. Raises OSError, or as `from_json`."""
    return from_json((run_folder / FILE).read_text(encoding="utf-8"))
