"""Runs side by side: the options that differ, then the figures with their difference from the baseline. The first
column is the baseline: the pinned run, or the first marked run."""

from __future__ import annotations

import itertools
import re
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from ...engine.compare import comparison as comparisons
from ...engine.compare import profiles
from ...engine.compare.comparison import Comparison, FigureRow, OptionRow, compare
from ...engine.runs import Run, previews
from ...engine.units import NONE
from ..base import keys
from ..base.errors import clean
from ..base.settings import Charts
from ..base.themes import colour, painted_colour
from ..drawing import charts as drawn_charts
from ..drawing.charts import MOST_COMPARED
from ..drawing.interval_bar import table_rows
from ..drawing.plot.curves import Plot, colour_of, in_one_chart
from ..drawing.rows import Row
from ..reading.run.reader import RunReader
from ..reading.run.snapshot import Snapshot
from ..upstream.partial_updates import send_changed_cells
from ..widgets.charts import Chart, page_corner
from ..widgets.key_footer import KeyFooter
from ..widgets.row_widgets import Panel
from ..widgets.table import Column, OpeningTable, Table
from ..wording import comparison as wording
from ..wording.run import NO_PREVIEWS
from . import catalogue
from .base import FollowingScreen, Header
from .chart import ChartSource
from .runs.actions import open_in_form

SHORT_NAME = 16
READ_SECONDS = 1.0  # while a run is running
LEAST_HEIGHT, LEAST_CHART = 20, 5  # of the screen from which on there are curves, and of their chart
HIGH = 30  # from here on the chart has a third of the rows


NOISE, NARROW_NOISE = "spread of repeats", "spread"
BARS = 8
HEAD_WIDTH, LEAST_HEAD = 28, 12  # from the first on a title is shortened by whole changes


