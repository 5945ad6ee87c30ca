"""What a chart shows: its curves, its axes and how it is drawn."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ...reading.run.series import Line


@dataclass(frozen=True)
class Curve:
    """A line with its name; `marked` puts a mark on every point if there is room.

    `value` is shown as the current value; None: the line's last point. `short` is the name for a narrow chart. If there
    is little room, the value of a `lesser` curve is left out first. A `faint` curve shows the raw values of the
    smoothed curve after it; `raw` of that smoothed curve is the same line.
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

    `x_unit` is the horizontal axis: time, step, epoch or samples. `key` names the chart; `how` are words that say what
    was done to its values. `joins` are the places at which a resumed run continued. `window` is the drawn part of the
    axis; None: the whole axis. `filled`: the area below the first curve is filled if the scale begins at zero. `corner`
    is a text at the lower right. `since` names the moment at which the time begins. `alarm` says what is wrong with the
    values, empty if nothing is.
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
    def told(self) -> tuple[Curve, ...]:
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
