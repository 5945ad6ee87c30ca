"""Applies the settings of charts to a plot: smoothed, logarithmic, filled."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import replace

from ....engine.units import amount
from ...base.settings import Charts
from ...reading.run.series import Line
from .curves import Curve, Plot


def as_drawn(plot: Plot, drawn: Charts) -> Plot:
    """The plot, made smoothed, logarithmic or filled as the settings request; its title says what was done."""
    how = []
    if drawn.logarithmic and plot.bounds != "share":
        plot = replace(plot, logarithmic=True)
        how.append("log")
    if drawn.smoothing:
        curves = tuple(curve for raw in plot.curves for curve in _smoothed(raw, drawn.smoothing))
        how += [f"EMA {drawn.smoothing:g}"] if len(curves) > len(plot.curves) else []
        plot = replace(plot, curves=curves)
    return replace(plot, how=tuple(how), filled=drawn.fill, alarm=lost_at(plot))


def _smoothed(curve: Curve, weight: float) -> Iterator[Curve]:
    """Yield the raw curve, made faint, and the smoothed curve. A curve with marks or with few points is yielded
    unchanged.
    """
    if curve.marked or len(curve.line) < 3:
        yield curve
        return
    yield replace(curve, faint=True)
    line = curve.line.once(("smoothed", weight), lambda: smoothed(curve.line, weight))
    yield replace(curve, line=line, raw=curve.line, value=curve.value if curve.value is not None else curve.line.last)


def lost_at(plot: Plot) -> str:
    """A text that says since which step the loss or a metric is not a finite number, as after a division by zero; empty
    if it is finite.
    """
    if plot.bounds != "free" or not plot.curves or (lost := plot.curves[0].line.lost) is None:
        return ""
    return f"not finite since step {amount(lost[1], 0)}"


def smoothed(line: Line, weight: float) -> Line:
    """The exponential moving average of the line. `weight` (0 to 1) is the share of the earlier values after one
    reading; a break starts a new average.

    A point that stands for several readings moves the average as much as all of these readings.
    """
    keep = weight**line.each
    average, weights = 0.0, 0.0
    y = array("d")
    for index, value in enumerate(line.y):
        if index in line.breaks:
            average = weights = 0.0
        if math.isfinite(value):
            average = keep * average + (1 - keep) * value
            weights = keep * weights + (1 - keep)
        y.append(average / weights if weights else value)
    return replace(line, y=y, low=array("d"), high=array("d"), made={})
