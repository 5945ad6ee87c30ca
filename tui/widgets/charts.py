"""Line charts: one of several on a screen, and one that fills the screen. A chart is drawn again only if one of its
lines has a new point; the cursor and a dragged range are then put over what was drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from textual import events
from textual.app import ComposeResult
from textual.containers import Container, Vertical
from textual.message import Message

from ..base.glyphs import Glyphs, glyphs_of
from ..base.keys import key_of
from ..drawing import charts as foot
from ..drawing.live import phases
from ..drawing.live.layout import CHART_HEIGHT, Layout
from ..drawing.plot.axes import GUTTER, Scale, column_of, place_of, x_scale
from ..drawing.plot.canvas import HAS_AXIS, draw, edge_title, title
from ..drawing.plot.cursor import named_last, overlaid, seen_at
from ..drawing.plot.curves import Plot
from ..drawing.plot.viewport import CLOSER, Viewport
from ..drawing.rows import Row, plain
from ..reading.earlier_starts import NONE, EarlierStarts
from ..reading.run.snapshot import Snapshot
from .row_widgets import Painted, Panel

EMPTY = Plot("", "", ())
_LEAST_DRAG = 2  # columns that the mouse moves before it selects a range


def page_corner(page: int, pages: int, glyphs: Glyphs) -> str:
    """Return the number of a page of charts, from 1, between arrows that `Chart` makes clickable; empty for one."""
    return f"{glyphs.page_back} {page}/{pages} {glyphs.page_on}" if pages > 1 else ""


class PlotArea(Painted):
    """The base of charts: draws `plot`, and over it what the mouse changes in `view`, if there is one."""

    ALLOW_SELECT = False  # dragging selects a range, not text

    @dataclass
    class Moved(Message):
        """The cursor or, if `visible` is True, the visible part of the axis has changed."""

        visible: bool

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, PlotArea.Moved) and (message.visible or not self.visible)

    def __init__(self, view: Viewport | None = None, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.plot, self.view = EMPTY, view
        self._scale: Scale | None = None
        self._below: list[Row] = []  # all but the first row, as they were drawn, without the cursor
        self._across = Scale(0.0, 1.0, 1.0)  # the axis as it was drawn
        self._pressed: float | None = None  # the place at which the mouse was pressed
        self._dragged = False

    def show(self, plot: Plot) -> None:
        """Show a plot, drawn only if its lines are new objects."""
        if plot != self.plot:
            if (plot.title, plot.window) != (self.plot.title, self.plot.window):
                self._scale = None
            self.plot, self._below = plot, []
            self.repaint()

    def on_resize(self) -> None:
        self._scale, self._below = None, []
        super().on_resize()

    def rows(self, width: int, height: int) -> list[Row]:
        if not self.plot.curves:
            return [[] for _ in range(height)]
        if not self._below:
            rows, self._scale = draw(self.plot, width, height, self.glyphs, self._scale)
            self._below = rows[1:]
            self._across = x_scale(self.plot, max(1, width - GUTTER))
        below, view = self._below, self.view
        if view is not None and not self.plot.empty:
            below = overlaid(below, self.plot, self._across, view, width, height >= HAS_AXIS, self.glyphs)
        return [self._title(width), *below]

    def _title(self, width: int) -> Row:
        return title(self.plot, width, self.glyphs)

    # ---- mouse ------------------------------------------------------------------------------------

    @property
    def inner(self) -> int:
        return max(1, self.size.width - 2 * self.is_edged - GUTTER)

    def _place_under(self, event: events.MouseEvent) -> float:
        column = min(max(0, event.x - self.is_edged - GUTTER), self.inner - 1)
        return place_of(column, self._across, self.inner)

    def on_mouse_down(self, event: events.MouseDown) -> None:
        self._dragged = False
        if self.view is not None and not self.plot.empty and event.button == 1 and event.y > 0:
            self._pressed = self._place_under(event)
            self.capture_mouse()

    def on_mouse_move(self, event: events.MouseMove) -> None:
        if (view := self.view) is None or self.plot.empty:
            return
        place = self._place_under(event)
        if self._pressed is None:
            if view.hover(place):
                self.post_message(self.Moved(False))
            return
        columns = abs(column_of(place, self._across, self.inner) - column_of(self._pressed, self._across, self.inner))
        self._dragged = self._dragged or columns >= _LEAST_DRAG
        if self._dragged and view.dragged != (self._pressed, place):
            view.dragged = self._pressed, place
            self.post_message(self.Moved(False))

    def on_mouse_up(self, _event: events.MouseUp) -> None:
        self.release_mouse()
        self._pressed = None
        if self.view is not None and (dragged := self.view.dragged) is not None:
            self.view.dragged = None
            if dragged[0] != dragged[1]:
                self.view.select(*dragged)
            self.post_message(self.Moved(True))

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        self._zoom(CLOSER, event)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        self._zoom(1 / CLOSER, event)

    def _zoom(self, factor: float, event: events.MouseEvent) -> None:
        if self.view is not None and not self.plot.empty:
            event.stop()
            self.view.zoom(factor, self._place_under(event))
            self.post_message(self.Moved(True))

    def on_leave(self) -> None:
        if self.view is not None and self._pressed is None and self.view.hover(None):
            self.post_message(self.Moved(False))

    def on_click(self, event: events.Click) -> None:
        if not self.plot.curves:
            return
        event.stop()
        if self._dragged:  # the end of a selection is also a click
            self._dragged = False
        elif self.view is not None and self.view.window is not None and event.chain > 1:
            self.view.all()
            self.post_message(self.Moved(True))
        else:
            self.clicked(event)

    def clicked(self, event: events.Click) -> None:
        """Called at a click that neither ends a selection nor shows the whole axis; subclasses say what it does."""
        raise NotImplementedError


class Chart(PlotArea):
    """Shows one plot. `show` sets another plot, or the same plot with more points."""

    DEFAULT_CSS = "Chart { height: 1fr; width: 1fr; }"

    @dataclass
    class Opened(Message):
        """A request to show the chart `key` alone on the screen."""

        key: str

    @dataclass
    class Turned(Message):
        """A request for the page of charts `by` pages after this page."""

        by: int

    def _title(self, width: int) -> Row:
        cursor = self.view.cursor if self.view is not None else None
        plot = self.plot if cursor is None else seen_at(self.plot, cursor)
        return (edge_title if self.is_edged else title)(plot, width, self.glyphs)

    def clicked(self, event: events.Click) -> None:
        """Turn the page on an arrow, place the cursor if a range is selected (by a double click), else open it."""
        corner = self.plot.corner if self.glyphs.page_on in self.plot.corner else ""
        from_right = self.size.width - self.is_edged - 1 - event.x  # the corner ends one cell before the end
        if corner and event.y == self.size.height - 1 - self.is_edged and 0 < from_right <= len(corner):
            self.post_message(self.Turned(1 if from_right <= len(corner) // 2 else -1))
        elif self.view is not None and self.view.window is not None and event.y > 0:
            self.view.place(self._place_under(event))
            self.post_message(self.Moved(False))
        else:
            self.post_message(self.Opened(self.plot.key))


class BigChart(PlotArea):
    """Shows one plot alone. A click places the cursor of its view, which keys move."""

    DEFAULT_CSS = "BigChart { height: 1fr; width: 1fr; margin: 0 1; }"
    view: Viewport

    @property
    def cell(self) -> float:
        """The length of one column of cells, in the axis' unit."""
        across = self.view.visible
        return (across.high - across.low) / max(1, self.inner - 1)

    def _title(self, width: int) -> Row:
        return title(named_last(self.plot), width, self.glyphs)

    def clicked(self, event: events.Click) -> None:
        self.view.place(self._place_under(event))
        self.post_message(self.Moved(True))


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
        self._layout: Layout | None = None

    def compose(self) -> ComposeResult:
        yield Container(id="grid")
        yield Panel(self._stage, id="stage")
        yield Panel(self._foot, id="phases")

    def lay_out(self, layout: Layout) -> None:
        self._room, self._edges = layout.chart_columns * layout.chart_rows, layout.edges
        grid = self.query_one("#grid")
        grid.styles.grid_size_columns = layout.chart_columns
        grid.set_class(layout.edges, "-edges")
        self._layout = layout

    def show(self, now: Snapshot, plots: Sequence[Plot], page: int) -> None:
        """Show the charts of the page number `page`, from 0; the last chart names it if there are several."""
        self._now = now
        before_first = phases.is_due(now)
        if (layout := self._layout) is not None:  # with little room, only a strip or marks take a row from charts
            named = any(plot.spells or plot.best or plot.joins for plot in plots[:1])
            least = HAS_AXIS if named else CHART_HEIGHT + 1 / layout.chart_rows
            self.query_one("#phases").display = layout.charts > layout.chart_rows * (least + layout.edges)
        self.query_one("#stage").display, self.query_one("#grid").display = before_first, not before_first
        pages = -(-len(plots) // self._room)
        first = page % pages * self._room
        shown, glyphs = list(plots[first:][: self._room]), glyphs_of(self.app)
        corners = [""] * len(shown)
        if shown and not self.query_one("#phases").display:  # which else names the marks in the charts
            corners = [*map(plain, foot.marks_of(now, shown[0], glyphs)), *corners][: len(corners)]
        if pages > 1:
            corners[-1:] = [page_corner(page % pages + 1, pages, glyphs)]
        self.shown = [replace(plot, corner=corner) for plot, corner in zip(shown, corners, strict=True)]
        grid = self.query_one("#grid")
        charts = list(grid.query(Chart))
        if len(charts) < self._room:
            grid.mount_all(Chart(self.view) for _ in range(self._room - len(charts)))
            charts = list(grid.query(Chart))
        for position, chart in enumerate(charts):
            chart.display, chart.has_edge = position < self._room, self._edges
            if self.display and position < self._room:
                chart.show(self.shown[position] if position < len(self.shown) else EMPTY)
        for name in ("stage", "phases"):
            if (panel := self.query_one(f"#{name}", Panel)).display:
                panel.repaint()

    def show_view(self) -> None:
        """Show the cursor and the dragged range as they are now. The curves are not drawn again."""
        for chart in self.query(Chart):
            if chart.display:
                chart.repaint()
        self.query_one("#phases", Panel).repaint()

    def _foot(self, width: int, _height: int) -> list[Row]:
        return [foot.row(self._now, self.shown, self.view, width, glyphs_of(self.app), key_of(self.app, "back"))]

    def _stage(self, width: int, height: int) -> list[Row]:
        return phases.rows(self._now, self.earlier, width, height, glyphs_of(self.app))
