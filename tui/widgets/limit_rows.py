"""The rows of the dialog that starts a search: a field for a number or a text, and words to choose from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Input, Label, Static

from ..base import keys
from ..base.base_app import BaseApp

LABEL_WIDTH = 15


@dataclass
class Step(Message):
    """A request to move the focus to the previous row (-1) or the next row (1)."""

    by: int


class LimitInput(Input):
    """A field for a limit of a search. Up and down post Step, and Enter posts Submitted; the dialog handles both."""

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("field_up", "step(-1)", show=False), keys.bind("field_down", "step(1)", show=False),
    ]  # fmt: skip

    def action_step(self, by: int) -> None:
        self.post_message(Step(by))


class Words(Static, can_focus=True):
    """Words that can each be switched on or off, or of which exactly one is on. A cursor marks the word for the
    keys."""

    app: BaseApp

    @dataclass
    class Switched(Message):
        """The `words` have changed."""

        words: Words

        @property
        def control(self) -> Words:
            return self.words

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("mark", "switch", "Switch", meaning="switch on or off what the cursor is on"),
        keys.bind("previous_choice", "move(-1)", show=False),
        keys.bind("next_choice", "move(1)", show=False),
        keys.bind("up", "step(-1)", show=False),
        keys.bind("down", "step(1)", show=False),
    ]

    def __init__(self, name: str, words: Sequence[tuple[str, str]], chosen: set[str], *, single: bool = False) -> None:
        """`words` are pairs of an id and the shown text, and `chosen` has the ids of those that are on. With `single`,
        exactly one word is on."""
        super().__init__(id=name, markup=False)
        self._words, self.chosen, self._single = words, set(chosen), single
        self._at = next((at for at, (word, _) in enumerate(words) if single and word in chosen), 0)
        self._places: list[tuple[int, int, int]] = []  # line, first and last column of each word

    def on_mount(self) -> None:
        self._show()

    def on_resize(self) -> None:
        self._show()

    def watch_has_focus(self, focused: bool) -> None:
        super().watch_has_focus(focused)
        self._show()

    def _show(self) -> None:
        """Draw the words, as many in a line as there is room for."""
        line, column, parts = 0, 0, []
        self._places = []
        for at, (word, shown) in enumerate(self._words):
            text = f"{'>' if self.has_focus and at == self._at else ' '}{self._mark(word)} {shown}"
            if column and column + len(text) + 1 > max(20, self.size.width):
                line, column = line + 1, 0
                parts.append(("\n", ""))
            self._places.append((line, column, column + len(text)))
            here = "bold $text-warning" if self.has_focus and at == self._at else ""
            parts.append((text + " ", here or ("$foreground" if word in self.chosen else "$foreground-muted")))
            column += len(text) + 1
        self.update(Content.assemble(*parts))

    def _mark(self, word: str) -> str:
        on, off = ("(*)", "( )") if self._single else ("[x]", "[ ]")
        return on if word in self.chosen else off

    def action_step(self, by: int) -> None:
        self.post_message(Step(by))

    def on_key(self, event: events.Key) -> None:
        """Record a letter or digit without an action as a key without effect: it was meant as text for another
        field."""
        if event.is_printable and event.key not in self.screen.active_bindings:
            event.stop()
            self.app.typeahead.refuse(event)

    def action_move(self, by: int) -> None:
        self._at = (self._at + by) % len(self._words)
        if self._single:
            self.chosen = {self._words[self._at][0]}
            self.post_message(self.Switched(self))
        self._show()

    def action_switch(self) -> None:
        word = self._words[self._at][0]
        self.chosen = {word} if self._single else self.chosen ^ {word}
        self._show()
        self.post_message(self.Switched(self))

    def on_click(self, event: events.Click) -> None:
        for at, (line, first, last) in enumerate(self._places):
            if event.y == line and first <= event.x < last:
                self._at = at
                self.action_switch()


class LimitRow(Horizontal):
    """A row of the dialog: a label, a field or words, and a remark at the right of a field."""

    DEFAULT_CSS = f"""
    LimitRow {{
        height: auto;
        & > .name {{ width: {LABEL_WIDTH}; }}
        & > Words {{ width: 1fr; height: auto; }}
        & > LimitInput {{ width: 14; margin: 0 0 0 1; background: $surface; }}
        & > LimitInput.wide {{ width: 1fr; }}
        & > .about {{ width: 1fr; height: 1; margin-left: 2; color: $foreground-muted; text-wrap: nowrap;
                      text-overflow: ellipsis; }}
    }}
    """

    def __init__(self, label: str, part: Widget, about: str = "") -> None:
        super().__init__()
        self._label, self._part, self._about = label, part, about

    def compose(self) -> ComposeResult:
        yield Label(self._label, classes="name", markup=False)
        yield self._part
        if self._about:
            yield Label(self._about, classes="about", markup=False)
