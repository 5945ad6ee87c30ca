"""A table of texts, with a head and rows, and bars of values with their uncertainty, for terminals and as Markdown."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from .units import change_label


class Code(str):
    """The text of a cell that can be typed as it is, such as a setting. Markdown shows it in backticks."""


@dataclass(frozen=True)
class Interval:
    """A measured value, with the lowest and the highest value that its measurement leaves possible."""

    value: float
    low: float
    high: float

    def __post_init__(self) -> None:
        if not self.low <= self.value <= self.high or not math.isfinite(self.high - self.low):
            raise ValueError(f"{self} has no order or no end")

    def contains(self, value: float) -> bool:
        return self.low <= value <= self.high


def around(value: float | None, error: float | None) -> Interval | None:
    """Return the interval from `error` below to `error` above the value; None if that is not finite."""
    if value is None or not math.isfinite(width := 2 * abs(error or 0.0)) or not math.isfinite(value):
        return None
    return Interval(value, value - width / 2, value + width / 2)


@dataclass(frozen=True)
class Bars:
    """An interval for each row of a table, to be drawn after the column `after`, over one scale with a line at `zero`
    and labels.
    """

    intervals: Sequence[Interval | None]
    after: int
    zero: float = 0.0
    label: Callable[[float], str] = change_label


@dataclass(frozen=True)
class Table:
    """`right` has the columns of figures, `spare` those that a narrow view may leave out (the last first), and `drawn`
    those of pictures, whose blanks count.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[int] = ()
    spare: Sequence[int] = ()
    drawn: Collection[int] = ()
    bars: Bars | None = None

    def with_column(self, at: int, head: str, cells: Sequence[str]) -> Table:
        """An additional column of pictures at the index `at`."""
        rows = [[*row[:at], cell, *row[at:]] for row, cell in zip(self.rows, cells, strict=True)]
        right, spare, drawn = (
            [column + (column >= at) for column in columns] for columns in (self.right, self.spare, self.drawn)
        )
        return Table([*self.head[:at], head, *self.head[at:]], rows, right, spare, [*drawn, at])

    def markdown(self) -> str:
        rule = ["---:" if column in self.right else "---" for column in range(len(self.head))]
        lines = [self.head, rule, *self.rows]
        cells = (
            [f"`{escaped(text)}`" if isinstance(text, Code) and text else escaped(text).rstrip() for text in line]
            for line in lines
        )
        return "\n".join(f"| {' | '.join(line)} |" for line in cells)


def escaped(text: str) -> str:
    """Return the text for a cell of Markdown: on one line, with `|` escaped."""
    return str(text).replace("|", "\\|").replace("\n", " ")
