"""Groups of compared runs that differ only in their seed: mean and standard deviation of their metrics."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..figures import Figure


@dataclass(frozen=True)
class SeedFigure:
    """A metric of a group: its value for each run (None: missing), their mean and standard deviation."""

    key: str
    label: str
    unit: str
    values: tuple[float | None, ...]
    mean: float
    spread: float


@dataclass(frozen=True)
class SeedGroup:
    """Runs that differ only in their seed: their places (from 0), seeds and metrics."""

    places: tuple[int, ...]
    seeds: tuple[Any, ...]
    figures: tuple[SeedFigure, ...]


def mean_and_spread(values: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the mean and the standard deviation. None for a mean of no value, and for a spread of fewer than two."""
    mean = statistics.fmean(values) if values else None
    return mean, statistics.stdev(values) if len(values) > 1 else None


def seed_groups(
    groups: Sequence[int], seeds: Sequence[Any], metrics: Sequence[tuple[Figure, Sequence[float | None]]]
) -> tuple[SeedGroup, ...]:
    """Return each group of repeats with at least two seeds, and the metrics that two of its runs have."""
    made = []
    for number in dict.fromkeys(groups):
        places = tuple(at for at, group in enumerate(groups) if group == number)
        if len({seeds[at] for at in places}) < 2:
            continue
        figures = [_figure(figure, tuple(values[at] for at in places)) for figure, values in metrics]
        if whole := tuple(figure for figure in figures if figure is not None):
            made.append(SeedGroup(places, tuple(seeds[at] for at in places), whole))
    return tuple(made)


def _figure(figure: Figure, values: tuple[float | None, ...]) -> SeedFigure | None:
    mean, spread = mean_and_spread([value for value in values if value is not None])
    if mean is None or spread is None:
        return None
    return SeedFigure(figure.key, figure.label, figure.unit, values, mean, spread)
