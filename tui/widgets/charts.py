"""Line charts: one chart, a grid of charts with the line of the run's phases, and a chart that fills the screen.

A chart is drawn again only if one of its lines has a new point. The caller may request that only the figures are drawn.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.message import Message

from ..base.glyphs import glyphs_of
from ..drawing.live import phases
from ..drawing.live.layout import CHART_HEIGHT, Layout
from ..drawing.plot.axes import GUTTER, column_of, place_of, x_scale
from ..drawing.plot.canvas import draw, edge_title, title
from ..drawing.plot.cursor import CLOSER, Window, followed, holding, least_length, zoomed
from ..drawing.plot.curves import Plot
from ..drawing.plot.scales import Scale
from ..drawing.rows import Row
from ..reading.earlier_starts import NONE, EarlierStarts
from ..reading.run.snapshot import Snapshot
from .row_widgets import Painted, Panel

EMPTY = Plot("", "", ())


class Chart(Painted):
    """Shows one plot. `show` sets another plot, or the same plot with more points."""

    DEFAULT_CSS = "Chart { height: 1fr; width: 1fr; }"

    class Opened(Message):
        """A request to show the chart `key` alone on the screen."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.plot = EMPTY
        self._scale: Scale | None = None
        self._below: list[Row] = []  # all but the first row, as they were drawn
        self._behind = False  # the drawn curves are older than the figures

    def show(self, plot: Plot, *, curves: bool = True) -> None:
        """Show a plot. If its lines are the same objects as before, nothing is drawn, as they then have no new points.

        Without `curves` only the first row, with the figures, is drawn now. The next call with `curves` draws the rest.
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


class ChartGrid(Vertical):
    """Shows a page of charts, or the phases of the start before the first step. `earlier` are the times of earlier
    starts of the preset, NONE until they have been read.
    """

    DEFAULT_CSS = """
    ChartGrid {
        & > #grid { layout: grid; grid-gutter: 0 2; height: 1fr; }
        & > #grid.-edges { grid-gutter: 0 1; }
        & > #stage { height: 1fr; display: none; }
    }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.earlier: EarlierStarts = NONE
        self.shown: list[Plot] = []
        self._now = Snapshot()
        self._room, self._edges = 1, False  # how many charts a page has

    def compose(self) -> ComposeResult:
        yield Container(id="grid")
        yield Panel(self._stage, id="stage")
        yield Panel(lambda width, _height: [phases.phase_line(self._now, width)], id="phases")

    def lay_out(self, layout: Layout) -> None:
        """Arrange the charts in columns and rows. The line of the phases is shown if the charts leave enough room."""
        self._room, self._edges = layout.chart_columns * layout.chart_rows, layout.edges
        grid = self.query_one("#grid")
        grid.styles.grid_size_columns = layout.chart_columns
        grid.set_class(layout.edges, "-edges")
        least = layout.chart_rows * (CHART_HEIGHT + layout.edges)
        self.query_one("#phases").display = layout.charts >= least + 2

    def show(self, now: Snapshot, plots: Sequence[Plot], page: int, turn: int | None = None) -> None:
        """Show the charts of the page number `page`, from 0. If there are several pages, the last chart has the page's
        number.

        `turn` is the number of a repaint: every second chart draws its curves, and the others do so at the next turn.
        If it is None, all are drawn. The figures are always drawn.
        """
        self._now = now
        before_first = phases.is_due(now)
        self.query_one("#stage").display, self.query_one("#grid").display = before_first, not before_first
        pages = -(-len(plots) // self._room)
        first = page % pages * self._room
        self.shown = list(plots[first:][: self._room])
        if pages > 1 and self.shown:
            self.shown[-1] = replace(self.shown[-1], corner=f"[{page % pages + 1}/{pages}]")
        self._fill(turn)
        for name in ("stage", "phases"):
            if (panel := self.query_one(f"#{name}", Panel)).display:
                panel.repaint()

    def _fill(self, turn: int | None) -> None:
        grid = self.query_one("#grid")
        charts = list(grid.query(Chart))
        if len(charts) < self._room:
            grid.mount_all(Chart() for _ in range(self._room - len(charts)))
            charts = list(grid.query(Chart))
        for position, chart in enumerate(charts):
            chart.display, chart.has_edge = position < self._room, self._edges
            if self.display and position < self._room:
                plot = self.shown[position] if position < len(self.shown) else EMPTY
                chart.show(plot, curves=turn is None or (turn + position) % 2 == 0)

    def _stage(self, width: int, height: int) -> list[Row]:
        return phases.rows(self._now, self.earlier, width, height, glyphs_of(self.app))


NOTHING = Plot("", "", ())


class BigChart(Painted):
    """Shows one plot. Keys and the mouse move the cursor and choose the visible part of the axis."""

    DEFAULT_CSS = "BigChart { height: 1fr; width: 1fr; margin: 0 1; }"

    class Moved(Message):
        """The cursor or the visible part of the axis has changed."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._plot = NOTHING
        self.cursor: float | None = None
        self.window: Window | None = None
        self._scale: Scale | None = None
        self._end = 0.0

    @property
    def plot(self) -> Plot:
        """The shown plot; its `window` is the visible part of the axis."""
        return replace(self._plot, window=self.window)

    def show(self, plot: Plot) -> None:
        """Show another plot, or the same plot with more points. Of another plot or another axis, the whole axis is
        shown.
        """
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
        """The length of one column of cells, in the axis' unit."""
        return place_of(1, self._across, self._inner) - place_of(0, self._across, self._inner)

    @property
    def last(self) -> float:
        """The place of the newest point on the axis."""
        return max((curve.line.x[-1] for curve in self._plot.curves if len(curve.line)), default=self._whole[1])

    @property
    def closer(self) -> float:
        """The zoom: the length of the whole axis divided by the length of its visible part, at least 1."""
        low, high = self.window or self._whole
        return (self._whole[1] - self._whole[0]) / (high - low)

    # ---- moving and zooming -------------------------------------------------------------------------

    def move(self, columns: int) -> None:
        """Move the cursor by this number of columns. Without a cursor, put it at the newest point or, if that is not
        visible, in the middle of the visible part.
        """
        if self.cursor is None:
            low, high = self.window or self._whole
            self.place(self.last if low <= self.last <= high else (low + high) / 2)
            return
        across, inner = self._across, self._inner
        self.place(place_of(column_of(self.cursor, across, inner) + columns, across, inner))

    def place(self, x: float) -> None:
        """Set the cursor to the place `x` of the axis, and move the visible part so that the cursor is in it."""
        whole = self._whole
        self.cursor = min(max(x, whole[0]), whole[1])
        self.window = holding(self.window, whole, self.cursor)
        self._changed()

    def to_end(self, last: bool) -> None:
        self.place(self.last if last else self._whole[0])

    def zoom(self, factor: float, centre: float | None = None) -> None:
        """Multiply the length of the visible part of the axis by `factor` (below 1: zoom in), around the place
        `centre`.

        If `centre` is None, it is the cursor's place or, without a cursor, that of the newest point.
        """
        around = centre if centre is not None else self.cursor if self.cursor is not None else self.last
        least = least_length(curve.line for curve in self._plot.curves)
        self.window = zoomed(self.window, self._whole, around, factor, least)
        self._changed()

    def all(self) -> None:
        """Show the whole axis, and remove the cursor."""
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
