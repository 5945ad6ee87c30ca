"""The choice of a table's columns: which are shown, and in which order."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Label, OptionList
from textual.widgets.option_list import Option

from ...base import keys
from ...base.glyphs import glyphs_of
from ...reading.run_columns import COLUMNS

KEYS = "{mark} shows or hides, {sort_left} {sort_right} move, {delete} is the usual choice, {open} takes it"


class ColumnsScreen(ModalScreen[list[str] | None]):
    """Lets the user choose columns; returns them in their order, an empty list for the usual columns, or None for no
    change.
    """

    DEFAULT_CSS = """
    ColumnsScreen {
        align: center middle;
        background: $background 60%;
        Vertical { width: 76; max-width: 96%; height: auto; max-height: 90%; border: round $border;
                   background: $panel; padding: 0 1; }
        Label { width: 100%; color: $foreground-muted; }
        OptionList { height: auto; max-height: 70vh; border: none; background: $panel; padding: 0;
                     scrollbar-size-vertical: 1; text-wrap: nowrap; text-overflow: ellipsis; }
        OptionList > .option-list--option-highlighted,
        OptionList:focus > .option-list--option-highlighted { background: $primary 22%; color: $foreground; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("mark", "show_or_hide", "Show or hide", meaning="show or hide the column"),
        *keys.moves("move(1)", "move(-1)", "edge(0)", "edge(-1)", "edge(-1)", "edge(0)"),
        keys.bind("sort_left", "carry(-1)", "Further left", meaning="move the column to the left"),
        keys.bind("sort_right", "carry(1)", "Further right", meaning="move the column to the right"),
        keys.bind("delete", "dismiss([])", "The usual columns", meaning="back to the usual columns"),
        keys.bind("open", "take", "Take", meaning="take these columns"),
        *keys.back("dismiss(None)"),
    ]

    def __init__(self, shown: Sequence[str]) -> None:
        super().__init__()
        self.order = [*shown, *(name for name in COLUMNS if name not in shown)]
        self.chosen = set(shown)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield _Names(compact=True, markup=False)
            verbs = ("mark", "sort_left", "sort_right", "delete", "open")
            yield Label(KEYS.format(**{verb: keys.key_of(self.app, verb) for verb in verbs}), markup=False)

    def on_mount(self) -> None:
        self._fill(0)

    def _fill(self, at: int) -> None:
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([Option(self._prompt(name), id=name) for name in self.order])
        listed.highlighted = at

    def _prompt(self, name: str) -> Content:
        mark = glyphs_of(self.app).ok if name in self.chosen else " "
        look = "bold" if name in self.chosen else ""
        return Content.assemble((f"{mark} {name:<16}", look), (COLUMNS[name].about, "$foreground-muted"))

    @property
    def _at(self) -> int:
        return self.query_one(OptionList).highlighted or 0

    def action_show_or_hide(self) -> None:
        self.chosen ^= {self.order[self._at]}
        self._fill(self._at)

    def action_move(self, by: int) -> None:
        self.query_one(OptionList).highlighted = (self._at + by) % len(self.order)

    def action_edge(self, number: int) -> None:
        """Move the cursor to the first column (0) or the last column (-1). The page keys do this too, as the list is
        short.
        """
        self.query_one(OptionList).highlighted = number % len(self.order)

    def action_carry(self, by: int) -> None:
        """Move the column under the cursor one place up (-1) or down (1)."""
        at, to = self._at, self._at + by
        if 0 <= to < len(self.order):
            self.order[at], self.order[to] = self.order[to], self.order[at]
            self._fill(to)

    def action_take(self) -> None:
        self.dismiss([name for name in self.order if name in self.chosen])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Show or hide the column that was clicked."""
        event.stop()
        self.action_show_or_hide()


class _Names(OptionList, inherit_bindings=False):
    """The list of columns; it has no keys of its own, so that the screen's keys work."""
