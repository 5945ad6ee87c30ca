"""The row of screens in the header: the present screen is marked, running runs are counted, a click opens a screen."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from textual import events
from textual.geometry import Size

from ..base.glyphs import Glyphs
from ..drawing.rows import Row, length
from ..upstream.widgets import lay_out_again
from .painted import Painted

KEYS_FROM, KEYS_BESIDE_FROM = 60, 100  # columns from which on keys are named: alone, and with a title


class ScreenTab(NamedTuple):
    """The item of a screen that opens from everywhere, with its name, its label and its key."""

    name: str
    label: str
    key: str


class ScreenTabs(Painted):
    """The row of screens. `here` is the name of the present screen, `counted` the name of the screen with the number of
    running runs.

    `keys_from` is the width of the terminal, in columns, from which on the keys are shown.
    """

    DEFAULT_CSS = "ScreenTabs { width: auto; height: 1; background: $panel; }"

    def __init__(self, places: Sequence[ScreenTab], here: str, counted: str, *, keys_from: int) -> None:
        super().__init__()
        self._keys_from = keys_from
        self._places, self._here, self._counted = tuple(places), here, counted
        self._count = 0

    def show(self, count: int) -> None:
        """Show `count`, the number of running runs."""
        if count != self._count:
            self._count = count
            lay_out_again(self)
            self.repaint()

    def get_content_width(self, _container: Size, _viewport: Size) -> int:
        return sum(map(length, self._items(self.with_keys)))

    def rows(self, width: int, _height: int) -> list[Row]:
        return [[piece for item in self._fitting(width) for piece in item]]

    def _fitting(self, width: int) -> list[Row]:
        """Return the items; without keys if the last item would be cut, as before the layout after a change of the
        number.
        """
        items = self._items(self.with_keys)
        return items if sum(map(length, items)) <= width else self._items(False)

    @property
    def with_keys(self) -> bool:
        """Whether the keys are shown: the terminal is at least `keys_from` columns wide."""
        return self.app.size.width >= self._keys_from

    def _items(self, with_keys: bool) -> list[Row]:
        counts = {self._counted: self._count}
        return [
            item(tab, tab.name == self._here, counts.get(tab.name, 0), self.glyphs, with_keys) for tab in self._places
        ]

    async def on_click(self, event: events.Click) -> None:
        end = 0
        for place, shown in zip(self._places, self._fitting(self.size.width), strict=True):
            end += length(shown)
            if event.x < end:
                await self.app.run_action(f"app.show('{place.name}')")
                return


def item(place: ScreenTab, here: bool, count: int, glyphs: Glyphs, with_key: bool) -> Row:
    """Return the row of a screen: its key if `with_key`, its label, and `count`, the number of running runs, if it is
    not 0.
    """
    style = "here" if here else "value"
    before, after = (glyphs.here[0], glyphs.here[1]) if here else (" ", " ")
    key: Row = [(f"{place.key} ", style if here else "label")] if with_key else []
    badge: Row = [(f" {glyphs.running}{count}", "badge")] if count else []
    return [(before, style), *key, (place.label, style), *badge, (after, style)]
