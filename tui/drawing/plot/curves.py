"""What a chart shows: its curves, its axes and how it is drawn."""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from ....engine.units import amount
from ...base.settings import Charts
from ...reading.run.series import Line, extremes

SPANS = 100  # times; a loss whose values span more has a logarithmic axis by itself


@dataclass(frozen=True)
class Curve:
    """A line with its name. `value` is the current value, None for the last point's. `marked` puts a mark on every
    point if there is room, and `short` is the name for a narrow chart. If there is little room, the value of a `lesser`
    curve is left out first. A `faint` curve has the raw values of the smoothed curve after it, whose field `raw` has
    the same line."""

    label: str
    line: Line
    marked: bool = False
    value: float | None = None
    short: str = ""
    lesser: bool = False
    faint: bool = False
    raw: Line | None = None
    colour: int | None = None


@dataclass(frozen=True)
class Plot:
    """A chart. `bounds`: share (0 to 100 %), zero (from 0 up) or free. `x_unit`: time, step, epoch or samples. `joins`
    and `best` are places of resumes and best epochs, `spells` phases without training: begin, end, letter. `window` is
    the drawn part of the axis. `how` says how values were changed, `since` at which moment the time begins, `alarm`
    what is wrong. `falls` is true if less is better, as of a loss."""

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
    best: tuple[float, ...] = ()
    spells: tuple[tuple[float, float, str], ...] = ()
    window: tuple[float, float] | None = None
    logarithmic: bool = False
    filled: bool = False
    corner: str = ""
    alarm: str = ""
    since: str = "after training began"
    falls: bool = False

    @property
    def in_legend(self) -> tuple[Curve, ...]:
        return tuple(curve for curve in self.curves if not curve.faint)

    @property
    def numbered(self) -> Iterator[tuple[int, Curve]]:
        """Yield each curve with the number of its colour; a faint curve has that of its smoothed curve."""
        number = 0
        for curve in self.curves:
            yield number, curve
            number += not curve.faint

    @property
    def empty(self) -> bool:
        return not any(len(curve.line) for curve in self.curves)


# ---- settings of a chart --------------------------------------------------------------------------


def as_drawn(plot: Plot, drawn: Charts) -> Plot:
    """Return the plot smoothed, logarithmic (not of a share) or filled, as `how` then says."""
    how = [*plot.how]
    logarithmic = drawn.logarithmic == "on" or (drawn.logarithmic == "auto" and spans_decades(plot))
    plot = replace(plot, logarithmic=logarithmic and plot.bounds != "share")
    if drawn.smoothing:
        curves = tuple(curve for raw in plot.curves for curve in _smoothed(raw, drawn.smoothing))
        how += [f"EMA {drawn.smoothing:g}"] if len(curves) > len(plot.curves) else []
        plot = replace(plot, curves=curves)
    return replace(plot, how=tuple(how), filled=drawn.fill, alarm=lost_at(plot))


def spans_decades(plot: Plot) -> bool:
    """True for a loss or error whose values are positive and span more than two decades."""
    lines = [curve.line for curve in plot.curves if plot.falls and len(curve.line)]
    ends = [end for line in lines for end in line.once("extremes", partial(extremes, line))]
    return bool(ends) and 0 < min(ends) * SPANS < max(ends)


def _smoothed(curve: Curve, weight: float) -> Iterator[Curve]:
    # A curve with marks or with fewer than three points is yielded unchanged.
    if curve.marked or len(curve.line) < 3:
        yield curve
        return
    yield replace(curve, faint=True)
    line = curve.line.once(("smoothed", weight), lambda: smoothed(curve.line, weight))
    yield replace(curve, line=line, raw=curve.line, value=curve.value if curve.value is not None else curve.line.last)


def lost_at(plot: Plot) -> str:
    """Return a text that says from which step on the loss or a metric is not a finite number. Empty if it is finite."""
    if plot.bounds != "free" or not plot.curves or (lost := plot.curves[0].line.lost) is None:
        return ""
    return f"not finite since step {amount(lost[1], 0)}"


def smoothed(line: Line, weight: float) -> Line:
    """Return the exponential moving average, corrected for its start; `weight` (0 to 1) is the earlier average's share.
    A break starts anew, and a point of several readings counts as these."""
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


COLOURS = 8  # of curves and runs: the styles curve1 to curve8


def colour_of(number: int | None) -> int:
    return 0 if number is None else (number - 1) % COLOURS


def style_of(number: int | None) -> str:
    return "title" if number is None else f"curve{colour_of(number) + 1}"


def in_one_chart(numbers: Sequence[int | None]) -> list[int]:
    """Return each run's own colour or, if an earlier run has it, the next free one, as long as there is one."""
    colours: dict[int, int] = {}
    for at, number in enumerate(numbers):
        if number is not None and colour_of(number) not in colours.values():
            colours[at] = colour_of(number)
    for at in (at for at in range(len(numbers)) if at not in colours):
        usual = colour_of(numbers[at])
        nearest = ((usual + by) % COLOURS for by in range(COLOURS))
        colours[at] = next((colour for colour in nearest if colour not in colours.values()), usual)
    return [colours[at] for at in range(len(numbers))]
