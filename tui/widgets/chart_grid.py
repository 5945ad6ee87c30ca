"""The charts of the live view: pages of charts on one axis, with the row of cursor, range, marks and phases below."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual.app import ComposeResult
from textual.containers import Container, Vertical

from ..base.glyphs import glyphs_of
from ..base.keys import key_of
from ..drawing.live import chart_foot, phases
from ..drawing.live.layout import CHART_HEIGHT, Layout
from ..drawing.plot.curves import Plot
from ..drawing.plot.viewport import Viewport
from ..drawing.rows import Row, plain
from ..reading.earlier_starts import NONE, EarlierStarts
from ..reading.run.snapshot import Snapshot
from .charts import EMPTY, Chart, page_corner
from .row_widgets import Panel


class ChartGrid(Vertical):
    """Shows a page of charts with one axis and one cursor, those of `view`, or the phases of the start before the first
    step. `earlier` are the times of earlier starts of the preset, NONE until they have been read."""

    DEFAULT_CSS = """
    ChartGrid {
        & > #grid { layout: grid; grid-gutter: 0 2; height: 1fr; }
        & > #grid.-edges { grid-gutter: 0 1; }
        & > #stage { height: 1fr; display: none; }
    }
    """

    def __init__(self, view: Viewport, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self.earlier: EarlierStarts = NONE
        self.shown: list[Plot] = []
        self._now = Snapshot()
        self._room, self._edges = 1, False  # how many charts a page has

    def compose(self) -> ComposeResult:
        yield Container(id="grid")
        yield Panel(self._stage, id="stage")
        yield Panel(self._foot, id="phases")

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
        number. `turn` is the number of a repaint: every second chart draws its curves, and the others do so at the next
        turn. If it is None, all are drawn. The figures are always drawn."""
        self._now = now
        before_first = phases.is_due(now)
        self.query_one("#stage").display, self.query_one("#grid").display = before_first, not before_first
        pages = -(-len(plots) // self._room)
        first = page % pages * self._room
        self.shown = list(plots[first:][: self._room])
        self._write_corners(page % pages + 1, pages)
        self._fill(turn)
        for name in ("stage", "phases"):
            if (panel := self.query_one(f"#{name}", Panel)).display:
                panel.repaint()

    def _fill(self, turn: int | None) -> None:
        grid = self.query_one("#grid")
        charts = list(grid.query(Chart))
        if len(charts) < self._room:
            grid.mount_all(Chart(self.view) for _ in range(self._room - len(charts)))
            charts = list(grid.query(Chart))
        for position, chart in enumerate(charts):
            chart.display, chart.has_edge = position < self._room, self._edges
            if self.display and position < self._room:
                plot = self.shown[position] if position < len(self.shown) else EMPTY
                chart.show(plot, curves=turn is None or (turn + position) % 2 == 0)

    def _write_corners(self, page: int, pages: int) -> None:
        # If the row below the charts is hidden, the other corners name the marks in the charts.
        glyphs, corners = glyphs_of(self.app), [""] * len(self.shown)
        if self.shown and not self.query_one("#phases").display:
            marks = chart_foot.marks_of(self._now, self.shown[0], glyphs)
            corners = [*map(plain, marks), *corners][: len(corners)]
        if pages > 1:
            corners[-1:] = [page_corner(page, pages, glyphs)]
        self.shown = [replace(plot, corner=corner) for plot, corner in zip(self.shown, corners, strict=True)]

    def show_view(self) -> None:
        """Show the cursor and the dragged range as they are now. The curves are not drawn again."""
        for chart in self.query(Chart):
            if chart.display:
                chart.repaint()
        self.query_one("#phases", Panel).repaint()

    def _foot(self, width: int, _height: int) -> list[Row]:
        return [chart_foot.row(self._now, self.shown, self.view, width, glyphs_of(self.app), key_of(self.app, "back"))]

    def _stage(self, width: int, height: int) -> list[Row]:
        return phases.rows(self._now, self.earlier, width, height, glyphs_of(self.app))
