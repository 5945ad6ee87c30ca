"""A chart that fills the screen: with a cursor, and a part of its axis that can be chosen."""

from __future__ import annotations

from dataclasses import replace

from textual import events
from textual.message import Message

from ..drawing.axes import GUTTER, column_of, place_of, x_scale
from ..drawing.curves import Plot
from ..drawing.plot import draw
from ..drawing.rows import Row
from ..drawing.scales import Scale
from ..drawing.zoom import CLOSER, Window, followed, holding, least_length, zoomed
from .painted import Painted

NOTHING = Plot("", "", ())


class BigChart(Painted):
    """Shows one plot; keys and mouse move the cursor and choose the part of the axis."""

    DEFAULT_CSS = "BigChart { height: 1fr; width: 1fr; margin: 0 1; }"

    class Moved(Message):
        """The cursor is elsewhere, or another part of the axis is seen."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._plot = NOTHING
        self.cursor: float | None = None
        self.window: Window | None = None
        self._scale: Scale | None = None
        self._end = 0.0

    @property
    def plot(self) -> Plot:
        """The plot as it is seen."""
        return replace(self._plot, window=self.window)

    def show(self, plot: Plot) -> None:
        """Set the plot, or the same with more points; another one, or another axis, is seen whole."""
        if (plot.key, plot.x_unit) != (self._plot.key, self._plot.x_unit):
            self.window = self.cursor = self._scale = None
        end = x_scale(plot, self._inner).high
        self.window, self._end = followed(self.window, self._end, end), end
        self._plot = plot
        self.repaint()

    # ---- places -----------------------------------------------------------------------------------

    @property
    def _inner(self) -> int:
        return max(1, self.size.width - GUTTER)

    @property
    def _whole(self) -> Window:
        across = x_scale(self._plot, self._inner)
        return across.low, across.high

    @property
    def _across(self) -> Scale:
        return x_scale(self.plot, self._inner)

    @property
    def cell(self) -> float:
        """How much of the axis one column is."""
        return place_of(1, self._across, self._inner) - place_of(0, self._across, self._inner)

    @property
    def last(self) -> float:
        """The place of the newest point."""
        return max((curve.line.x[-1] for curve in self._plot.curves if len(curve.line)), default=self._whole[1])

    @property
    def closer(self) -> float:
        """How many times longer the whole axis is than what is seen of it."""
        low, high = self.window or self._whole
        return (self._whole[1] - self._whole[0]) / (high - low)

    # ---- what can be done -------------------------------------------------------------------------

    def move(self, columns: int) -> None:
        """The cursor to the right or left; it begins at the newest point, or in the middle of what is seen."""
        if self.cursor is None:
            low, high = self.window or self._whole
            self.place(self.last if low <= self.last <= high else (low + high) / 2)
            return
        across, inner = self._across, self._inner
        self.place(place_of(column_of(self.cursor, across, inner) + columns, across, inner))

    def place(self, x: float) -> None:
        """The cursor to this place, which comes into view."""
        whole = self._whole
        self.cursor = min(max(x, whole[0]), whole[1])
        self.window = holding(self.window, whole, self.cursor)
        self._changed()

    def to_end(self, last: bool) -> None:
        self.place(self.last if last else self._whole[0])

    def zoom(self, factor: float, centre: float | None = None) -> None:
        """Closer or further, around the cursor or the newest point."""
        around = centre if centre is not None else self.cursor if self.cursor is not None else self.last
        least = least_length(curve.line for curve in self._plot.curves)
        self.window = zoomed(self.window, self._whole, around, factor, least)
        self._changed()

    def all(self) -> None:
        """The whole axis, without a cursor."""
        self.window = self.cursor = None
        self._changed()

    def _changed(self) -> None:
        self._scale = None
        self.repaint()
        self.post_message(self.Moved())

    # ---- mouse ------------------------------------------------------------------------------------

    def _place_under(self, event: events.MouseEvent) -> float:
        column = min(max(0, event.x - GUTTER), self._inner - 1)
        return place_of(column, self._across, self._inner)

    def on_click(self, event: events.Click) -> None:
        event.stop()
        self.place(self._place_under(event))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        event.stop()
        self.zoom(CLOSER, self._place_under(event))

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        event.stop()
        self.zoom(1 / CLOSER, self._place_under(event))

    # ---- painting ---------------------------------------------------------------------------------

    def on_resize(self) -> None:
        self._scale = None
        super().on_resize()

    def rows(self, width: int, height: int) -> list[Row]:
        if not self._plot.curves:
            return [[] for _ in range(height)]
        rows, self._scale = draw(self.plot, width, height, self.glyphs, self._scale, self.cursor)
        return rows
