"""Draws values with their uncertainty as bars over one scale, which a table makes for all its rows. Its ends are round
numbers, so that they seldom move while values are still being measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from ...engine.text_table import Interval, Table
from ...engine.units import change_label
from ..base.glyphs import Glyphs
from .plot.axes import round_step
from .rows import GAP, Row, TableLayout, fit, fitting, joined, plain

LEAST_WIDTH = 5  # cells, below which no bar is drawn
PARTS = 4  # of a scale between its labels, about
FINER = 5  # the ends of a scale are multiples of this part of a step
LEAST_SPAN = 0.01  # of a scale, if all values are equal, as a share of its zero if that is another value than 0


@dataclass(frozen=True)
class Scale:
    """A scale from `low` to `high`, with `zero` on it and a label at each multiple of `step` away from `zero`."""

    low: float
    high: float
    step: float
    zero: float = 0.0
    label: Callable[[float], str] = change_label

    def column(self, value: float, width: int) -> int:
        place = round((value - self.low) / (self.high - self.low) * (width - 1))
        return max(0, min(width - 1, place))

    @cached_property
    def _ticks(self) -> list[float]:
        # The most important first.
        first = math.ceil((self.low - self.zero) / self.step - 1e-6)
        last = math.floor((self.high - self.zero) / self.step + 1e-6)
        multiples = dict.fromkeys([0, last, first, *range(first, last + 1)])
        return [self.zero + multiple * self.step for multiple in multiples]

    def labelled(self, width: int) -> Mapping[int, tuple[int, str]]:
        """Return start and text of each label that fits, by the column of its value; of equal texts only the first."""
        labels: dict[int, tuple[int, str]] = {}
        taken: set[int] = set()
        for value in self._ticks:
            column, text = self.column(value, width), self.label(value)
            start = max(0, min(width - len(text), column - len(text) // 2))
            cells = set(range(start - 1, start + len(text) + 1))
            if len(text) <= width and not taken & cells and all(text != other for _, other in labels.values()):
                labels[column] = start, text
                taken |= cells - {start - 1, start + len(text)}
        return labels

    def head(self, width: int) -> str:
        line = [" "] * width
        for start, text in self.labelled(width).values():
            line[start : start + len(text)] = text
        return "".join(line)


def scale_of(
    intervals: Iterable[Interval | None], zero: float = 0.0, label: Callable[[float], str] = change_label
) -> Scale | None:
    """Return the scale that all intervals share. None if there are none: nothing has been measured so far."""
    measured = [interval for interval in intervals if interval is not None]
    if not measured:
        return None
    low = min(zero, *(interval.low for interval in measured))
    high = max(zero, *(interval.high for interval in measured))
    step = round_step(max(high - low, LEAST_SPAN * (abs(zero) or 1.0)) / PARTS)
    part = step / FINER
    first, last = math.floor((low - zero) / part + 1e-6), math.ceil((high - zero) / part - 1e-6)
    return Scale(zero + first * part, zero + max(last, first + FINER) * part, step, zero, label)


def head(scale: Scale | None, width: int) -> str:
    """Return the head of a column of bars in `width` characters, two of them blanks before the scale."""
    return f"  {scale.head(width - 2)}" if scale is not None and width > LEAST_WIDTH else ""


def bar(interval: Interval | None, scale: Scale | None, width: int, glyphs: Glyphs, style: str = "") -> Row:
    """Return the bar of an interval in exactly `width` cells: `├──•──┤`, with the line at zero, and faint marks below
    the labels of the scale. Only these without an interval, and blanks without a scale or room."""
    if scale is None or width < LEAST_WIDTH:
        return [(" " * width, "")]
    cells = [(" ", "")] * width
    for column in scale.labelled(width):
        cells[column] = glyphs.grid_down, "track"
    zero = scale.column(scale.zero, width)
    cells[zero] = glyphs.axis, "label"
    if interval is not None:
        left, at, right = (scale.column(value, width) for value in (interval.low, interval.value, interval.high))
        left += interval.low > scale.zero and left == zero < at  # a bar that does not contain zero leaves its line free
        right -= interval.high < scale.zero and right == zero > at
        for column in range(left, right + 1):
            cells[column] = glyphs.whisker, style
        cells[left], cells[right] = (glyphs.whisker_left, style), (glyphs.whisker_right, style)
        if interval.low < scale.zero < interval.high:
            cells[zero] = glyphs.whisker_cross, style
        cells[at] = glyphs.point, style
    return joined(cells)


def with_bars(table: Table, width: int, glyphs: Glyphs) -> Table:
    """Return the table with its bars as a column of pictures, `width` wide; unchanged if it has none."""
    if table.bars is None or (scale := scale_of(table.bars.intervals, table.bars.zero, table.bars.label)) is None:
        return table
    cells = [plain(bar(interval, scale, width, glyphs)) for interval in table.bars.intervals]
    return table.with_column(table.bars.after + 1, scale.head(width), cells)


WIDE_BAR, NARROW_BAR = 32, 9  # widths of the bars of a table


def table_rows(table: Table, width: int, glyphs: Glyphs) -> list[Row]:
    """Return the head and the rows of a table with its bars, without those for which there is no room."""
    layout = TableLayout(table, folds=False)
    room = min(WIDE_BAR, width - layout.total(layout.least) - GAP)
    table = with_bars(table, room, glyphs) if room >= NARROW_BAR else table
    widths = TableLayout(table, folds=False).within(width)
    rows: list[Row] = []
    for line in (table.head, *table.rows):
        texts = (f"{fitting(line[at], of, glyphs):{'<>'[at in table.right]}{of}}" for at, of in widths.items())
        rows.append(fit([((" " * GAP).join(texts), "value" if rows else "label")], width))
    return rows
