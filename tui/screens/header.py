"""The header: the first line of every screen, with the screens that open from everywhere and the title."""

from __future__ import annotations

from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.widget import Widget
from textual.widgets import Static

from ..base.base_app import BaseApp
from ..base.errors import clean
from ..base.keys import VERBS, key_of
from ..widgets.screen_tabs import KEYS_BESIDE_FROM, KEYS_FROM, ScreenTab, ScreenTabs
from . import catalogue


class Waits(Static):
    """Shows the start that waits for its devices; a click drops this start."""

    app: BaseApp
    DEFAULT_CSS = """
    Waits {
        display: none; width: auto; max-width: 40%; height: 1; background: $panel; color: $text-warning;
        text-wrap: nowrap; text-overflow: ellipsis;
    }
    """

    def on_click(self) -> None:
        self.app.give_up_waiting()


class Header(Horizontal):
    """The first line of a screen: the screens that open from everywhere, and the `title` in the rest of the line."""

    DEFAULT_CSS = """
    Header {
        height: 1; background: $panel;
        #title { width: 1fr; height: 1; padding: 0 1 0 2; background: $panel; }
    }
    """

    def __init__(self, title: Widget | None = None, keys_from: int = KEYS_BESIDE_FROM) -> None:
        """`keys_from`: the width of the terminal, in columns, from which on the header also shows keys. It is used only
        with a title.
        """
        super().__init__()
        self._title = title
        self._keys_from = keys_from if title is not None else KEYS_FROM

    def compose(self) -> ComposeResult:
        listed = catalogue.places()
        places = [ScreenTab(entry.name, VERBS[entry.verb].label, key_of(self.app, entry.verb)) for entry in listed]
        yield ScreenTabs(places, catalogue.place_of(self.screen), "live", keys_from=self._keys_from)
        if self._title is not None:
            yield self._title
        yield Waits(id="waits", markup=False)

    def on_mount(self) -> None:
        self.watch(self.app, "waiting_title", self._waits)
        self.watch(self.app, "running_count", self._count)

    def _waits(self, title: str) -> None:
        waits = self.query_one(Waits)
        waits.display = bool(title)
        waits.update(f" waiting: {clean(title)} ")

    def _count(self, count: int) -> None:
        self.query_one(ScreenTabs).show(count)
