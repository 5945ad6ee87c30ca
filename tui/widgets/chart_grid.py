"""The charts of a run side by side, and the line of its phases; before anything is measured, the stage of its start."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from textual.app import ComposeResult
from textual.containers import Container, Vertical

from ..base.glyphs import glyphs_of
from ..drawing import stage
from ..drawing.curves import Plot
from ..drawing.layout import CHART_HEIGHT, Layout
from ..drawing.rows import Row
from ..reading.earlier_starts import NONE, EarlierStarts
from ..reading.snapshot import Snapshot
from .chart import EMPTY, Chart
from .panel import Panel


class ChartGrid(Vertical):
    """Shows a page of charts; `earlier` are the starts before this one, once they have been read."""

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
        yield Panel(lambda width, _height: [stage.phase_line(self._now, width)], id="phases")

    def lay_out(self, layout: Layout) -> None:
        """The charts in these columns and rows; the phases get a line where the charts do not need it."""
        self._room, self._edges = layout.chart_columns * layout.chart_rows, layout.edges
        grid = self.query_one("#grid")
        grid.styles.grid_size_columns = layout.chart_columns
        grid.set_class(layout.edges, "-edges")
        least = layout.chart_rows * (CHART_HEIGHT + layout.edges)
        self.query_one("#phases").display = layout.charts >= least + 2

    def show(self, now: Snapshot, plots: Sequence[Plot], page: int, turn: int | None = None) -> None:
        """The charts of a page, and its number where there are several.

        With a `turn` every other chart draws its curves, those between them with the next turn; figures follow at once.
        """
        self._now = now
        before_first = stage.is_due(now)
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
        known = list(grid.query(Chart))
        if len(known) < self._room:
            grid.mount_all(Chart() for _ in range(self._room - len(known)))
            known = list(grid.query(Chart))
        for position, chart in enumerate(known):
            chart.display, chart.has_edge = position < self._room, self._edges
            if self.display and position < self._room:
                plot = self.shown[position] if position < len(self.shown) else EMPTY
                chart.show(plot, curves=turn is None or (turn + position) % 2 == 0)

    def _stage(self, width: int, height: int) -> list[Row]:
        return stage.rows(self._now, self.earlier, width, height, glyphs_of(self.app))
