"""A layout in bands of columns: each of the lists of widgets that the parent names is laid out from top to bottom."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from textual.geometry import Offset, Size
from textual.layout import ArrangeResult, Layout, WidgetPlacement
from textual.layouts.vertical import VerticalLayout
from textual.widget import Widget


@runtime_checkable
class InColumns(Protocol):
    """A widget that says what stands in which column, and in what order."""

    def bands_of(self, children: list[Widget], width: int) -> list[list[list[Widget]]]:
        """The displayed children in bands, one below the other, each in columns from left to right."""
        ...


class ColumnLayout(Layout):
    """Columns of the same width, side by side; a band begins below the longest column of the one above it.

    The order of the children does not matter.
    """

    name = "columns"

    def __init__(self) -> None:
        self._vertical = VerticalLayout()

    def arrange(self, parent: Widget, children: list[Widget], size: Size, greedy: bool = True) -> ArrangeResult:
        assert isinstance(parent, InColumns)
        placements: list[WidgetPlacement] = []
        top = 0
        for columns in parent.bands_of(children, size.width):
            width, below = size.width // max(1, len(columns)), top
            for number, column in enumerate(columns):
                placed = list(self._vertical.arrange(parent, column, Size(width, size.height), greedy))
                placements += WidgetPlacement.translate(placed, Offset(number * width, top))
                below = max([below, *(top + one.region.bottom + one.margin.bottom for one in placed)])
            top = below
        return placements
