"""Prints tables as plain columns that fit the terminal. Texts are folded between words, and figures are not divided."""

from __future__ import annotations

import sys
import textwrap

from rich.console import Console, ConsoleOptions, JustifyMethod, OverflowMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from ...engine.text_table import Table
from ..base import glyphs
from ..base.errors import clean
from ..drawing.interval_bar import with_bars
from ..drawing.rows import TableLayout

_INDENT = "    "


def console() -> Console:
    """Return a console for standard output that prints texts unchanged: no markup, emoji codes or highlighting."""
    return Console(markup=False, emoji=False, highlight=False)


def say(text: str) -> None:
    print(broken(clean(text), console().width) if sys.stdout.isatty() else clean(text))


def broken(text: str, width: int) -> str:
    """Return the text with lines of at most `width` characters, broken between words. Continued lines are indented."""
    return "\n".join(textwrap.fill(
        line, max(width, 2 * len(_INDENT)), subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
    ) for line in text.splitlines())  # fmt: skip


_UNLIMITED = 10_000


class Columns:
    """A table as columns of a terminal. If a terminal is too narrow for the whole table, texts are folded between
    words. If it is still too narrow, the table's `spare` columns are left out, beginning with the last, and a line
    below the table names them."""

    def __init__(self, table: Table) -> None:
        self._table = Table(
            table.head, [[*map(clean, row)] for row in table.rows], table.right, table.spare, table.drawn
        )
        self._layout = TableLayout(self._table, folds=True)

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(self._layout.total(self._layout.least), self._layout.total(self._layout.most))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table, widths = self._table, self._layout.within(options.max_width)
        made = RichTable(box=None, pad_edge=False)
        for position, width in widths.items():
            side: JustifyMethod = "right" if position in table.right else "left"
            overflow: OverflowMethod = "crop" if position in table.drawn else "fold"
            made.add_column(Text(table.head[position]), justify=side, overflow=overflow, width=width,
                            no_wrap=position in table.drawn)  # fmt: skip
        for row in table.rows:
            made.add_row(*(Text(row[position]) for position in widths))
        yield made
        missing = [name for position, name in enumerate(table.head) if position not in widths]
        if missing:
            yield Text(f"a wider terminal also shows: {', '.join(missing)}")


def show_table(table: Table | RenderableType) -> None:
    """Print a table with its bars, which stand below it on a narrow terminal. On a terminal it is printed within the
    terminal's width, elsewhere with lines of any length."""
    out = console()
    is_terminal = sys.stdout.isatty()
    below = None
    if isinstance(table, Table) and table.bars is not None:
        columns = out.width if is_terminal else WIDE_FROM
        drawn = with_bars(table, MIDDLE if MIDDLE_FROM <= columns < WIDE_FROM else WIDE, glyphs.suited())
        if columns < MIDDLE_FROM and drawn is not table:
            at = table.bars.after + 1
            rows = [[row[0], row[at]] for row in drawn.rows]
            below = Table([drawn.head[0], drawn.head[at]], rows, right=[0] if 0 in table.right else [], drawn=[1])
        else:
            table = drawn
    made = Columns(table) if isinstance(table, Table) else table
    if is_terminal:
        out.print(made)
    else:
        out.width = _UNLIMITED
        out.width = out.measure(made).maximum
        with out.capture() as lines:
            out.print(made)
        print("\n".join(line.rstrip() for line in lines.get().splitlines()))
    if below is not None:
        print()
        show_table(below)


WIDE, MIDDLE = 31, 21  # widths of the bars
WIDE_FROM, MIDDLE_FROM = 130, 100  # columns of the terminal
