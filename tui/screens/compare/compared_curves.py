"""The curves of compared runs: the shown chart, the names of the runs in it, and reading them while runs continue."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from textual import on

from ....engine.compare.comparison import Comparison
from ....engine.runs import Run
from ...base.errors import clean
from ...base.settings import Charts
from ...drawing import charts as drawn_charts
from ...drawing.plot.colours import colour_of, in_one_chart
from ...drawing.plot.curves import Plot
from ...drawing.rows import Row
from ...reading.run.reader import RunReader
from ...reading.run.snapshot import Snapshot
from ...widgets.charts import Chart, page_corner
from ...wording.comparison import distinct, distinct_names, in_brief, moments_of, short_names
from ..base import FollowingScreen

SHORT_NAME = 16
READ_SECONDS = 1.0  # while a run is running
LEAST_HEIGHT, LEAST_CHART = 20, 5  # of the screen from which on there are curves, and of their chart
HIGH = 30  # from here on the chart has a third of the rows


class ComparedCurves(FollowingScreen[tuple[list[Run], Comparison]]):
    """A screen with one chart of the curves of several runs. `comparison` is None until the runs have been compared."""

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        self.runs = list(runs)
        self.comparison: Comparison | None = None
        self._curves: Mapping[str, Snapshot] = {}  # by the run's id, once they have been read
        self._chosen = ""  # the key of the shown chart
        self._numbers: dict[str, int | None] = {}  # by the run's id: read once, as each paint asks for the colours

    def read_curves(self, runs: Sequence[Run], leaving: threading.Event) -> Iterator[None]:
        """Read the first MOST_COMPARED runs' curves, in a thread; yield after each reading, about once per second."""
        readers = [RunReader(run) for run in runs[: drawn_charts.MOST_COMPARED]]
        while not leaving.is_set():
            behind = [reader.poll() for reader in readers]
            if not any(behind):
                self._curves = {reader.run.id: reader.picture.snapshot for reader in readers}
                yield
                if all(reader.ended for reader in readers):
                    return
                leaving.wait(READ_SECONDS)

    def _named(self) -> list[drawn_charts.Named]:
        """The runs whose curves have been read, with names made of the differences between the runs."""
        if (comparison := self.comparison) is None:
            return []
        names, short = self.names_of(comparison)
        colours = self.colours()
        return [
            drawn_charts.Named(
                names[at],
                short[at],
                colours[at],
                self._curves[id_],
                {row.key: row.values[at] for row in comparison.figures},
            )
            for at, id_ in enumerate(comparison.runs)
            if id_ in self._curves
        ]

    @staticmethod
    def names_of(comparison: Comparison) -> tuple[list[str], list[str]]:
        """Return the names of the compared runs, made of their differences, and the same in SHORT_NAME characters."""
        moments, titles = moments_of(comparison.runs), distinct(comparison.titles)
        first = short_names(comparison)
        names = distinct_names(titles, moments, first)
        short = in_brief(names, titles, moments, SHORT_NAME, first)
        return list(map(clean, names)), list(map(clean, short))

    def colours(self) -> list[int]:
        """Return the number of the colour of each run, from 0; no two of the first MOST_COMPARED have the same."""
        for run in self.runs:
            if run.id not in self._numbers:
                self._numbers[run.id] = run.number
        numbers = [self._numbers[run.id] for run in self.runs]
        drawn, others = numbers[: drawn_charts.MOST_COMPARED], numbers[drawn_charts.MOST_COMPARED :]
        return [*in_one_chart(drawn), *map(colour_of, others)]

    @property
    def about(self) -> str:
        left_out = len(self.runs) - drawn_charts.MOST_COMPARED
        return f"{len(self.runs)} runs" + (f", without the last {left_out}" if left_out > 0 else "")

    def charts(self, drawn: Charts) -> list[Plot]:
        return drawn_charts.compared_plots(self._named(), drawn)

    def axes(self) -> list[str]:
        return drawn_charts.axes(self._named())

    def foot(self, _width: int) -> Row:
        return [("the time of each run begins with its first step", "label")]

    @property
    def catching_up(self) -> bool:
        return not self._curves

    @property
    def hardly_seen(self) -> str:
        """Say that a curve of the shown chart is too short to be seen; else empty."""
        plots = self.charts(self.app.settings.charts)
        plot = next((chart for chart in plots if chart.key == self._chosen), None)
        return drawn_charts.hardly_seen(plot) if plot is not None else ""

    @property
    def rows_needed(self) -> int:
        """The number of screen rows that everything except the chart needs; by default all."""
        return self.size.height

    def show_curves(self) -> None:
        """Show the chosen chart or the first; none below LEAST_HEIGHT rows."""
        chart = self.query_one(Chart)
        charts = self.charts(self.app.settings.charts)
        chart.display = bool(charts) and self.size.height >= LEAST_HEIGHT
        if not charts:
            return
        names = [plot.key for plot in charts]
        at = names.index(self._chosen) if self._chosen in names else 0
        self._chosen = names[at]
        least = self.size.height // 3 if self.size.height >= HIGH else LEAST_CHART
        chart.styles.height = max(least, self.size.height - self.rows_needed)
        chart.show(replace(charts[at], corner=page_corner(at + 1, len(charts), self.glyphs)))

    def action_page(self, by: int) -> None:
        names = [plot.key for plot in self.charts(self.app.settings.charts)]
        if self._chosen in names:
            self._chosen = names[(names.index(self._chosen) + by) % len(names)]
            self.show_curves()

    def action_chart(self) -> None:
        from ..chart import ChartScreen  # only when it is asked for

        if self._chosen:
            self.app.push_screen(ChartScreen(self, self._chosen))

    @on(Chart.Turned)
    def _page_clicked(self, event: Chart.Turned) -> None:
        event.stop()
        self.action_page(event.by)

    @on(Chart.Opened)
    def _chart_clicked(self, event: Chart.Opened) -> None:
        event.stop()
        self.action_chart()


def moment_of(run: Run) -> str:
    """Return the time of a run's start, such as 20250131-120000, from its id; without one the id."""
    return clean(run.id[:15] if re.match(r"\d{8}-\d{6}-", run.id) else run.id)
