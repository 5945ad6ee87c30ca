"""A table of texts, with a head and rows, and its form in Markdown; terminals draw the same table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


class Code(str):
    """The text of a cell that can be typed as it is, such as a setting. Markdown shows it in backticks."""


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

    def with_column(self, at: int, head: str, cells: Sequence[str]) -> Table:
        """An additional column of pictures at the index `at`."""
        rows = [[*row[:at], cell, *row[at:]] for row, cell in zip(self.rows, cells, strict=True)]
        right, spare, drawn = (
            [column + (column >= at) for column in columns] for columns in (self.right, self.spare, self.drawn)
        )
        return Table([*self.head[:at], head, *self.head[at:]], rows, right, spare, [*drawn, at])

    def markdown(self, aligned: bool = False) -> str:
        """If `aligned`, the columns in `right` are aligned in Markdown, too."""
        rule = ["---:" if aligned and column in self.right else "---" for column in range(len(self.head))]
        lines = [self.head, rule, *self.rows]
        cells = (
            [f"`{escaped(text)}`" if isinstance(text, Code) and text else escaped(text).rstrip() for text in line]
            for line in lines
        )
        return "\n".join(f"| {' | '.join(line)} |" for line in cells)

    def numbered(self) -> Table:
        """An additional first column counts the rows, from 1."""
        rows = [[str(number), *row] for number, row in enumerate(self.rows, 1)]
        right, spare, drawn = ([column + 1 for column in columns] for columns in (self.right, self.spare, self.drawn))
        return Table(["", *self.head], rows, right, spare, drawn)


def escaped(text: str) -> str:
    """Return the text for a cell of Markdown: on one line, with `|` escaped."""
    return str(text).replace("|", "\\|").replace("\n", " ")
