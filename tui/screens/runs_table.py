"""The table of runs: its columns, the order of its rows, and how a run looks in it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rich.text import Text

from ..base.errors import clean
from ..base.glyphs import Glyphs, glyphs_of
from ..base.themes import colour
from ..reading import run_list
from ..reading.run_list import COLUMNS, Entry, ordered, when_text
from ..widgets.table import Column, OpeningTable
from .live import name_of

WIDTHS = {
    "run": 17, "state": 10, **{figure.narrow_head: figure.width + 1 for figure in run_list.FIGURES},
    "when": 7, "description": 0,
}
FIGURES = (*(figure.narrow_head for figure in run_list.FIGURES), "when")  # at the right of their columns
FULL_ID = 100  # from this width on the whole id is shown, with its date
LEAST_DESCRIPTION = 12


class Order(NamedTuple):
    """By which column, and whether the greatest or latest comes first."""

    column: str = "when"
    descending: bool = True

    def by(self, column: str) -> Order:
        """The same column again turns the order round."""
        return Order(column, not self.descending if column == self.column else column not in ("run", "description"))


class _Row(NamedTuple):
    made_of: tuple[object, ...]
    cells: list[Text]


class RunsTable(OpeningTable):
    """Shows entries in an order, as many columns of them as there is room for."""

    order = Order()

    def __init__(self) -> None:
        super().__init__(cursor_type="row", cell_padding=0)
        self._rows: dict[str, _Row] = {}

    def show(self, entries: Sequence[Entry], words: str, marked: Mapping[str, object]) -> dict[str, Entry]:
        """Those that the words of the filter leave, as they stand in the table now."""
        shown = {entry.run.id: entry for entry in ordered(entries, *self.order) if entry.matches(words)}
        longest = max((len(entry.run.id) + 3 for entry in entries), default=0)
        columns = [Column(name, self._label(name), width) for name, width in self._widths(longest).items()]
        names = tuple(column.key for column in columns)
        self._rows = {key: self._row(entry, key in marked, names) for key, entry in shown.items()}
        self.fill(columns, {key: row.cells for key, row in self._rows.items()})
        return shown

    def sort_by(self, column: str) -> None:
        self.order = self.order.by(column)

    def sort_by_next(self) -> None:
        """By the next of the columns that are shown."""
        shown = {column.key for column in self._columns_shown}
        names = [name for name in COLUMNS if name in shown] or ["when"]
        at = names.index(self.order.column) if self.order.column in names else 0
        self.order = Order(names[at], self.order.descending).by(names[(at + 1) % len(names)])

    @property
    def _glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    @property
    def _wide(self) -> bool:
        return self.screen.size.width >= FULL_ID

    def _widths(self, longest: int) -> dict[str, int]:
        """The run's column grows with its ids, the description takes what is left.

        It has a column where there is room; the line below the table shows it anyway.
        """
        width = self.screen.size.width
        run = max(WIDTHS["run"], min(longest, width // 3)) if self._wide else WIDTHS["run"]
        rest = width - sum(WIDTHS.values()) + WIDTHS["run"] - run - 2
        widths = WIDTHS | {"run": run, "description": rest}
        return {name: width for name, width in widths.items() if name != "description" or rest >= LEAST_DESCRIPTION}

    def _label(self, name: str) -> Text:
        arrow = ""
        if name == self.order.column:
            arrow = self._glyphs.down if self.order.descending else self._glyphs.up
        text = f"  {name}{arrow}" if name == "run" else f"{name}{arrow}"
        return Text(f"{text:>{WIDTHS[name] - 1}} " if name in FIGURES else f" {text}" if name != "run" else text)

    def _row(self, entry: Entry, marked: bool, columns: Sequence[str]) -> _Row:
        """Made anew only where something of it has changed: there may be thousands of runs."""
        made_of = (entry, marked, columns, self._wide)
        known = self._rows.get(entry.run.id)
        if known is not None and known.made_of == made_of:
            return known
        cells = self._cells(entry, marked)
        return _Row(made_of, [cells[column] for column in columns])

    def _cells(self, entry: Entry, marked: bool) -> dict[str, Text]:
        figures = (*(figure.bare(entry.figures.get(figure.key)) for figure in run_list.FIGURES), when_text(entry.when))
        mark = "*" if marked else " "
        name = clean(entry.run.id if self._wide else name_of(entry.run))
        cells = {
            "run": Text(f"{mark} {name}", style="bold" if marked else "", no_wrap=True),
            "state": Text(f" {self._sign(entry)} {entry.state_word}", style=colour(self.app, _colour(entry))),
            "description": Text(f" {clean(entry.description)}".replace("\n", " "), no_wrap=True),
        }
        for column, text in zip(FIGURES, figures, strict=True):
            cells[column] = Text(f"{text:>{WIDTHS[column] - 1}} ")
        return cells

    def _sign(self, entry: Entry) -> str:
        if entry.goes_on:
            return self._glyphs.more
        return self._glyphs.ok if entry.state == "ok" else self._glyphs.failed[:1]


def _colour(entry: Entry) -> str:
    if entry.goes_on:
        return "primary"
    return "success" if entry.state == "ok" else "warning" if entry.state == "stopped" else "error"
