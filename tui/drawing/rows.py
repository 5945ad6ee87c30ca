"""A line of the screen as pieces of text with style names, independent of colours.

Panels are functions that return rows, and are tested as such.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable

from rich.cells import cell_len, set_cell_size

from ..base.glyphs import Glyphs

Piece = tuple[str, str]
Row = list[Piece]


def length(row: Iterable[Piece]) -> int:
    """The number of cells that the row takes."""
    return sum(cell_len(text) for text, _ in row)


def fit(row: Iterable[Piece], width: int) -> Row:
    """The row, cropped or padded with blanks to exactly `width` cells."""
    left = width
    fitted: Row = []
    for text, style in row:
        if left <= 0:
            break
        cells = cell_len(text)
        if cells > left:
            text, cells = set_cell_size(text, left), left
        fitted.append((text, style))
        left -= cells
    if left > 0:
        fitted.append((" " * left, ""))
    return fitted


def fitting(text: str, width: int, glyphs: Glyphs) -> str:
    """The text, with its end replaced by a mark where it is too long."""
    return text if len(text) <= width else text[: max(0, width - len(glyphs.more))] + glyphs.more


def two_lines(text: str, width: int) -> list[str]:
    """The text in at most two lines of whole words; the rest is left out."""
    return textwrap.wrap(text.replace("\n", " "), max(10, width))[:2]


def spread(left: Row, right: Row, width: int) -> Row:
    """`left` at the left and `right` at the right edge; where both do not fit, the left is cropped."""
    room = max(0, width - length(right))
    return fit([*fit(left, room), *right], width)


def headline(left: Row, right: Row, width: int, rule: str) -> Row:
    """The same with a thin line between them: the upper edge of a panel."""
    room = width - length(left) - length(right) - 2
    if room < 1:
        return spread(left, right, width)
    return [*left, (f" {rule * room} ", "track"), *right]


def plain(row: Iterable[Piece]) -> str:
    """The text without styles."""
    return "".join(text for text, _ in row)


NEAR = 4  # unchanged cells that are sent between two changes, as moving the cursor costs more


def differences(old: Row, new: Row) -> list[tuple[int, int]]:
    """The spans of cells (start, width) in which two rows differ."""
    if old == new:
        return []
    before, after = _cells(old), _cells(new)
    if before is None or after is None or len(before) != len(after):
        return [(0, max(length(old), length(new)))]
    spans: list[tuple[int, int]] = []
    for at, (was, now) in enumerate(zip(before, after, strict=True)):
        if was == now:
            continue
        if spans and at - sum(spans[-1]) <= NEAR:
            spans[-1] = (spans[-1][0], at + 1 - spans[-1][0])
        else:
            spans.append((at, 1))
    return spans


def _cells(row: Row) -> list[Piece] | None:
    """One piece for each cell; None where a character is not exactly one cell wide."""
    cells = [(char, style) for text, style in row for char in text]
    return cells if len(cells) == length(row) else None
