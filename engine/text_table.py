"""A table of texts, with a head and rows, and its form in Markdown; terminals draw the same table."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


class Code(str):
    """The text of a cell that can be typed as it is, such as a setting. Markdown shows it in backticks."""


@dataclass(frozen=True)
class Table:
    """The head and the rows of a table; each cell is a text.

    `right` has the indexes of the columns of figures, which are aligned at their right edges. `spare` has the indexes
    of columns that a narrow view may leave out, beginning with the last. The cells of the columns in `drawn` are
    pictures, whose blanks count.
    """

    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Collection[int] = ()
    spare: Sequence[int] = ()
    drawn: Collection[int] = ()

    def with_column(self, at: int, head: str, cells: Sequence[str]) -> Table:
        """Return the table with an additional column of pictures at the index `at`."""
        rows = [[*row[:at], cell, *row[at:]] for row, cell in zip(self.rows, cells, strict=True)]
        right, spare, drawn = (
            [column + (column >= at) for column in columns] for columns in (self.right, self.spare, self.drawn)
        )
        return Table([*self.head[:at], head, *self.head[at:]], rows, right, spare, [*drawn, at])

    def markdown(self, aligned: bool = False) -> str:
        """Return the table in Markdown. With `aligned`, the columns in `right` are aligned at the right in Markdown,
        too.
        """
        rule = ["---:" if aligned and column in self.right else "---" for column in range(len(self.head))]
        lines = [self.head, rule, *self.rows]
        return "\n".join(f"| {' | '.join(map(_markdown_cell, line))} |" for line in lines)

    def numbered(self) -> Table:
        """Return the table with an additional first column that counts the rows, from 1."""
        rows = [[str(number), *row] for number, row in enumerate(self.rows, 1)]
        right, spare, drawn = ([column + 1 for column in columns] for columns in (self.right, self.spare, self.drawn))
        return Table(["", *self.head], rows, right, spare, drawn)


def _markdown_cell(text: str) -> str:
    return f"`{escaped(text)}`" if isinstance(text, Code) and text else escaped(text).rstrip()


def escaped(text: str) -> str:
    """Return the text for a cell of Markdown: on one line, and with the bars that divide cells escaped."""
    return str(text).replace("|", "\\|").replace("\n", " ")
