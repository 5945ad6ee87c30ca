"""Dialogs in the middle of the screen: a choice of answers, a line of text, or a list of texts to copy."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ClassVar, NamedTuple, TypeVar

from textual import events, work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Offset, Region
from textual.screen import ModalScreen
from textual.widgets import Button, Input, Label, OptionList
from textual.widgets.option_list import Option

from ...engine.options import OptionInfo
from ...engine.presets import PresetError
from ...engine.presets.saving import SaveError
from ...engine.runs import RunError
from ...engine.units import clock
from ..base import keys
from ..base.base_app import Act, Acts, BaseApp
from ..base.errors import clean
from ..widgets.key_footer import KeyHints
from .base import AppScreen

SEEN_AFTER_SECONDS = 0.3
KEYS = (("accept", "accepts"), ("cancel", "leaves"))
Result = TypeVar("Result")


class Dialog(ModalScreen[Result | None]):
    """A dialog over the present screen, whose result is None if it was left."""

    app: BaseApp
    DEFAULT_CSS = """
    Dialog { align: center middle; background: $background 60%; }
    Dialog > #box {
        width: 64; max-width: 90%; height: auto; border: round $primary; background: $panel; padding: 1 2;
        & > Label { width: 100%; }
        & > Input { margin-top: 1; background: $background; }
        #answers { height: 1; margin-top: 1; }
        Button { margin-right: 2; width: auto; min-width: 8; }
        #complaint { color: $text-error; display: none; }
    }
    """
    seen_after_seconds = SEEN_AFTER_SECONDS
    _seen_since = float("inf")

    def on_mount(self) -> None:  # Textual calls it in addition to the method of a derived class
        self.call_after_refresh(self._painted)

    def _painted(self) -> None:
        self._seen_since = time.monotonic()

    @property
    def can_have_been_read(self) -> bool:
        """False if the key that acts now was pressed before the dialog could be read, however late it acts. A dialog
        that may be answered before (0 s) takes also the keys that were held while it opened."""
        return (
            self.seen_after_seconds == 0 or self.app.typeahead.pressed_at >= self._seen_since + self.seen_after_seconds
        )


class ListDialog(Dialog[Result]):
    """A dialog with a list. A click beside it leaves it."""

    DEFAULT_CSS = """
    ListDialog > Vertical {
        width: 76; max-width: 96%; height: auto; max-height: 90%; border: round $border;
        border-title-color: $text-primary; background: $panel; padding: 0 1;
        OptionList, OptionList:focus { height: auto; max-height: 70vh; border: none; background: $background;
                  background-tint: transparent; padding: 0; text-wrap: nowrap; text-overflow: ellipsis;
                  scrollbar-size-vertical: 1; }
        OptionList > .option-list--option-highlighted,
        OptionList:focus > .option-list--option-highlighted { background: $picked; color: $foreground; }
    }
    """

    def on_click(self, event: events.Click) -> None:
        if event.widget is self:
            self.dismiss(None)


@contextmanager
def complaining(app: BaseApp, lead: str = "") -> Iterator[None]:
    """Say as a message, after the words `lead`, why the block that carries out a wish of the user has failed."""
    try:
        yield
    except (PresetError, RunError, SaveError, OSError, ValueError) as reason:
        app.complain(f"{lead}{reason}")


class Ask(Dialog[str]):
    """Asks a question; the result is None if the dialog was left. The first letter of an answer is its key; the last
    answer changes nothing, and Enter chooses it unless another has the focus."""

    AUTO_FOCUS = ""
    BINDINGS = [
        keys.bind("cancel", "dismiss(None)"),
        Binding("left", "move(-1)", "Previous answer", show=False),
        Binding("right", "move(1)", "Next answer", show=False),
    ]

    def __init__(self, question: str, answers: Sequence[str], verb: str = "") -> None:
        """`verb` is the verb whose key has asked: the same key chooses the first answer, too."""
        super().__init__()
        self.question, self.answers, self._verb = question, answers, verb

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Label(clean(self.question), markup=False)
            with Horizontal(id="answers"):
                for answer in self.answers:
                    label = Content.assemble(" ", (answer[0], "underline"), f"{answer[1:]} ")
                    yield Button(label, name=answer, compact=True)

    def on_mount(self) -> None:
        self.set_focus(self.query(Button).last())

    def action_move(self, by: int) -> None:
        """Move the focus to another answer, but not from the last, which changes nothing, to the first."""
        buttons = [*self.query(Button)]
        at = next((at for at, button in enumerate(buttons) if button.has_focus), len(buttons))
        buttons[max(0, min(at + by, len(buttons) - 1))].focus()

    def on_button_pressed(self, event: Button.Pressed) -> None:
        self.dismiss(event.button.name)

    def on_key(self, event: events.Key) -> None:
        if event.character and event.character.isalpha():
            # The key must not reach the screen below, which may ask again for the same letter.
            event.stop()
            if not self.can_have_been_read:
                return
            asked_again = self._verb and event.key in keys.keys_of(self.app, self._verb)
            letter = self.answers[0] if asked_again else event.character
            if answer := next((each for each in self.answers if each.lower().startswith(letter.lower())), ""):
                self.dismiss(answer)


class AskText(Dialog[str]):
    """Asks for a line of text. The result is the text, or None if the dialog was left. `refuse` returns the reason why
    a text is not accepted, empty if it is."""

    DEFAULT_CSS = "AskText > #box { width: 96; max-width: 98%; padding: 1 1; }"
    BINDINGS = [keys.bind("cancel", "dismiss(None)")]

    def __init__(self, question: str, text: str = "", refuse: Callable[[str], str] = lambda _text: "") -> None:
        super().__init__()
        self.question, self.text, self.refuse = question, text, refuse

    def compose(self) -> ComposeResult:
        with Vertical(id="box"):
            yield Label(clean(self.question), markup=False)
            yield Label(id="complaint", markup=False)
            yield Input(self.text, compact=True)
            yield from self.below()
            yield KeyHints(KEYS, id="keys")

    def below(self) -> ComposeResult:
        yield from ()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        reason = self.refuse(event.value)
        complaint = self.query_one("#complaint", Label)
        complaint.display = bool(reason)
        complaint.update(clean(reason))
        if not reason:
            self.dismiss(event.value)


DIGITS = "1234567890"  # of the first choices


class Copyable(NamedTuple):
    """A text to copy: its `name` and `preview` in the list, and what returns it once it was chosen."""

    name: str
    preview: str
    text: Callable[[], str]


class Choices(OptionList):
    BINDINGS = [keys.bind("open", "select", "Copy", meaning="copy this"), *keys.moves()]


class CopyScreen(ListDialog[Copyable]):
    """Offers texts to copy. The result is the chosen Copyable, or None if the dialog was left. A digit chooses a text
    at once. The key that opened the list chooses the first text."""

    DEFAULT_CSS = "CopyScreen > Vertical { max-height: 80%; }"
    TITLE = "Copy"
    BINDINGS = [keys.bind("copy", "take(0)", meaning="copy the first"), *keys.back("dismiss(None)")]

    def __init__(self, offered: Sequence[Copyable]) -> None:
        super().__init__()
        self.offered = offered

    def compose(self) -> ComposeResult:
        widest = max(len(copyable.name) for copyable in self.offered)
        prompts = [
            Content.assemble(
                (f"{DIGITS[at : at + 1]:1} ", "bold $text-primary"),
                copyable.name.ljust(widest + 2), (clean(copyable.preview), "$foreground-muted"),
            )
            for at, copyable in enumerate(self.offered)
        ]  # fmt: skip
        with Vertical() as box:
            box.border_title = self.TITLE
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


# ---- a choice -------------------------------------------------------------------------------------


class Words(OptionList):
    BINDINGS = [keys.bind("open", "select", "Choose", meaning="choose this"), *keys.moves()]


class ChoiceScreen(ListDialog[str]):
    """Lists the values of an option. The result is the text of the chosen value, or None if the list was left.
    `present` is the present value. `row` returns the region of the option's row on the screen below, and the column of
    the value in this row. If that screen is laid out again, as after a change of the terminal's size, the list follows
    the row."""

    DEFAULT_CSS = """
    ChoiceScreen {
        align: left top; background: transparent;
        Words, Words:focus { width: auto; height: auto; max-height: 14; border: round $primary; padding: 0 1;
                     background: $panel; }
    }
    """
    BINDINGS = keys.back("dismiss(None)")

    def __init__(self, info: OptionInfo, present: str, row: Callable[[], tuple[Region, int]]) -> None:
        super().__init__()
        self.info, self.present, self.row = info, present, row

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
        below = self.app.screen_stack[self.app.screen_stack.index(self) - 1]
        below.screen_layout_refresh_signal.subscribe(self, lambda _screen: self._place())

    def on_resize(self) -> None:
        self._place()

    def _place(self) -> None:
        row, value_column = self.row()
        height = len(self.info.fixed_values) + 2
        below = row.bottom + height <= self.size.height
        y = row.bottom if below else max(0, row.y - height)
        x = min(row.x + value_column - 2, max(0, self.size.width - 36))
        self.query_one(OptionList).offset = Offset(x, y)

    def on_key(self, event: events.Key) -> None:
        """If the key is a letter without an action, move the cursor to the next value that begins with this letter."""
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


UNDO_BINDINGS: list[BindingType] = [
    keys.bind("undo", "take_back", show=False, meaning="take back what was done last, as a deletion"),
    keys.bind("undo_list", show=False),
]


class UndoScreen(CopyScreen):
    """Lists acts that can be taken back, the newest first. The result is the chosen one, None if the list was left."""

    TITLE = "Take back"
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("undo_list", "take(0)", "Newest", meaning="take the newest back")
    ]


class TellScreen(CopyScreen):
    """Lists what a run can be told. The result is the chosen entry, None if the list was left."""

    TITLE = "Tell the run"
    BINDINGS: ClassVar[list[BindingType]] = [keys.bind("tell", "take(0)", "First", meaning="choose the first")]


async def choose(app: BaseApp, offered: Sequence[tuple[str, float]]) -> int | None:
    """Let the user choose an act, each a text and its Unix time (0: unknown), the newest first."""
    listed = [Copyable(what, f"{clock(time.time() - at)} ago" if at else "", str) for what, at in offered]
    chosen = await app.push_screen_wait(UndoScreen(listed))
    return next((number for number, entry in enumerate(listed) if entry is chosen), None)


class UndoActions(AppScreen):
    """A screen whose acts can be taken back: those of its place, a key of `NOTHING_TO_UNDO`."""

    PLACE: ClassVar[str]

    @property
    def acts_here(self) -> Acts:
        return self.app.acts[self.PLACE]

    def did(self, what: str, take_back: Callable[[], Sequence[str] | None], done: str = "", key: str = "") -> None:
        """Note an act that can be taken back. The parameters are those of `Act`. May be called in a thread."""
        self.acts_here.add(what, take_back, done, key)
        self.call_later(self.refresh_bindings)

    def can(self, action: str) -> bool | str:
        if action in ("take_back", "undo_list") and not self.acts_here.newest_first:
            return self.acts_here.nothing
        return super().can(action)

    def taken_back(self, act: Act) -> None:
        """Show the screen again after `act` was taken back."""

    @work(exclusive=True, group="undo")
    async def action_take_back(self, choosing: bool = False) -> None:
        """Take back the newest act or, if `choosing`, the one that the user chooses."""
        acts, listed = self.acts_here, self.acts_here.newest_first
        number = await choose(self.app, [(act.what, act.at) for act in listed]) if choosing else 0
        if number is None:
            return
        act = listed[number]
        try:
            reasons = await asyncio.to_thread(acts.take_back, act)
        except (RunError, SaveError, OSError) as reason:
            acts.postpone(act)
            self.app.complain(f"not taken back: {reason}")
            return
        if not reasons:
            self.notify(clean(act.message), markup=False)
        for text in reasons:
            self.app.complain(text)
        self.taken_back(act)
        self.refresh_bindings()

    def action_undo_list(self) -> None:
        self.action_take_back(True)
