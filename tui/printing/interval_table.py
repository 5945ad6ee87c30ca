"""Prints a table with the bars of its values: a column of the table or, on a narrow terminal, a table of their own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from ...engine.text_table import Table
from ...engine.units import change_label
from ..base import glyphs
from ..drawing.interval_bar import Interval, bar, scale_of
from ..drawing.rows import plain
from .plain_tables import console, show_table

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
