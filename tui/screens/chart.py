"""The chart screen: one chart that fills the screen, its smoothing, its axis, and a cursor that shows the values. The
screen below continues to read, and returns new charts after each reading."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar

from textual import events, on
from textual.app import ComposeResult
from textual.binding import BindingType

from ...engine.units import times
from ..base import keys
from ..base.base_app import BaseApp
from ..base.errors import clean
from ..base.settings import Charts
from ..drawing.plot import cursor
from ..drawing.plot.curves import Plot, spans_decades
from ..drawing.plot.viewport import CLOSER, Viewport
from ..drawing.rows import Row, fit, length, spread, whole_words
from ..upstream.partial_updates import send_changed_cells
from ..widgets.charts import BigChart, Chart, PlotArea
from ..widgets.key_footer import KeyFooter
from ..widgets.row_widgets import Panel
from .base import AppScreen, Header
from .help import LOSS
from .runs.actions import RunActions

SMOOTHING = (0.0, 0.6, 0.9, 0.97)  # the choices of the key, in their order
MOST_ROWS = 5  # of the values at the cursor


class ChartSource(AppScreen):
    """A screen whose charts can be shown alone. `view` is their cursor and visible part, if they share these."""

    view: Viewport | None = None

    @property
    def about(self) -> str:
        """Return the subject of the charts, such as the title of the run."""
        raise NotImplementedError

    def charts(self, drawn: Charts) -> Sequence[Plot]:
        """Return the present charts, drawn with the settings `drawn`: axis, scale and smoothing."""
        raise NotImplementedError

    def axes(self) -> Sequence[str]:
        """Return the names of the axes on which the charts can be drawn: time, step, epoch, samples."""
        return ("time",)

    def foot(self, width: int) -> Row:
        """Return the row to show below a chart, such as the duration of the start; `width` is in cells."""
        raise NotImplementedError

    def open_chart(self, key: str) -> None:
        self.app.open_screen(ChartScreen(self, key, self.view))

    @on(Chart.Opened)
    def _chart_clicked(self, event: Chart.Opened) -> None:
        event.stop()
        self.open_chart(event.key)

    @on(Chart.Turned)
    async def _page_clicked(self, event: Chart.Turned) -> None:
        event.stop()
        await self.run_action(f"page({event.by})")


LABELS_FROM = 40  # columns of the title line


class Pager(Panel):
    """The title line of a chart, with the keys of the previous and the next chart at the right. A click on a key has
    the effect of the key."""

    app: BaseApp

    def keys(self) -> Row:
        """Return for the chart before and the next its key and its label, which a narrow line leaves out."""
        back, on = self.app.key("page_back"), self.app.key("page_on")
        before, after = (" before", " next") if self.size.width >= LABELS_FROM else ("", "")
        return [(f"  {back}", "title"), (before, "label"), (f"  {on}", "title"), (after, "label")]

    async def on_click(self, event: events.Click) -> None:
        from_right = self.size.width + self.styles.padding.left - event.x
        if from_right <= length(self.keys()[2:]):
            await self.screen.run_action("page(1)")
        elif from_right <= length(self.keys()):
            await self.screen.run_action("page(-1)")


AXIS_BINDINGS: list[BindingType] = [
    keys.bind("zoom_in", "zoom_axis(1)", show=False),
    keys.bind("zoom_out", "zoom_axis(-1)", show=False),
    keys.bind("zoom_all", "all", show=False),
    keys.bind("logarithmic", show=False),
]


class AxisKeys(AppScreen):
    """A screen whose keys move the cursor of its charts, and show a shorter or a longer part of their axis."""

    view: Viewport

    def show_view(self, visible: bool) -> None:
        """Show the cursor or, if `visible`, the visible part of the axis, which has changed."""
        raise NotImplementedError

    @on(PlotArea.Moved)
    def _view_moved(self, event: PlotArea.Moved) -> None:
        event.stop()
        self.show_view(event.visible)

    def action_move(self, columns: int) -> None:
        chart = next((chart for chart in self.query(PlotArea) if chart.display and chart.size.width), None)
        if chart is not None:
            window = self.view.window
            self.view.move(columns, chart.inner)
            self.show_view(self.view.window != window)

    def action_zoom_axis(self, closer: int) -> None:
        self.view.zoom(CLOSER if closer > 0 else 1 / CLOSER)
        self.show_view(True)

    def action_all(self) -> None:
        self.view.all()
        self.show_view(True)

    def action_logarithmic(self) -> None:
        """Draw logarithmic axes in place of linear ones, or the reverse, by the setting."""
        plots = [chart.plot for chart in self.query(PlotArea) if chart.display]
        logarithmic = not any(plot.logarithmic for plot in plots)
        if logarithmic and all(plot.bounds == "share" for plot in plots):
            self.notify("a share is always drawn from 0 to 100 %; the other charts are logarithmic now")
        by_itself = any(map(spans_decades, plots))
        choice = "auto" if logarithmic == by_itself else "on" if logarithmic else "off"
        self.app.settings.change("charts.logarithmic", choice)
        self.show_view(True)


class ChartScreen(AxisKeys):
    """Shows one chart of `source` alone, at first the chart `key`. Cursor and visible part are those of `view`; if it
    is None, the screen has its own. The settings of the drawing (axis, scale, smoothing) are those of the application,
    which stores them."""

    CSS_PATH = "chart.tcss"
    KEPT = 3
    HELP_SECTIONS = (LOSS,)
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("cursor_right", "move(1)", "Cursor", meaning="the cursor to the right"),
        keys.bind("cursor_left", "move(-1)", show=False),
        keys.bind("first", "to_end(False)", "First point", show=False, meaning="the cursor to the first point"),
        keys.bind("last", "to_end(True)", "Newest point", show=False, meaning="the cursor to the newest point"),
        keys.bind("zoom_in", "zoom_axis(1)"),
        *AXIS_BINDINGS[1:-1],
        keys.bind("x_axis", "axis"),
        keys.bind("logarithmic"),
        keys.bind("smoothing", "smooth"),
        keys.bind("page_on", "page(1)", "Next chart", show=False, meaning="the next chart"),
        keys.bind("page_back", "page(-1)", "Chart before", show=False, meaning="the chart before"),
        keys.bind("copy", show=False, meaning="copy the values of the chart"),
        keys.bind("stop", show=False, meaning="stop the run"),
        *keys.back(),
    ]

    def __init__(self, source: ChartSource, key: str, view: Viewport | None = None) -> None:
        super().__init__()
        send_changed_cells(self)
        self.source, self.key, self.kept_as = source, key, source.kept_as
        self.view = view or Viewport()
        self._has_own_view = view is None
        self._values_height = 0

    def compose(self) -> ComposeResult:
        yield Header(Pager(self._title, id="title"))
        yield BigChart(self.view, id="chart")
        yield Panel(self._values, id="values")
        yield Panel(lambda width, _height: [fit(self.source.foot(width), width)], id="foot")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.watch(self.source, "latest", self._show_new)

    def opened_again(self, other: ChartScreen) -> None:
        self.key = other.key or self.key

    def on_screen_resume(self) -> None:
        if self.is_mounted:
            self._show_new()

    @property
    def chart(self) -> BigChart:
        return self.query_one(BigChart)

    @property
    def drawn(self) -> Charts:
        return self.app.settings.charts

    @property
    def _all(self) -> list[Plot]:
        return list(self.source.charts(self.drawn))

    def _show_new(self) -> None:
        """Show the chart with its newest points, or the first one if it is gone. Without charts, nothing changes."""
        charts = self._all if self.in_front else []
        if not charts:
            return
        plot = next((chart for chart in charts if chart.key == self.key), charts[0])
        self.key = plot.key
        view = self.view
        if self._has_own_view:
            view.suit([plot])
        how = [f"zoomed {times(view.closer)}"] if view.window is not None and view.closer > 1 else []
        self.chart.show(replace(plot, how=(*plot.how, *how), window=view.window))
        self.chart.repaint()  # the cursor may have moved
        values = self.query_one("#values", Panel)
        height = max(1, min(MOST_ROWS, len(self._values(self.size.width - 2, MOST_ROWS))))
        if height != self._values_height:
            self._values_height = height
            values.styles.height = height
        for panel in self.query(Panel):
            panel.repaint()

    def show_view(self, _visible: bool) -> None:
        self._show_new()

    def _title(self, width: int, _height: int) -> list[Row]:
        names = [plot.key for plot in self._all]
        at = f"{names.index(self.key) + 1}/{len(names)}" if self.key in names else ""
        right: Row = [(f"  {at}", "value"), *self.query_one(Pager).keys()]
        about = whole_words(clean(self.source.about), width - len(self.key) - 2 - length(right), self.glyphs)
        return [spread([(self.key, "title"), (f"  {about}", "label")], right, width)]

    def _values(self, width: int, _height: int) -> list[Row]:
        if self.view.cursor is None:
            left, right = self.app.key("cursor_left"), self.app.key("cursor_right")
            parts = f"{self.app.key('zoom_in')} and {self.app.key('zoom_out')} zoom"
            return [[(f"{left} and {right} move the cursor, which shows the values; {parts}", "label")]]
        return cursor.rows(self.chart.plot, self.view.cursor, self.chart.cell, width, self.glyphs)

    def can(self, action: str) -> bool | str:
        """True if the action has an effect now: `stop` only if the screen below shows a running run."""
        return action != "stop" or (isinstance(self.source, RunActions) and bool(self.source.check_action("stop", ())))

    # ---- keys -------------------------------------------------------------------------------------

    def action_to_end(self, last: bool) -> None:
        self.view.place(self.view.last if last else self.view.whole[0])
        self._show_new()

    def action_axis(self) -> None:
        """Draw on the next axis that the source offers, and store the choice in the settings."""
        axes, now = list(self.source.axes()), self.chart.plot.x_unit
        if now in axes and len(axes) > 1:
            self._set("x_axis", axes[(axes.index(now) + 1) % len(axes)])
        else:
            self.notify("this chart has only one axis")

    def action_smooth(self) -> None:
        self._set("smoothing", next((weight for weight in SMOOTHING if weight > self.drawn.smoothing), 0.0))

    def _set(self, name: str, value: Any) -> None:
        self.app.settings.change(f"charts.{name}", value)
        self._show_new()

    def action_page(self, by: int) -> None:
        names = [plot.key for plot in self._all]
        if self.key in names:
            self.key = names[(names.index(self.key) + by) % len(names)]
            self._show_new()

    def action_stop(self) -> None:
        if isinstance(self.source, RunActions):
            self.source.action_stop()

    def action_copy(self) -> None:
        """Copy the points in the visible part of the chart as a table with tabs, for a spreadsheet."""
        self.app.copy(cursor.table(self.chart.plot), f"the values of {self.key}, separated by tabs")
