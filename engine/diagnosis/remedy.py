"""One remedy, and what a share of the time that vanishes is worth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """`expected_gain` is how many times as fast it can get at most, None where only measuring tells.

    An estimate, which is no bound, stands in the reason, with "about".
    `changes_learning` marks changes after which another model comes out.
    """

    step: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    reason: str
    expected_gain: float | None = None
    changes_learning: bool = False


def gain(saved: float) -> float | None:
    """Times as fast when this share of the time is gone."""
    return round(1 / (1 - saved), 2) if 0 < saved < 0.99 else None
