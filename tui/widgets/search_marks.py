"""Marks what a search has found, in the same way in every list."""

from __future__ import annotations

from typing import Any

from rich.text import Text
from textual.content import Content

from ..word_search import Hit


def with_marks(line: Content, hit: Hit[Any]) -> Content:
    """Return the line with the marked words of the hit."""
    for begin, end in hit.marks(line.plain):
        line = line.stylize("bold underline $text-warning", begin, end)
    return line


def mark_cell(cell: Text, hit: Hit[Any], colour: str) -> None:
    """Mark the words of the hit in a cell of a table. `colour` is that of the marks, empty for none."""
    for begin, end in hit.marks(cell.plain):
        cell.stylize(f"bold underline {colour}".rstrip(), begin, end)
