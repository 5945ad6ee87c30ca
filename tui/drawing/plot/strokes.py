"""A line as it is drawn: its unbroken parts, cut to the axis, with few points for each column and all extremes."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from ...reading.run.series import Line
from .curves import Plot
from .scales import Scale

PER_COLUMN = 2  # points for each column of dots; more are drawn together


# The line at a place: the place, the values with which it comes and leaves, the lowest and the highest there. Plain
# tuples, as most of a chart's time would be spent on making others.
Stop = tuple[float, float, float, float, float]


class _Part(NamedTuple):
    """A part of a line without a break: places, values, and the extremes of the readings that each point stands for."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def strokes(line: Line, across: Scale, columns: int, logarithmic: bool = False) -> Iterator[list[Stop]]:
    """Yield the unbroken parts of a line as stops; with more than PER_COLUMN points per column one each. On a
    logarithmic scale, values are decimal logarithms."""
    line = drawable(line, logarithmic)
    for part in _parts(line):
        begin, end = bisect_left(part.x, across.low), bisect_right(part.x, across.high)
        stops = _stops(_Part(*(values[begin:end] for values in part)), across, columns)
        left, right = _crossing(part, begin, across.low), _crossing(part, end, across.high)
        if crossed := [*left, *stops, *right]:
            yield crossed


def reach(plot: Plot) -> tuple[float, float] | None:
    """Return lowest and highest value in the window (of a line with breaks in all), as decimal logarithms on such a
    scale."""
    lows, highs = [], []
    for curve in plot.curves:
        line = drawable(curve.line, plot.logarithmic)
        begin, end = 0, len(line)
        if plot.window is not None and not line.breaks:
            begin = max(0, bisect_left(line.x, plot.window[0]) - 1)
            end = bisect_right(line.x, plot.window[1]) + 1
        if begin < min(end, len(line)):
            lows.append(min((line.low or line.y)[begin:end]))
            highs.append(max((line.high or line.y)[begin:end]))
    return (min(lows), max(highs)) if lows else None


def drawable(line: Line, logarithmic: bool = False) -> Line:
    """Return the line with breaks at values that the scale cannot show, such as NaN. Of a logarithmic one,
    logarithms."""
    if not logarithmic and line.once("finite", lambda: math.isfinite(sum(line.y))):
        return line
    made: Line = line.once(("drawable", logarithmic), lambda: _drawable(line, logarithmic))
    return made


def _drawable(line: Line, logarithmic: bool) -> Line:
    x, y, low, high = array("d"), array("d"), array("d"), array("d")
    breaks: set[int] = set()
    broken = False
    for index, value in enumerate(line.y):
        least, most = _extremes(line, index)
        broken = broken or index in line.breaks
        if not math.isfinite(value) or (logarithmic and least <= 0):
            broken = True
            continue
        if broken and len(x):
            breaks.add(len(x))
        broken = False
        x.append(line.x[index])
        for values, extreme in ((y, value), (low, least), (high, most)):
            values.append(math.log10(extreme) if logarithmic else extreme)
    return replace(line, x=x, y=y, low=low, high=high, breaks=frozenset(breaks), made={})


def _extremes(line: Line, index: int) -> tuple[float, float]:
    return (line.low[index], line.high[index]) if len(line.low) else (line.y[index], line.y[index])


def _parts(line: Line) -> Iterator[_Part]:
    edges = [0, *sorted(line.breaks), len(line)]
    merged = len(line.low) > 0
    for begin, end in pairwise(edges):
        x, y = line.x[begin:end], line.y[begin:end]
        if len(x):
            yield _Part(x, y, line.low[begin:end] if merged else y, line.high[begin:end] if merged else y)


def _stops(part: _Part, across: Scale, columns: int) -> list[Stop]:
    """One stop for each point or, with more than PER_COLUMN points for each column, one for each column."""
    if len(part.x) <= PER_COLUMN * columns:
        return list(zip(part.x, part.y, part.y, part.low, part.high, strict=True))
    wide = (across.high - across.low) / max(1, columns - 1)
    stops: list[Stop] = []
    begin = 0
    for column in range(columns):
        end = bisect_left(part.x, across.low + (column + 0.5) * wide, begin) if column < columns - 1 else len(part.x)
        if end > begin:
            low, high = min(part.low[begin:end]), max(part.high[begin:end])
            stops.append((across.low + column * wide, part.y[begin], part.y[end - 1], low, high))
        begin = end
    return stops


def _crossing(part: _Part, index: int, edge: float) -> list[Stop]:
    if not 0 < index < len(part.x):
        return []
    before, after = part.x[index - 1], part.x[index]
    if not before < edge < after:
        return []
    y = part.y[index - 1] + (part.y[index] - part.y[index - 1]) * (edge - before) / (after - before)
    return [(edge, y, y, y, y)]
