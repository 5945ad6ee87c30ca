"""What a chart shows: its curves, its axes and how it is drawn."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator
from dataclasses import dataclass, replace

from ....engine.units import amount
from ...base.settings import Charts
from ...reading.run.series import Line


@dataclass(frozen=True)
class Curve:
    """A line with its name. `marked` puts a mark on every point if there is room.

    `value` is shown as the current value. If it is None, the line's last point is shown. `short` is the name for a
    narrow chart. If there is little room, the value of a `lesser` curve is left out first. A `faint` curve shows the
    raw values of the smoothed curve after it. `raw` of that smoothed curve is the same line.
    """

    label: str
    line: Line
    marked: bool = False
    value: float | None = None
    short: str = ""
    lesser: bool = False
    faint: bool = False
    raw: Line | None = None


@dataclass(frozen=True)
class Plot:
    """A chart's curves with their axes. `bounds` of the values: share (0 to 100 %), zero (from 0 up) or free. `note` is
    shown after the value.

    `x_unit` is the horizontal axis: time, step, epoch or samples. `x_end` is its last point, and `final` is True if no
    further points come. `key` names the chart. `how` are words that say what was done to its values. `joins` are the
    places at which a resumed run continued. `window` is the drawn part of the axis, None for the whole axis. With
    `filled`, the area below the first curve is filled if the scale begins at zero. `corner` is a text at the lower
    right. `since` names the moment at which the time begins. `alarm` says what is wrong with the values. It is empty if
    nothing is wrong.
    """

    title: str
    unit: str
    curves: tuple[Curve, ...]
    bounds: str = "free"
    x_unit: str = "time"
    x_end: float = 0.0
    final: bool = False
    note: str = ""
    key: str = ""
    how: tuple[str, ...] = ()
    joins: tuple[float, ...] = ()
    window: tuple[float, float] | None = None
    logarithmic: bool = False
    filled: bool = False
    corner: str = ""
    alarm: str = ""
    since: str = "after training began"

    @property
    def in_legend(self) -> tuple[Curve, ...]:
        """The curves that the legend shows with name and value: all curves that are not faint."""
        return tuple(curve for curve in self.curves if not curve.faint)

    @property
    def numbered(self) -> Iterator[tuple[int, Curve]]:
        """Yield each curve with the number of its colour. A faint curve of raw values has the number of its smoothed
        curve.
        """
        number = 0
        for curve in self.curves:
            yield number, curve
            number += not curve.faint

    @property
    def empty(self) -> bool:
        return not any(len(curve.line) for curve in self.curves)


# ---- settings of a chart --------------------------------------------------------------------------


def as_drawn(plot: Plot, drawn: Charts) -> Plot:
    """The plot, made smoothed, logarithmic or filled as the settings request. Its title says what was done.

    A share is never logarithmic.
    """
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
    """Yield the raw curve, made faint, and the smoothed curve. A curve with marks or with fewer than three points is
    yielded unchanged.
    """
    if curve.marked or len(curve.line) < 3:
        yield curve
        return
    yield replace(curve, faint=True)
    line = curve.line.once(("smoothed", weight), lambda: smoothed(curve.line, weight))
    yield replace(curve, line=line, raw=curve.line, value=curve.value if curve.value is not None else curve.line.last)


def lost_at(plot: Plot) -> str:
    """A text that says since which step the loss or a metric is not a finite number, as after a division by zero. Empty
    if it is finite.
    """
    if plot.bounds != "free" or not plot.curves or (lost := plot.curves[0].line.lost) is None:
        return ""
    return f"not finite since step {amount(lost[1], 0)}"


def smoothed(line: Line, weight: float) -> Line:
    """The exponential moving average of the line, with the correction for its start.

    `weight` (0 to 1) is the share of the earlier values after one reading. A break starts a new average. A point that
    stands for several readings moves the average as much as all of these readings.
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
