"""The choice of what to copy: a run's id, its folder, lines of its log, the values of a chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ..base import keys
from ..base.errors import clean

DIGITS = "1234567890"  # of the first choices


class Copyable(NamedTuple):
    """What can be copied; `text` is made only when it is chosen."""

    name: str
    preview: str
    text: Callable[[], str]


class Choices(OptionList):
    BINDINGS = [keys.bind("open", "select", "Copy", meaning="copy this"), *keys.moves()]


class CopyScreen(ModalScreen[Copyable | None]):
    """Returns what was chosen; a digit chooses at once, and the key that opened the choice takes the first."""

    DEFAULT_CSS = """
    CopyScreen {
        align: center middle;
        background: $background 60%;
        Vertical { width: 76; max-width: 96%; height: auto; max-height: 80%; border: round $border;
                   border-title-color: $text-primary; background: $panel; padding: 0 1; }
        Choices { height: auto; max-height: 70vh; background: $panel; padding: 0; text-wrap: nowrap;
                  text-overflow: ellipsis; scrollbar-size-vertical: 1; }
        OptionList > .option-list--option-highlighted,
        OptionList:focus > .option-list--option-highlighted { background: $primary 22%; color: $foreground; }
    }
    """
    BINDINGS = [keys.bind("copy", "take(0)", meaning="copy the first"), *keys.back("dismiss(None)")]

    def __init__(self, offered: Sequence[Copyable]) -> None:
        super().__init__()
        self.offered = offered

    def compose(self) -> ComposeResult:
        widest = max(len(one.name) for one in self.offered)
        prompts = [
            Content.assemble(
                (f"{DIGITS[at : at + 1]:1} ", "bold $text-warning"),
                one.name.ljust(widest + 2), (clean(one.preview), "$foreground-muted"),
            )
            for at, one in enumerate(self.offered)
        ]  # fmt: skip
        with Vertical() as box:
            box.border_title = "Copy"
            yield Choices(*map(Option, prompts), compact=True, markup=False)

    def action_take(self, number: int) -> None:
        self.dismiss(self.offered[number])

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        self.action_take(event.option_index)

    def on_key(self, event: events.Key) -> None:
        digit = event.character or ""
        if len(digit) == 1 and digit in DIGITS[: len(self.offered)]:
            event.stop()
            self.action_take(DIGITS.index(digit))

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:
            self.dismiss(None)
