"""A picture made by a function of its size."""

from __future__ import annotations

from collections.abc import Callable

from ..drawing.rows import Row
from .painted import Painted


class Panel(Painted):
    """Shows what `make(width, height)` returns, whenever it is repainted."""

    DEFAULT_CSS = "Panel { height: 1; }"

    def __init__(self, make: Callable[[int, int], list[Row]], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._make = make

    def rows(self, width: int, height: int) -> list[Row]:
        return self._make(width, height)
