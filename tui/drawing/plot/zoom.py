"""The part of an axis that is seen: closer and further, and along with a run that goes on."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise
from statistics import median

from ...reading.run.series import Line

Window = tuple[float, float]
CLOSER = 0.5
POINTS_SEEN = 4  # distances of neighbouring points, which are seen at the closest
_LEAST_SHARE = 1e-4  # of the whole axis, that can be seen at once


def zoomed(window: Window | None, whole: Window, centre: float, factor: float, least: float = 0.0) -> Window | None:
    """A window `factor` times as long as the present window, around `centre`, which keeps its place on the screen. None
    if the result is the whole axis.

    `least` is the shortest length of the result, in the axis' unit.
    """
    low, high = window or whole
    length = whole[1] - whole[0]
    span = max((high - low) * factor, length * _LEAST_SHARE, min(least, high - low))
    if span >= length * 0.999:
        return None
    share = (min(max(centre, low), high) - low) / (high - low)
    first = min(max(centre - share * span, whole[0]), whole[1] - span)
    return first, first + span


def least_length(lines: Iterable[Line]) -> float:
    """The shortest useful length of a window: it shows some points of the line with the closest points. 0 without
    points.
    """
    apart = [median(after - before for before, after in pairwise(line.x)) for line in lines if len(line) > 1]
    return POINTS_SEEN * min(apart, default=0.0)


def holding(window: Window | None, whole: Window, place: float) -> Window | None:
    """The window, moved only so far that `place` is in it; None (the whole axis) stays None."""
    if window is None or window[0] <= place <= window[1]:
        return window
    low, high = window
    by = max(place - high, whole[0] - low) if place > high else min(place - low, whole[1] - high)
    return low + by, high + by


def followed(window: Window | None, before: float, now: float) -> Window | None:
    """The window; if it reached to the end of the axis, it is moved with this end from `before` to `now`."""
    if window is None or now == before or window[1] < before:
        return window
    return window[0] + now - before, now
