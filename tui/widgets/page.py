"""A picture that may be taller than the screen: drawn for its width, scrolled by keys."""

from __future__ import annotations

from collections.abc import Callable

from textual.app import ComposeResult
from textual.containers import VerticalScroll

from ..base import keys
from ..drawing.rows import Row
from .painted import Painted


class _Rows(Painted):
    """Rows that were already made."""

    DEFAULT_CSS = "_Rows { height: auto; }"

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Row] = []

    def rows(self, _width: int, _height: int) -> list[Row]:
        return self.given


class Page(VerticalScroll):
    """Shows all rows that `make(width)` returns; call `repaint` when their content has changed."""

    BINDINGS = keys.scrolls()
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
        """Make the rows again; the scroll position stays."""
        width = self.scrollable_content_region.width
        if width > 0:
            rows = self.query_one(_Rows)
            rows.given = self._make(width)
            rows.styles.height = max(1, len(rows.given))
            rows.repaint()