class CompareScreen(ChartSource, FollowingScreen[tuple[list[Run], Comparison]]):
    """Compares `runs` in the order of the columns. If a baseline is pinned, it is the first column. If the user unpins
    it, this screen does not change: the run stays the first column and the baseline."""

    CSS_PATH = "compare.tcss"
    FOLLOWS_COVERED = True  # it is read once
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("edit", "change", "Edit options", meaning="open the options of the run in the form"),
        keys.bind("pin"),
        keys.bind("copy", meaning="copy the comparison as Markdown"),
        keys.bind("page_on", "page(1)", "Next chart", meaning="the next chart"),
        keys.bind("page_back", "page(-1)", "Chart before", show=False, meaning="the chart before"),
        keys.bind("zoom", "chart", "Chart alone", meaning="the chart on the whole screen, with a cursor"),
        keys.bind("previews", show=False, meaning="the previews of the runs next to each other"),
        *keys.back(),
    ]

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        send_changed_cells(self)
        self.runs = list(runs)
        self.comparison: Comparison | None = None  # until the runs have been compared
        self._curves: Mapping[str, Snapshot] = {}  # by the run's id, once they have been read
        self._chosen = ""  # the key of the shown chart
        self._numbers: dict[str, int | None] = {}  # by the run's id: read once, as each paint asks for the colours
        self._shown: tuple[list[Run], Comparison] | None = None
        self._pinning = threading.Lock()
        self._change_width = 0  # of the widest difference, so that values are aligned
        self._has_previews = False
        self._is_narrow = False  # in shorter words, as otherwise not all columns would fit

    def compose(self) -> ComposeResult:
        yield Header()
        yield Chart(id="curves")
        yield OpeningTable(cursor_type="cell", fixed_columns=1, cell_padding=1)
        yield Panel(self._remark_lines, id="status")
        yield KeyFooter()

    def readings(self, leaving: threading.Event) -> Iterator[tuple[list[Run], Comparison]]:
        """Yield the runs and their comparison, then again after each reading of the curves of the first MOST_COMPARED
        runs, about once per second, and with the figures of their profiles. In a thread."""
        line_up = comparisons.line_up(self.runs)
        reading = list(line_up.runs), compare(line_up)
        self._has_previews = any(previews.are_in(run.path) for run in line_up.runs)
        yield reading
        readers = [RunReader(run) for run in line_up.runs[:MOST_COMPARED]]
        has_profiles = profiles.are_in(line_up.runs)
        while not leaving.is_set():
            behind = [reader.poll() for reader in readers]
            if not any(behind):
                self._curves = {reader.run.id: reader.picture.snapshot for reader in readers}
                yield reading
                if has_profiles:
                    has_profiles, reading = False, (reading[0], profiles.with_profiles(reading[1], line_up.runs))
                    yield reading
                if all(reader.ended for reader in readers):
                    return
                leaving.wait(READ_SECONDS)

    def can(self, action: str) -> bool | str:
        return action != "previews" or self._has_previews or NO_PREVIEWS

    def show_latest(self) -> None:
        self.offer_by(self._has_previews)
        if self.latest is not None and self.latest is not self._shown:  # else the cursor keeps its place
            self._shown = self.latest
            self.show(*self.latest)
        self.show_curves()

    def show_again(self) -> None:
        """The headings and words are as long as the width allows."""
        table = self.query_one(Table)
        column, self._shown = table.cursor_column, None
        self.show_latest()
        if column:
            table.move_cursor(column=column)

    # ---- the table --------------------------------------------------------------------------------

    def show(self, runs: list[Run], comparison: Comparison) -> None:
        """Fill the table, with the cursor on the baseline. A run that was pinned since becomes the first column."""
        if not self.is_attached:
            return
        self.runs, self.comparison = runs, comparison
        for self._is_narrow in (False, True):
            body = self._body(comparison)
            heads, fits = self._heads(comparison, body)
            if fits:
                break
        head = ["", *heads, *([self._noise] if wording.has_noise(comparison) else [])]
        styles = ["", *(painted_colour(self.app, f"curve{colour + 1}") for colour in self.colours()), ""]
        self._fill([Text(name, style, justify="right") for name, style in zip(head, styles, strict=False)], body)
        self.call_after_refresh(self._show_remarks)

    @property
    def _noise(self) -> str:
        return NARROW_NOISE if self._is_narrow else NOISE

    def _body(self, comparison: Comparison) -> list[list[Text]]:
        """The rows of the table: a name and a cell for each run. Headings and blank rows have no cells."""
        runs, short = self.runs, self._is_narrow
        changes = [wording.change_text(row, at, short=short) for row in comparison.figures for at in range(len(runs))]
        self._change_width = max(map(len, changes), default=0)
        # Of an id with the time of the start, such as 20250131-120000, only that.
        begun = [clean(run.id[:15] if re.match(r"\d{8}-\d{6}-", run.id) else run.id) for run in self.runs]
        rows = [("run", begun, ""), ("outcome", list(comparison.states), "")]
        rows += [(name, facts, "") for name, facts in wording.fact_cells(comparison)]
        rows += [("", [], ""), ("options that differ" if comparison.options else "no option differs", [], "")]
        room = 0
        if short:  # the number of characters with which all columns fit, if full texts would be too long
            labels = [row.key for row in comparison.options] + [row.label for row in comparison.figures]
            beside = len(NARROW_NOISE) + 2 if wording.has_noise(comparison) else 0
            rest = self.size.width - max(map(len, labels), default=0) - beside - 3
            room = max(LEAST_HEAD, rest // max(1, len(self.runs)) - 2)
        rows += [(row.key, _options(row, room), "") for row in comparison.options]
        rows += [("", [], ""), ("figures", [], "")]
        body = [[_label(label, bool(cells)), *map(Text, cells), Text(last)] for label, cells, last in rows]
        for figure in comparison.figures:
            cells = [self._figure(figure, position) for position in range(len(self.runs))]
            body.append([_label(figure.label, True), *cells, Text(wording.noise_text(figure, short=short))])
        return body

    def _heads(self, comparison: Comparison, body: list[list[Text]]) -> tuple[list[str], bool]:
        """The headings of the columns, of which each has an equal part of the width, and True if all columns fit."""
        titles = wording.distinct(comparison.titles)
        widths = [max((row[at].cell_len for row in body if at < len(row)), default=0) for at in range(len(titles) + 2)]
        noise = max(len(self._noise), widths[-1]) + 2 if wording.has_noise(comparison) else 0
        left = self.size.width - widths[0] - 2 - noise - (self.size.height < HIGH)  # perhaps a scrollbar
        room = max(LEAST_HEAD, left // max(1, len(titles)) - 2)
        heads = []
        for at, whole in enumerate(wording.distinct_names(titles, comparison.names)):
            mark = " (baseline)" if comparison.choice == "pinned" and comparison.runs[at] == comparison.baseline else ""
            free, name = room - len(mark), comparison.names[at]
            if room >= HEAD_WIDTH:
                whole = clean(f"{name} {titles[at].within(max(0, free - len(name) - 1))}")
            heads.append((whole if len(whole) <= free else f"{whole[: max(len(name), free - 2)]}..") + mark)
        taken = sum(max(len(head), width) + 2 for head, width in zip(heads, widths[1:-1], strict=True))
        return heads, taken <= left

    def _fill(self, head: list[Text], body: list[list[Text]]) -> None:
        """Each column is as wide as its widest cell. The cursor stays in its row and moves to the first run."""
        table = self.query_one(Table)
        body = [(cells + [Text("")] * (len(head) - len(cells)))[: len(head)] for cells in body]
        widths = [max(cells[position].cell_len for cells in (head, *body)) for position in range(len(head))]
        for cells in body:
            for cell, width in zip(cells[1:], widths[1:], strict=True):
                cell.pad_left(width - cell.cell_len)
        columns = [Column(str(at), name, width) for at, (name, width) in enumerate(zip(head, widths, strict=True))]
        table.fill(columns, {str(row): cells for row, cells in enumerate(body)})
        table.move_cursor(row=table.cursor_row, column=1)

    def _figure(self, row: FigureRow, position: int) -> Text:
        """Only differences from the baseline that exceed the noise have a colour."""
        change, by = wording.change_text(row, position, short=self._is_narrow), row.changes[position]
        text = Text(wording.value_text(row, row.values[position]))
        if not change:
            return text.append("" if position == 0 else " " * (self._change_width + 2))
        is_sure = bool(by) and row.more_is_better is not None and row.exceeds_noise(position) is not False
        good = by is not None and (by > 0) == row.more_is_better
        style = colour(self.app, "success" if good else "error") if is_sure else painted_colour(self.app, "label")
        return text.append(f"  {change:>{self._change_width}}", style=style)

    def _remark_lines(self, width: int, _height: int) -> list[Row]:
        brief = width if self.size.height < HIGH else 0
        remarked = wording.remarks(self.comparison, brief) if self.comparison is not None else []
        table = self.query_one(Table)
        if remarked and table.row_count and table.virtual_size.width > table.size.width:
            left, right = self.app.key("cursor_left"), self.app.key("cursor_right")
            remarked[0] += f"; {right} and {left} show the rest of the table"
        if not self._curves and self.size.height >= LEAST_HEIGHT:
            remarked.append("catching up: the curves are still being read")
        charts = self.charts(self.app.settings.charts) if self.size.height >= HIGH else ()
        shown = next((chart for chart in charts if chart.key == self._chosen), None)
        if shown is not None and (short := drawn_charts.hardly_seen(shown)):
            zoom, first = self.app.key("zoom"), self.app.key("first")
            remarked.append(f"{short}; {zoom}, {first} and {self.app.key('zoom_in')} zoom in on it")
        bars: list[Row] = []
        if self.comparison is not None and self.size.height >= HIGH:
            speeds = wording.speeds(self.comparison, self.names_of(self.comparison)[1][:MOST_COMPARED])
            bars = table_rows(speeds, width, self.glyphs) if speeds is not None else []
        # The table needs the room if they would take more than a BARS-th of the screen.
        drawn = [[], *bars] if bars and len(bars) < self.size.height // BARS else []
        return [*drawn, *([(line, "label")] for text in remarked for line in textwrap.wrap(text, max(1, width)))]

    def _show_remarks(self) -> None:
        panel = self.query_one(Panel)
        panel.styles.height = len(self._remark_lines(panel.size.width, 0))
        panel.repaint()

    @property
    def selected(self) -> Run | None:
        """The run in the column of the cursor; None in other columns, and before the runs have been compared."""
        position = self.query_one(Table).cursor_column - 1
        return self.runs[position] if self.comparison is not None and 0 <= position < len(self.runs) else None

    async def action_change(self) -> None:
        if (run := self.selected) is not None:
            await open_in_form(self.app, run)

    def action_pin(self) -> None:
        if (run := self.selected) is None:
            self.notify("move the cursor to the column of a run first")
        else:
            self._pin(run)

    @work(thread=True, group="pinning")
    def _pin(self, run: Run) -> None:
        message = f"{run.name} is no longer pinned"
        with self._pinning:
            try:
                if comparisons.pinned().run == run:
                    comparisons.unpin()
                else:
                    comparisons.pin(run)
                    unpin = self.app.key("pin")
                    message = f"{run.name} is the baseline of all comparisons from now on; {unpin} unpins it"
            except OSError as reason:
                self.app.call_from_thread(self.app.complain, clean(f"cannot be pinned: {reason}"))
                return
        self.app.call_from_thread(self.read_again)
        self.app.call_from_thread(self.notify, clean(message), markup=False)

    def action_copy(self) -> None:
        if self.comparison is not None:
            self.app.copy(wording.as_markdown(self.comparison), "the comparison as Markdown")

    def on_data_table_cell_selected(self) -> None:
        self.action_open()

    def action_open(self) -> None:
        if (run := self.selected) is not None:
            self.app.open_run(run)

    # ---- its curves ---------------------------------------------------------------------------------

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
        titles = wording.distinct(comparison.titles)
        return wording.distinct_names(titles, comparison.names), wording.in_brief(titles, comparison.names, SHORT_NAME)

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

    def show_curves(self) -> None:
        """Show the chosen chart or the first; none below LEAST_HEIGHT rows."""
        chart = self.query_one(Chart)
        charts = self.charts(self.app.settings.charts)
        chart.display = bool(charts) and self.size.height >= LEAST_HEIGHT
        if not charts:
            self._show_remarks()
            return
        names = [plot.key for plot in charts]
        at = names.index(self._chosen) if self._chosen in names else 0
        self._chosen = names[at]
        least, table = self.size.height // 3 if self.size.height >= HIGH else LEAST_CHART, self.query_one(Table)
        below = len(self._remark_lines(self.size.width - 2, 0))
        around = 2 + 1 + table.row_count + table.show_horizontal_scrollbar + below  # with the header and the footer
        chart.styles.height = max(least, self.size.height - around) if table.row_count else least
        chart.show(replace(charts[at], corner=page_corner(at + 1, len(charts), self.glyphs)))
        self._show_remarks()

    def action_page(self, by: int) -> None:
        names = [plot.key for plot in self.charts(self.app.settings.charts)]
        if self._chosen in names:
            self._chosen = names[(names.index(self._chosen) + by) % len(names)]
            self.show_curves()

    def action_previews(self) -> None:
        self.app.open_screen(catalogue.screen("previews", self, self.runs))

    def action_chart(self) -> None:
        if self._chosen:
            self.open_chart(self._chosen)


def _label(text: str, with_cells: bool) -> Text:
    return Text(clean(text), style="" if with_cells else "bold")


def _options(row: OptionRow, room: int = 0) -> list[str]:
    """An option's value of each run. Too long texts lose the folders that all share, then are cut (0: never)."""
    texts = [NONE if value is None else wording.option_text(row, at) for at, value in enumerate(row.values)]
    if not room or max(map(len, texts)) <= room:
        return texts
    parts = [text.split("/") for text in texts]
    same = sum(1 for _ in itertools.takewhile(lambda level: len(set(level)) == 1, zip(*parts, strict=False)))
    same = min(same, *(len(part) - 1 for part in parts))
    shorter = [f"..{'/'.join(part[same:])}" if same > 1 else text for text, part in zip(texts, parts, strict=True)]
    return [text if len(text) <= room else f"{text[: room - 2]}.." for text in shorter]
