"""Fewer combinations of options than all of them, in which any three options still meet in every way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

Met = tuple[tuple[int, Any], ...]


def any_three(*options: Sequence[Any]) -> list[tuple[Any, ...]]:
    """One value of each option a combination; the next is always one that adds most to what has met so far."""
    every = list(itertools.product(*options))
    missing = set().union(*map(threes, every))
    chosen: list[tuple[Any, ...]] = []
    while missing:
        chosen.append(max(every, key=lambda combination: len(threes(combination) & missing)))
        missing -= threes(chosen[-1])
    return chosen


def threes(combination: Sequence[Any]) -> set[Met]:
    """Any three of its values, each with the place of its option."""
    return set(itertools.combinations(enumerate(combination), 3))
