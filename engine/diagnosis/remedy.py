"""A remedy, and the gain from saving a share of the time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

ROOM_FOR_BATCH = 0.45  # share of what TensorFlow may take of the device's memory: twice as much still fits


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """A change of options. `expected_gain` is the greatest possible speed-up as a factor, None where only measuring
    shows it.

    An estimate, which is not a limit, is part of the reason, with "about". `changes_learning` marks changes that lead
    to a different trained model.
    """

    step: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    reason: str
    expected_gain: float | None = None
    changes_learning: bool = False


def gain(saved: float) -> float | None:
    """The speed-up as a factor when this share of the time is saved."""
    return round(1 / (1 - saved), 2) if 0 < saved < 0.99 else None
