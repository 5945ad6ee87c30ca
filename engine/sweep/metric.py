"""The metric of a sweep in the figures of a training's epochs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from ..options.training import WatchedFigure

Figures = Mapping[str, float | None]  # of an epoch, by their names


def values(name: str, epochs: Sequence[Figures]) -> list[float | None]:
    """Return the metric `name` after each epoch: that of the latest epoch that has it, as own code may validate only
    every few epochs. None if there is none, or if it is not finite.
    """
    made: list[float | None] = []
    latest: float | None = None
    for figures in epochs:
        value = figures.get(name, latest)
        latest = value if value is not None and math.isfinite(value) else None
        made.append(latest)
    return made


def why_missing(name: str, epochs: Sequence[Figures], has_ended: bool) -> str:
    """Return in words why a training has no metric `name`. Empty if it has, or if a later epoch may have it.

    `epochs` are those up to now. Figures of the validation may come later, unless there are others of them.
    """
    there = dict.fromkeys(key for figures in epochs for key in figures)
    if not there or name in there:
        return ""
    may_come = WatchedFigure(name, "").of_validation and not any(WatchedFigure(key, "").of_validation for key in there)
    if may_come and not has_ended:
        return ""
    return (
        f"the trials have no {name}: their figures of an epoch are {', '.join(there)}; name one of them with --metric"
    )
