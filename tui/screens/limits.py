"""What the dialogs share that ask for the limits of a search or a sweep and start it: their look, moving, starting.
Deferred imports: what a start needs is imported by the dialog that starts it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, cast

from textual import on, work
from textual.binding import BindingType
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Input, Label

from ...engine.presets import PresetError
from ...engine.runs import RunError
from ..base import keys
from ..base.errors import clean
from ..form.search_limits import WrongLimit
from ..widgets.key_hints import KeyHint, KeyHints
from ..widgets.limit_rows import LimitInput, Step
from ..widgets.option_row import NOT_GIVEN
from . import starting
from .dialogs import SEEN_AFTER_SECONDS

if TYPE_CHECKING:
    from ...engine.proof.request import Request
    from ..base.base_app import BaseApp

SAID = (
    ("open", "starts it"), ("mark", "switches"), ("previous_choice", ""), ("next_choice", "choose"), ("back", "leaves"),
)  # fmt: skip
CHECKING = "checking ..."


class LimitDialog(ModalScreen[tuple[Any, Any] | None]):
    """Asks for limits and starts a measurement. The result is the measurement and its process, or None if none was
    started. Reasons why it cannot start are shown in the dialog. `waits` is True if it was put in the queue instead.
    `subject` names it in messages."""

    DEFAULT_CSS = """
    LimitDialog {
        align: center middle;
        background: $background 60%;
        #box { width: 78; max-width: 98%; height: auto; max-height: 96%; border: round $border; background: $panel;
               padding: 0 1; scrollbar-size-vertical: 1; }
        #box > Label { width: 100%; }
        #complaint { color: $text-error; display: none; }
        #said { dock: bottom; background: $panel; }
        #buys { color: $foreground-muted; }
    }
    """
    seen_after_seconds = SEEN_AFTER_SECONDS  # an earlier key starts nothing
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", "start", "Start", meaning="start it"),  # and no letter: text is typed here
        *keys.back("dismiss(None)"),
    ]

    def __init__(self, subject: str) -> None:
        super().__init__()
        self.subject = subject
        self._starts = False  # it is being started: nothing more is, and it is not given up
        self.waits = False  # it begins later, without the dialog

    @property
    def host(self) -> BaseApp:
        return cast("BaseApp", self.app)

    def requested(self) -> Callable[[], Request]:
        """Take the fields, and return the request to make in a thread. Raises WrongLimit; later the request's
        errors."""
        raise NotImplementedError

    def key_help(self) -> KeyHints:
        return KeyHints((KeyHint(keys.keys_of(self.app, verb)[0], does) for verb, does in SAID), id="said")

    @on(Step)
    def _step(self, event: Step) -> None:
        parts = list(self.query("LimitInput, Words").results(Widget))
        at = parts.index(self.focused) if self.focused in parts else 0
        parts[(at + event.by) % len(parts)].focus()

    @on(Input.Submitted)
    def action_start(self) -> None:
        """Start with the limits in the fields, or show the first invalid one."""
        if self._starts:
            return
        try:
            make = self.requested()
        except WrongLimit as wrong:
            self.complain(str(wrong))
            self.query_one(f"#{wrong.name}").focus()
        else:
            self._begin(make)

    async def action_dismiss(self, result: Any = None) -> None:
        if not self._starts:
            await super().action_dismiss(result)

    @work(exclusive=True, group="start")
    async def _begin(self, make: Callable[[], Request]) -> None:
        self.complain(CHECKING)
        try:
            request = await asyncio.to_thread(make)
            start = starting.new_measurement(self.host, self.subject, request)
            choice = await starting.choice_if_busy(self.host, start)
            if choice in (starting.WAIT, starting.CANCEL):
                self.query_one("#complaint").display = False
                self.waits = choice == starting.WAIT
                if self.waits:
                    self.dismiss(None)
                return
            self._starts = True
            made = await asyncio.to_thread(start.launch)
        except (PresetError, RunError, OSError, ValueError) as reason:
            self._starts = False
            self.complain(str(reason))
        else:
            self.dismiss(made)

    def complain(self, reason: str) -> None:
        label = self.query_one("#complaint", Label)
        label.display = True
        label.update(clean(reason))
        label.scroll_visible(animate=False)


def field(name: str, text: str, placeholder: str = NOT_GIVEN, classes: str = "") -> LimitInput:
    return LimitInput(text, id=name, compact=True, placeholder=placeholder, classes=classes)
