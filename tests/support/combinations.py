"""Fewer combinations of options than all of them, in which any two or any three options still meet in every way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any


def any_two(*options: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Combinations in which each value of an option meets each value of any other."""
    return some_of(2, list(itertools.product(*options)))


def some_of(together: int, every: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Of these combinations those in which any so many values meet that meet in one of them.

    The next is always one that adds most to what has met so far.
    """
    met_in = {each: set(itertools.combinations(enumerate(each), together)) for each in every}
    missing = set().union(*met_in.values())  # values that meet, each with the place of its option
    chosen: list[tuple[Any, ...]] = []
    while missing:
        chosen.append(max(every, key=lambda combination: len(met_in[combination] & missing)))
        missing -= met_in[chosen[-1]]
    return chosen
