"""The visible part of a horizontal axis and the cursor on it, which all charts with this axis share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from statistics import median

from ...reading.run.series import Line
from .axes import Scale, column_of, place_of, x_scale
from .curves import Plot

Window = tuple[float, float]
CLOSER = 0.5
POINTS_SEEN = 4  # distances of neighbouring points, which are seen at the closest
_LEAST_SHARE = 1e-4  # of the whole axis, that can be seen at once


def zoomed(window: Window | None, whole: Window, centre: float, factor: float, least: float = 0.0) -> Window | None:
    """Return the window `factor` times as long, with `centre` at its place on the screen; None for the whole axis."""
    low, high = window or whole
    length = whole[1] - whole[0]
    span = max((high - low) * factor, length * _LEAST_SHARE, min(least, high - low))
    if span >= length * 0.999:
        return None
    share = (min(max(centre, low), high) - low) / (high - low)
    first = min(max(centre - share * span, whole[0]), whole[1] - span)
    return first, first + span


def holding(window: Window | None, whole: Window, place: float) -> Window | None:
    """Return the window, moved only so far that `place` is in it; None (the whole axis) is returned unchanged."""
    if window is None or window[0] <= place <= window[1]:
        return window
    low, high = window
    by = max(place - high, whole[0] - low) if place > high else min(place - low, whole[1] - high)
    return low + by, high + by


def followed(window: Window | None, whole: Window, before: float, now: float) -> Window | None:
    """Return the window moved with the newest point, from `before` to `now`, if it shows that; else unchanged."""
    if window is None or not window[0] <= before <= window[1]:
        return window
    by = min(now - before, whole[1] - window[1])
    return window[0] + by, window[1] + by


class Viewport:
    """The visible part of an axis, `window` (None: the whole axis), and the place `cursor` on it (None: no cursor).
    `hovers` is True if the cursor goes with the mouse. `dragged` are the two ends of the range that the mouse is
    selecting, else None. `axis` is the axis' unit and `whole` the whole of it."""

    def __init__(self) -> None:
        self.window: Window | None = None
        self.cursor: float | None = None
        self.hovers = False
        self.dragged: Window | None = None
        self.axis, self.whole = "", (0.0, 1.0)
        self._follows = False  # a window that shows the newest point moves with it
        self._lines: list[Line] = []

    def suit(self, plots: Sequence[Plot]) -> None:
        """Take the plots' axis. If its unit is another one, or it ends before the visible part, all is shown."""
        newest, across = self.last, x_scale(replace(plots[0], window=None), 1)
        self.whole = across.low, across.high
        self._lines = [curve.line for plot in plots for curve in plot.curves if len(curve.line)]
        if plots[0].x_unit != self.axis or (self.window is not None and self.window[0] >= self.whole[1]):
            self.axis = plots[0].x_unit
            self.all()
        elif self._follows:
            self.window = followed(self.window, self.whole, newest, self.last)

    @property
    def visible(self) -> Scale:
        low, high = self.window or self.whole
        return Scale(low, high, high - low)

    @property
    def last(self) -> float:
        return min(max((line.x[-1] for line in self._lines), default=self.whole[1]), self.whole[1])

    @property
    def closer(self) -> float:
        return (self.whole[1] - self.whole[0]) / (self.visible.high - self.visible.low)

    # ---- the cursor

    def move(self, columns: int, width: int) -> None:
        """Move the cursor by columns of a chart; the first time it goes to the newest visible point or the middle."""
        across = self.visible
        if self.cursor is None:
            visible = across.low <= self.last <= across.high
            self.place(self.last if visible else (across.low + across.high) / 2)
        else:
            self.place(place_of(column_of(self.cursor, across, width) + columns, across, width))

    def place(self, x: float) -> None:
        """Set the cursor to the place `x` of the axis, and move the visible part so that the cursor is in it."""
        self.cursor, self.hovers = min(max(x, self.whole[0]), self.whole[1]), False
        self.window = holding(self.window, self.whole, self.cursor)

    def hover(self, x: float | None) -> bool:
        """Put the cursor under the mouse (None: it left), True if that moves it; keys' and clicks' cursors stay."""
        if x is None and not self.hovers:
            return False
        before, self.cursor, self.hovers = self.cursor, x, x is not None
        return self.cursor != before

    # ---- the visible part

    def zoom(self, factor: float, centre: float | None = None) -> None:
        """Multiply the visible length by `factor`, around `centre`, by default the cursor or the newest point."""
        around = centre if centre is not None else self.cursor if self.cursor is not None else self.last
        apart = [median(after - before for before, after in pairwise(line.x)) for line in self._lines if len(line) > 1]
        self.window = zoomed(self.window, self.whole, around, factor, POINTS_SEEN * min(apart, default=0.0))
        self._follows = True

    def select(self, begin: float, end: float) -> None:
        """Show the range of the axis between two places, in any order. It stays the same while the axis grows."""
        self.window = max(min(begin, end), self.whole[0]), min(max(begin, end), self.whole[1])
        self._follows = False

    def all(self) -> None:
        self.window = self.cursor = self.dragged = None
        self.hovers = False
