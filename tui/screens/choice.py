"""A small list beside an option's row with the values to choose from."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.geometry import Offset, Region
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ...engine.options import OptionInfo
from ..widgets.option_row import LABEL_WIDTH, MARK_WIDTH


class ChoiceScreen(ModalScreen[str | None]):
    """Returns the chosen word, or None."""

    DEFAULT_CSS = """
    ChoiceScreen {
        background: transparent;
        OptionList, OptionList:focus { width: auto; height: auto; max-height: 14; border: round $primary; padding: 0 1;
                     background: $panel; }
    }
    """
    BINDINGS = [Binding("escape", "dismiss(None)", "Back")]

    def __init__(self, info: OptionInfo, present: str, row: Region) -> None:
        super().__init__()
        self.info, self.present, self.row = info, present, row

    def compose(self) -> ComposeResult:
        words = self.info.fixed_values
        longest = max(len(word) for word in words)
        prompts = [f"{w.ljust(longest)}  default" if w == self.info.default else w for w in words]
        yield OptionList(*[Option(p, id=w) for p, w in zip(prompts, words, strict=True)], compact=True, markup=False)

    def on_mount(self) -> None:
        words = self.query_one(OptionList)
        words.highlighted = self.info.fixed_values.index(self.present) if self.present in self.info.fixed_values else 0
        words.focus()
        self._place()

    def on_resize(self) -> None:
        self._place()

    def _place(self) -> None:
        """Below the row, or above it where there is no room below."""
        height = len(self.info.fixed_values) + 2
        below = self.row.bottom + height <= self.size.height
        y = self.row.bottom if below else max(0, self.row.y - height)
        x = min(self.row.x + MARK_WIDTH + LABEL_WIDTH - 2, max(0, self.size.width - 36))
        self.query_one(OptionList).offset = Offset(x, y)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:
            self.dismiss(None)
