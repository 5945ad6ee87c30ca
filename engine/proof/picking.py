"""Which remedy is tried next: the first of the diagnosis that changes something and has not been tried."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..presets import Preset


class Picking:
    """Remembers what was tried; a remedy without changes is advice for a person and is left to one."""

    def __init__(self) -> None:
        self._tried: set[str] = set()

    def untried(self, diagnosis: Mapping[str, Any], preset: Preset) -> list[Mapping[str, Any]]:
        """The remedies that are left, in the order of the diagnosis."""
        now = flat(preset)
        return [
            remedy
            for remedy in diagnosis["remedies"]
            if _key(remedy) not in self._tried and any(now.get(k) != v for k, v in remedy["changes"].items())
        ]

    def tried(self, remedy: Mapping[str, Any]) -> None:
        self._tried.add(_key(remedy))


def flat(preset: Preset) -> dict[str, Any]:
    """`group.name` -> value, as JSON has it."""
    groups = preset.options.model_dump(mode="json")
    return {f"{group}.{name}": value for group, options in groups.items() for name, value in options.items()}


def _key(remedy: Mapping[str, Any]) -> str:
    return json.dumps(remedy["changes"], sort_keys=True, default=str)
