"""A picture that may be longer than the screen: made for its width, as tall as it comes out, scrolled by keys."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from ..drawing.rows import Row
from .painted import Painted


class _Rows(Painted):
    """Rows that are there already."""

    DEFAULT_CSS = "_Rows { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Row] = []

    def rows(self, width: int, height: int) -> list[Row]:
        return self.given


class Page(VerticalScroll):
    """`make(width)` gives all rows; whoever changes what they are made of calls `repaint`."""

    DEFAULT_CSS = """
    Page { height: 1fr; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """

    def __init__(self, make: Callable[[int], list[Row]], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._make = make

    def compose(self) -> ComposeResult:
        yield _Rows()

    def on_resize(self) -> None:
        self.repaint()

    def repaint(self) -> None:
        """Make the rows anew; the place that one has scrolled to stays."""
        width = self.scrollable_content_region.width
        if width > 0:
            rows = self.query_one(_Rows)
            rows.given = self._make(width)
            rows.styles.height = max(1, len(rows.given))
            rows.repaint()
