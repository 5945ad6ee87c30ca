"""A line chart: draws a Plot, and redraws it only when one of its lines has grown."""

from __future__ import annotations

from ..drawing.plot import Plot, Scale, draw
from ..drawing.rows import Row
from .painted import Painted

EMPTY = Plot("", "", ())


class Chart(Painted):
    """Shows one plot; `show` sets another one, or the same with more points."""

    DEFAULT_CSS = "Chart { height: 1fr; width: 1fr; }"

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.plot = EMPTY
        self._scale: Scale | None = None

    def show(self, plot: Plot) -> None:
        """Set the plot. Lines are compared by identity: a line that has not grown is the same object."""
        if plot == self.plot:
            return
        if plot.title != self.plot.title:
            self._scale = None
        self.plot = plot
        self.repaint()

    def on_resize(self) -> None:
        self._scale = None
        super().on_resize()

    def rows(self, width: int, height: int) -> list[Row]:
        if not self.plot.curves:
            return [[] for _ in range(height)]
        rows, self._scale = draw(self.plot, width, height, self.glyphs, self._scale)
        return rows
