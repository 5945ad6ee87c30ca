"""A line chart: draws a Plot, and redraws it only when one of its lines has grown; its figures alone, if asked to."""

from __future__ import annotations

from textual import events
from textual.message import Message

from ..drawing.curves import Plot
from ..drawing.legend import edge_title, title
from ..drawing.plot import draw
from ..drawing.rows import Row
from ..drawing.scales import Scale
from .painted import Painted

EMPTY = Plot("", "", ())


class Chart(Painted):
    """Shows one plot; `show` sets another one, or the same with more points."""

    DEFAULT_CSS = "Chart { height: 1fr; width: 1fr; }"

    class Opened(Message):
        """A request to see this chart alone."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.plot = EMPTY
        self._scale: Scale | None = None
        self._below: list[Row] = []  # all but the first row, as they were drawn
        self._behind = False  # what was drawn is older than the figures

    def show(self, plot: Plot, *, curves: bool = True) -> None:
        """Set the plot. Lines are compared by identity: a line that has not grown is the same object.

        Without `curves` the first row with its figures is made anew, and the rest the next time.
        """
        if plot == self.plot and not (curves and self._behind):
            return
        if plot.title != self.plot.title:
            self._scale, self._below = None, []
        self.plot, self._behind = plot, not curves
        self.repaint()

    def on_click(self, event: events.Click) -> None:
        if self.plot.curves:
            event.stop()
            self.post_message(self.Opened(self.plot.key))

    def on_resize(self) -> None:
        self._scale, self._below = None, []
        super().on_resize()

    def rows(self, width: int, height: int) -> list[Row]:
        if not self.plot.curves:
            return [[] for _ in range(height)]
        if self._behind and self._below:
            return [self._title(width), *self._below]
        rows, self._scale = draw(self.plot, width, height, self.glyphs, self._scale)
        self._below, self._behind = rows[1:], False
        return [self._title(width), *self._below]

    def _title(self, width: int) -> Row:
        return (edge_title if self.is_edged else title)(self.plot, width, self.glyphs)
