"""Prints tables as plain columns that fit the terminal. Texts are folded between words, and figures are not divided."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable, Sequence

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, OverflowMethod, RenderableType, RenderResult
from rich.measure import Measurement
from rich.table import Table as RichTable
from rich.text import Text

from ...engine.text_table import Table
from ...engine.units import change_label
from ..base import glyphs
from ..base.errors import clean
from ..drawing.interval_bar import Interval, bar, scale_of
from ..drawing.rows import plain

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
_GAP = 2  # between two columns
_NARROWEST = 8  # of a column of texts, even if its words are longer
_WHOLE = 24  # characters of a word or a name that is not divided, such as steps_per_execution=16


class Columns:
    """A table as columns of a terminal. If a terminal is too narrow for the whole table, texts are folded between
    words. If it is still too narrow, the table's `spare` columns are left out, beginning with the last, and a line
    below the table names them."""

    def __init__(self, table: Table) -> None:
        self._cells = [list(table.head), *([clean(cell) for cell in row] for row in table.rows)]
        self._right, self._spare, self._drawn = table.right, table.spare, table.drawn
        self._most = [max(map(_lines_width, column)) for column in zip(*self._cells, strict=True)]
        self._least = [self._least_width(position) for position in range(len(table.head))]

    def __rich_measure__(self, console: Console, options: ConsoleOptions) -> Measurement:
        return Measurement(_total(self._least), _total(self._most))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        shown = self._shown(options.max_width)
        made = RichTable(box=None, pad_edge=False)
        for position, width in zip(shown, self._widths(shown, options.max_width), strict=True):
            side: JustifyMethod = "right" if position in self._right else "left"
            overflow: OverflowMethod = "crop" if position in self._drawn else "fold"
            made.add_column(Text(self._cells[0][position]), justify=side, overflow=overflow, width=width,
                            no_wrap=position in self._drawn)  # fmt: skip
        for row in self._cells[1:]:
            made.add_row(*(Text(row[position]) for position in shown))
        yield made
        missing = [name for position, name in enumerate(self._cells[0]) if position not in shown]
        if missing:
            yield Text(f"a wider terminal also shows: {', '.join(missing)}")

    def _least_width(self, position: int) -> int:
        # That of its longest text if it has figures, pictures or short names, else that of its longest word.
        most = self._most[position]
        if position in self._right or position in self._drawn or (position == 0 and most <= _WHOLE):
            return most
        words = (word for row in self._cells for word in row[position].split())
        return min(_WHOLE, max(map(cell_len, words), default=0))

    def _shown(self, width: int) -> list[int]:
        shown, spare = list(range(len(self._least))), list(self._spare)
        while spare and _total([self._least[position] for position in shown]) > width:
            shown.remove(spare.pop())
        return shown

    def _widths(self, shown: Sequence[int], width: int) -> list[int]:
        # Room that is left is given to the texts that are folded most. If room is missing, the widest texts lose it.
        widths, most = [self._least[position] for position in shown], [self._most[position] for position in shown]
        texts = [place for place, at in enumerate(shown) if at not in self._right and at not in self._drawn]
        while _total(widths) < width and (folded := [place for place in texts if widths[place] < most[place]]):
            widths[max(folded, key=lambda place: most[place] / max(1, widths[place]))] += 1
        while _total(widths) > width and (wide := [place for place in texts if widths[place] > _NARROWEST]):
            widths[max(wide, key=lambda place: widths[place])] -= 1
        return widths


def _lines_width(text: str) -> int:
    return max(map(cell_len, text.splitlines()), default=0)


def _total(widths: Sequence[int]) -> int:
    return sum(widths) + _GAP * (len(widths) - 1)


def show_table(table: Table | RenderableType) -> None:
    """Print a table. On a terminal it is printed within the terminal's width, elsewhere with lines of any length."""
    made = Columns(table) if isinstance(table, Table) else table
    out = console()
    if not sys.stdout.isatty():
        out.width = _UNLIMITED
        out.width = out.measure(made).maximum
        with out.capture() as lines:
            out.print(made)
        print("\n".join(line.rstrip() for line in lines.get().splitlines()))
        return
    out.print(made)


WIDE, MIDDLE = 31, 21  # widths of the bars
WIDE_FROM, MIDDLE_FROM = 130, 100  # columns of the terminal


def show_with_bars(
    table: Table,
    intervals: Sequence[Interval | None],
    after: int,
    zero: float = 0.0,
    label: Callable[[float], str] = change_label,
) -> None:
    """Print the table with bars after the column `after`, or below it on a narrow terminal, over one scale with a line
    at `zero`."""
    scale = scale_of(intervals, zero, label)
    if scale is None:
        show_table(table)
        return
    columns = console().width if sys.stdout.isatty() else WIDE_FROM
    width = MIDDLE if MIDDLE_FROM <= columns < WIDE_FROM else WIDE
    cells = [plain(bar(interval, scale, width, glyphs.suited())) for interval in intervals]
    if columns >= MIDDLE_FROM:
        show_table(table.with_column(after + 1, scale.head(width), cells))
        return
    show_table(table)
    print()
    names = Table(table.head[:1], [row[:1] for row in table.rows], right=[at for at in table.right if at == 0])
    show_table(names.with_column(1, scale.head(width), cells))
