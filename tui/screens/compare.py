"""Runs side by side: the options that differ, then the figures with their difference from the first run."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer

from ...engine.compare import Comparison, FigureRow, compare
from ...engine.runs import Run
from ..drawing.rows import Row
from ..errors import clean
from ..listing_compare import (
    WITHIN,
    as_markdown,
    change_text,
    has_noise,
    noise_text,
    option_text,
    value_text,
)
from ..widgets.panel import Panel

if TYPE_CHECKING:
    from ..host import Host
from .common import OpeningTable, colour
from .live_actions import name_of


class CompareScreen(Screen[None]):
    """`runs` in the order in which they are shown; the first is what the others are measured against."""

    CSS_PATH = "compare.tcss"
    app: Host
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "copy", "Copy as Markdown"),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self, runs: Sequence[Run]) -> None:
        super().__init__()
        self.runs = list(runs)
        self.found: Comparison | None = None

    def compose(self) -> ComposeResult:
        yield OpeningTable(cursor_type="cell", fixed_columns=1, cell_padding=1)
        yield Panel(self._said, id="said")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.read()

    @work(thread=True)
    def read(self) -> None:
        self.app.call_from_thread(self.show, compare(self.runs))

    def show(self, found: Comparison) -> None:
        self.found = found
        rows = [("run", [_moment(run) for run in self.runs], ""), ("outcome", list(found.states), "")]
        rows += [("", [], ""), ("options that differ" if found.options else "no option differs", [], "")]
        rows += [(row.key, [option_text(row, i) for i in range(len(self.runs))], "") for row in found.options]
        rows += [("", [], ""), ("figures", [], "")]
        body = [[_label(label, bool(cells)), *map(_right, cells), _right(last)] for label, cells, last in rows]
        for figure in found.figures:
            cells = [self._figure(figure, position) for position in range(len(self.runs))]
            body.append([_label(figure.label, True), *cells, _right(noise_text(figure))])
        head = ["", *(clean(name_of(run)) for run in self.runs), *(["spread of repeats"] if has_noise(found) else [])]
        self._fill([_right(name) for name in head], body)

    def _fill(self, head: list[Text], body: list[list[Text]]) -> None:
        """Each column as wide as its widest cell."""
        table = self.query_one(DataTable)
        table.clear(columns=True)
        body = [row + [Text("")] * (len(head) - len(row)) for row in body]
        for position, name in enumerate(head):
            table.add_column(name, width=max(row[position].cell_len for row in (head, *body)))
        table.add_rows(row[: len(head)] for row in body)
        table.move_cursor(column=1)
        self.query_one(Panel).repaint()

    def _figure(self, row: FigureRow, position: int) -> Text:
        """The value and how it compares; the colour only says whether that is to the good."""
        change, by = change_text(row, position), row.changes[position]
        text = Text(value_text(row, row.values[position]), justify="right")
        if not change:
            return text
        known = bool(by) and row.more_is_better is not None and row.tells(position) is not False
        good = by is not None and (by > 0) == row.more_is_better
        style = colour(self.app, "success" if good else "error") if known else "dim"
        return text.append(f"  {change:>12}", style=style)

    def _said(self, width: int, height: int) -> list[Row]:
        text = "differences are from the first run"
        if self.found is not None and has_noise(self.found):
            text += f"; {WITHIN}"
        return [[(text, "label")]]

    def action_copy(self) -> None:
        if self.found is not None:
            self.app.copy_to_clipboard(as_markdown(self.found))
            self.notify("copied as Markdown")

    def on_data_table_cell_selected(self, event: DataTable.CellSelected) -> None:
        self.action_open()

    def action_open(self) -> None:
        """The run of the column under the cursor."""
        position = self.query_one(DataTable).cursor_column - 1
        if 0 <= position < len(self.runs):
            self.app.open_run(self.runs[position])

    def action_back(self) -> None:
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()


def _label(text: str, with_cells: bool) -> Text:
    """Headings, which have no cells beside them, are bold."""
    return Text(clean(text), style="" if with_cells else "bold")


def _right(text: str) -> Text:
    return Text(text, justify="right")


def _moment(run: Run) -> str:
    """What the id says beside the name: when."""
    return clean(run.id[:15] if re.match(r"\d{8}-\d{6}-", run.id) else run.id)
