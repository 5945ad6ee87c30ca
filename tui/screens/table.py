"""The base of the screens with a table: their columns are declared, and drawn for each size, theme and reading."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Literal, TypeVar

from rich.text import Text

from ..base.themes import painted_colour
from ..drawing.rows import Piece, Row, fitting
from ..widgets.row_widgets import Panel
from ..widgets.table import Column, Table
from .base import AppScreen

Entry = TypeVar("Entry")
LEAST = 10  # cells of a column that gets the rest


@dataclass(frozen=True)
class TableColumn(Generic[Entry]):
    """A column of `width` cells; of 0 it gets the rest. `cell` returns what it shows of an entry: a text, also with its
    style (of painted rows, or `bold` with a colour), which is cut so that a blank follows, a row, or a text of Rich. A
    screen of fewer columns than `least` leaves it out."""

    head: str
    width: int
    cell: Callable[[Entry], str | Piece | Row | Text]
    side: Literal["left", "right"] = "left"
    least: int = 0


class TableScreen(AppScreen, Generic[Entry]):
    """A screen with a table, and panels, of which `#detail`, if there is one, is about the cursor's row."""

    AUTO_FOCUS = "DataTable"

    @property
    def entries(self) -> Mapping[str, Entry]:
        """The rows, by keys that stay with their entries."""
        raise NotImplementedError

    def columns(self) -> Sequence[TableColumn[Entry]]:
        raise NotImplementedError

    def style_of(self, _entry: Entry) -> str:
        return ""

    @property
    def table(self) -> Table:
        return self.query_one(Table)

    @property
    def current(self) -> Entry | None:
        return self.entries.get(self.table.current_key or "")

    def show_table(self) -> None:
        columns = [column for column in self.columns() if self.size.width >= column.least]
        taken = sum(column.width + 2 * self.table.cell_padding for column in columns)
        rest = max(LEAST, self.size.width - taken - 1)  # a scrollbar may come
        heads = [
            Column(str(at), Text(fitting(column.head, width, self.glyphs), justify=column.side), width)
            for at, column in enumerate(columns)
            for width in (column.width or rest,)
        ]
        rows = {
            key: [self._cell(column, head.width, entry) for column, head in zip(columns, heads, strict=True)]
            for key, entry in self.entries.items()
        }
        self.table.fill(heads, rows)
        for panel in self.query(Panel):
            panel.repaint()

    def _cell(self, column: TableColumn[Entry], width: int, entry: Entry) -> Text:
        drawn = column.cell(entry)
        if isinstance(drawn, Text):
            return drawn
        if isinstance(drawn, str):
            drawn = drawn, self.style_of(entry)
        if isinstance(drawn, tuple):
            drawn = [(fitting(drawn[0], width - (column.side == "left"), self.glyphs), drawn[1])]
        pieces = (
            (text, style if style.startswith("bold") else painted_colour(self.app, style)) for text, style in drawn
        )
        return Text.assemble(*pieces, no_wrap=True, justify=column.side)

    def show_latest(self) -> None:
        self.show_table()

    def show_again(self) -> None:
        self.show_table()

    def on_data_table_row_highlighted(self) -> None:
        for panel in self.query("#detail").results(Panel):
            panel.repaint()
