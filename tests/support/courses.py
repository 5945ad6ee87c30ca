"""What tests of whole courses have in common: a clock that only trials move, and values as a snapshot keeps them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gputui.engine.trials import record as records


class Clock:
    """Seconds, which only trials move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def monotonic(self) -> float:
        return self.now

    def time(self) -> float:
        return 1_790_000_000.0 + self.now


@pytest.fixture
def clock(home: Path, monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock by which a record measures."""
    made = Clock()
    monkeypatch.setattr(records, "steady", made)
    return made


def rounded(value: Any, digits: int = 5, empty: tuple[Any, ...] = (None, "", [], {})) -> Any:
    """The value with rounded numbers, without entries of mappings that are empty."""
    if isinstance(value, dict):
        return {key: rounded(each, digits, empty) for key, each in value.items() if each not in empty}
    if isinstance(value, list):
        return [rounded(each, digits, empty) for each in value]
    return float(f"{value:.{digits}g}") if isinstance(value, float) else value
