"""A small list next to an option's row with the values to choose from."""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.geometry import Offset, Region
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ....engine.options import OptionInfo
from ...base import keys


class Words(OptionList):
    """A list whose footer has a name for the action of Enter."""

    BINDINGS = [keys.bind("open", "select", "Choose", meaning="choose this"), *keys.moves()]


class ChoiceScreen(ModalScreen[str | None]):
    """Lists the values of an option; returns the chosen value, or None if the list was left."""

    DEFAULT_CSS = """
    ChoiceScreen {
        background: transparent;
        Words, Words:focus { width: auto; height: auto; max-height: 14; border: round $primary; padding: 0 1;
                     background: $panel; }
    }
    """
    BINDINGS = keys.back("dismiss(None)")

    def __init__(self, info: OptionInfo, present: str, row: Region, value_column: int) -> None:
        super().__init__()
        self.info, self.present, self.row, self.value_column = info, present, row, value_column

    def compose(self) -> ComposeResult:
        words = self.info.fixed_values
        longest = max(len(word) for word in words)
        prompts = [f"{w.ljust(longest)}  default" if w == self.info.default else w for w in words]
        yield Words(*[Option(p, id=w) for p, w in zip(prompts, words, strict=True)], compact=True, markup=False)

    def on_mount(self) -> None:
        words = self.query_one(OptionList)
        words.highlighted = self.info.fixed_values.index(self.present) if self.present in self.info.fixed_values else 0
        words.focus()
        self._place()

    def on_resize(self) -> None:
        self._place()

    def _place(self) -> None:
        """Place the list below the option's row, or above the row if there is too little room below."""
        height = len(self.info.fixed_values) + 2
        below = self.row.bottom + height <= self.size.height
        y = self.row.bottom if below else max(0, self.row.y - height)
        x = min(self.row.x + self.value_column - 2, max(0, self.size.width - 36))
        self.query_one(OptionList).offset = Offset(x, y)

    def on_key(self, event: events.Key) -> None:
        """If the key is a letter without an action, move the cursor to the next word that begins with this letter."""
        letter = "" if event.key in self.active_bindings else (event.character or "").lower()
        words, listed = self.info.fixed_values, self.query_one(OptionList)
        at = listed.highlighted or 0
        ways = [number % len(words) for number in range(at + 1, at + 1 + len(words))]
        matches = [number for number in ways if letter.isalpha() and words[number].startswith(letter)]
        if matches:
            event.stop()
            listed.highlighted = matches[0]

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.dismiss(event.option.id)

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:
            self.dismiss(None)
