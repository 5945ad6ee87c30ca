"""Runs side by side: the options that differ, then the figures with their difference from the baseline.

The first column is the baseline: the pinned run, or the first of those that were marked.
"""

from __future__ import annotations

import re
import textwrap
import threading
from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable

from ...engine.compare.comparison import Comparison, FigureRow, compare
from ...engine.runs import Run, baseline
from ..base.errors import clean
from ..base.themes import colour
from ..drawing.rows import Row
from ..text.comparison import as_markdown, change_text, has_noise, noise_text, option_text, remarks, value_text
from ..widgets.key_footer import KeyFooter
from ..widgets.panel import Panel
from ..widgets.table import Column, OpeningTable, Table
from .base import FollowingScreen
from .live import name_of


class CompareScreen(FollowingScreen[tuple[list[Run], Comparison]]):
    """`runs` in the order in which they are shown; a pinned baseline is always the first of them.

    Unpinning changes nothing on the screen: the run stays first and remains the baseline here.
    """

    CSS_PATH = "compare.tcss"
    FOLLOWS_COVERED = True  # it is read once
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("b", "pin", "Pin baseline"),
        Binding("m", "copy", "Copy as Markdown"),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        self.runs = list(runs)
        self.found: Comparison | None = None
        self._shown: tuple[list[Run], Comparison] | None = None
        self._pinning = threading.Lock()

    def compose(self) -> ComposeResult:
        yield OpeningTable(cursor_type="cell", fixed_columns=1, cell_padding=1)
        yield Panel(self._remark_lines, id="said")
        yield KeyFooter()

    def readings(self, leaving: threading.Event) -> Iterator[tuple[list[Run], Comparison]]:
        """One, of the runs as they are now."""
        line_up = baseline.line_up(self.runs)
        yield list(line_up.runs), compare(line_up)

    def show_latest(self) -> None:
        if self.latest is not None and self.latest is not self._shown:  # else the cursor stays where it is
            self._shown = self.latest
            self.show(*self.latest)

    def show(self, runs: list[Run], found: Comparison) -> None:
        """Fill the table, with the cursor on the baseline, which is also where a newly pinned run goes."""
        if not self.is_attached:
            return
        self.runs, self.found = runs, found
        rows = [("run", [_moment(run) for run in self.runs], ""), ("outcome", list(found.states), "")]
        rows += [("", [], ""), ("options that differ" if found.options else "no option differs", [], "")]
        rows += [(row.key, [option_text(row, i) for i in range(len(self.runs))], "") for row in found.options]
        rows += [("", [], ""), ("figures", [], "")]
        body = [[_label(label, bool(cells)), *map(_right, cells), _right(last)] for label, cells, last in rows]
        for figure in found.figures:
            cells = [self._figure(figure, position) for position in range(len(self.runs))]
            body.append([_label(figure.label, True), *cells, _right(noise_text(figure))])
        head = ["", *map(self._head, self.runs), *(["spread of repeats"] if has_noise(found) else [])]
        self._fill([_right(name) for name in head], body)
        self._show_remarks()

    def _head(self, run: Run) -> str:
        """A heading; the pinned baseline is marked."""
        pinned = self.found is not None and self.found.choice == "pinned" and self.found.baseline == run.id
        return clean(name_of(run)) + (" (baseline)" if pinned else "")

    def _fill(self, head: list[Text], body: list[list[Text]]) -> None:
        """Each column as wide as its widest cell; the cursor stays in its row."""
        table = self.query_one(Table)
        body = [(cells + [Text("")] * (len(head) - len(cells)))[: len(head)] for cells in body]
        widths = [max(cells[position].cell_len for cells in (head, *body)) for position in range(len(head))]
        columns = [Column(str(at), name, width) for at, (name, width) in enumerate(zip(head, widths, strict=True))]
        table.fill(columns, {str(row): cells for row, cells in enumerate(body)})
        table.move_cursor(row=table.cursor_row, column=1)

    def _figure(self, row: FigureRow, position: int) -> Text:
        """The value and its difference; the colour only says whether that is an improvement."""
        change, by = change_text(row, position), row.changes[position]
        text = Text(value_text(row, row.values[position]), justify="right")
        if not change:
            return text
        known = bool(by) and row.more_is_better is not None and row.tells(position) is not False
        good = by is not None and (by > 0) == row.more_is_better
        style = colour(self.app, "success" if good else "error") if known else "dim"
        return text.append(f"  {change:>12}", style=style)

    def _remark_lines(self, width: int, height: int) -> list[Row]:
        remarked = remarks(self.found) if self.found is not None else []
        return [[(line, "label")] for text in remarked for line in textwrap.wrap(text, max(1, width))]

    def _show_remarks(self) -> None:
        """Show the notes in as many lines as they need."""
        panel = self.query_one(Panel)
        panel.styles.height = len(self._remark_lines(panel.size.width, 0))
        panel.repaint()

    def on_resize(self) -> None:
        if self.found is not None:
            self.call_after_refresh(self._show_remarks)

    @property
    def selected(self) -> Run | None:
        """The run of the column under the cursor."""
        position = self.query_one(Table).cursor_column - 1
        return self.runs[position] if self.found is not None and 0 <= position < len(self.runs) else None

    def action_pin(self) -> None:
        """Pin the selected run, or unpin it if it is pinned."""
        if (run := self.selected) is None:
            self.notify("move the cursor to the column of a run first")
        else:
            self._pin(run)

    @work(thread=True, group="pinning")
    def _pin(self, run: Run) -> None:
        with self._pinning:
            try:
                said = _toggle(run)
            except OSError as reason:
                self.app.call_from_thread(self.app.complain, clean(f"cannot be pinned: {reason}"))
                return
        self.app.call_from_thread(self.read_again)
        self.app.call_from_thread(self.notify, clean(said), markup=False)

    def action_copy(self) -> None:
        if self.found is not None:
            self.app.copy_to_clipboard(as_markdown(self.found))
            self.notify("copied as Markdown")

    def on_data_table_cell_selected(self, event: DataTable.CellSelected) -> None:
        self.action_open()

    def action_open(self) -> None:
        if (run := self.selected) is not None:
            self.app.open_run(run)


def _toggle(run: Run) -> str:
    if baseline.pinned().run == run:
        baseline.unpin()
        return f"{run.id} is no longer pinned"
    baseline.pin(run)
    return f"{run.id} is the baseline of all comparisons from now on; b unpins it"


def _label(text: str, with_cells: bool) -> Text:
    """Headings, which have no cells beside them, are bold."""
    return Text(clean(text), style="" if with_cells else "bold")


def _right(text: str) -> Text:
    return Text(text, justify="right")


def _moment(run: Run) -> str:
    """The time in the id, beside the name."""
    return clean(run.id[:15] if re.match(r"\d{8}-\d{6}-", run.id) else run.id)
