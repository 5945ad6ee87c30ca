"""The base of every table. It is filled and refreshed without losing the cursor's row, and has the colours of the
theme."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar, NamedTuple

from rich.text import Text
from textual.binding import BindingType
from textual.widgets import DataTable

from ..base import keys


class Column(NamedTuple):
    """A column of a table: its heading, and the width of its cells in characters."""

    key: str
    label: Text
    width: int


class Table(DataTable[Text]):
    """The base of the tables. `fill` shows rows by their keys."""

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", "select_cursor", show=False, meaning="open the row under the cursor"),
        *keys.moves(first="scroll_top", last="scroll_bottom"),
    ]
    DEFAULT_CSS = """
    Table {
        height: 1fr;
        background: $background;
        &:focus { background-tint: $foreground 0%; }
        scrollbar-size: 1 1;
        & > .datatable--header { background: $panel; color: $foreground; text-style: bold; }
        & > .datatable--odd-row, & > .datatable--even-row, & > .datatable--fixed { background: $background; }
        &:focus > .datatable--cursor { background: $block-cursor-background; color: $block-cursor-foreground; }
    }
    """
    ROW_HEIGHT: ClassVar[int | None] = 1  # None: as many lines as the cells have

    _columns_shown: Sequence[Column] = ()
    _rows_shown: Mapping[str, Sequence[Text]] = {}

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool | None:
        return action != "select_cursor" or bool(self._rows_shown)

    @property
    def current_key(self) -> str | None:
        keys = list(self._rows_shown)
        return keys[self.cursor_row] if 0 <= self.cursor_row < len(keys) else None

    def fill(self, columns: Sequence[Column], rows: Mapping[str, Sequence[Text]]) -> None:
        """Show the rows; only cells that differ are written, unless rows or columns come, go or move."""
        if _form(columns) != _form(self._columns_shown) or list(rows) != list(self._rows_shown):
            self._fill_anew(columns, rows)
        else:
            for key, cells in rows.items():
                if cells is self._rows_shown[key]:
                    continue
                for column, old, new in zip(self._columns_shown, self._rows_shown[key], cells, strict=True):
                    if _appearance(old) != _appearance(new):
                        self.update_cell(key, column.key, new)
        was_empty = not self._rows_shown
        self._columns_shown, self._rows_shown = list(columns), dict(rows)
        if was_empty != (not rows):
            self.refresh_bindings()

    def _fill_anew(self, columns: Sequence[Column], rows: Mapping[str, Sequence[Text]]) -> None:
        """It stays scrolled as it was, if the row of the cursor is seen."""
        current, place = self.current_key, self.scroll_offset
        self.clear(columns=True)
        for column in columns:
            self.add_column(column.label, key=column.key, width=column.width)
        for key, cells in rows.items():
            self.add_row(*cells, key=key, height=self.ROW_HEIGHT)
        self.scroll_to(place.x, place.y, animate=False, immediate=True)
        if current is not None and current in rows:
            self.move_cursor(row=list(rows).index(current), animate=False)


class ReadTable(Table):
    """A table in which Enter on a row has no effect."""

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool | None:
        return action != "select_cursor"


class OpeningTable(Table):
    """A table in which Enter opens the row or column under the cursor."""

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", "select_cursor", meaning="open the row or column under the cursor")
    ]


def _form(columns: Sequence[Column]) -> list[tuple[object, ...]]:
    return [(column.key, column.width, _appearance(column.label)) for column in columns]


def _appearance(text: Text) -> tuple[object, ...]:
    # The text's own `==` ignores the style.
    return text.plain, text.style, text.spans, text.justify
