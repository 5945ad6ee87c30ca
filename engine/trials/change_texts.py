"""Changes of options as text, as on a command line."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ..options import ARGUMENTS, OPTIONS

_NAMES = [info.name for info in OPTIONS]


def value(of: Any) -> str:
    return of if isinstance(of, str) else json.dumps(of)


def changes(changed: Mapping[str, Any]) -> str:
    """Return `steps_per_execution=16, cache=memory`, without groups that are not needed; `nothing` for none."""
    return ", ".join(f"{short(key)}={value(of)}" for key, of in changed.items()) or "nothing"


def settings(changed: Mapping[str, Any]) -> str:
    return " ".join(f"--set {key}={value(of)}" for key, of in changed.items())


def short(key: str) -> str:
    name = key.split(".", 1)[-1]
    return name if _NAMES.count(name) == 1 or key.startswith(f"{ARGUMENTS}.") else key
