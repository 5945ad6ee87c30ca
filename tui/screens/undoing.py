"""The keys that take back acts of a screen: the last act, or one that is chosen from a list."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from typing import ClassVar

from textual import work
from textual.binding import BindingType

from ...engine.presets.saving import SaveError
from ...engine.runs import RunError
from ...engine.units import clock
from ..base import keys
from ..base.base_app import Act, Acts, BaseApp
from ..base.errors import clean
from .base import AppScreen
from .dialogs import Copyable, CopyScreen

BINDINGS: list[BindingType] = [
    keys.bind("undo", "take_back", show=False, meaning="take back what was done last, as a deletion"),
    keys.bind("undo_list", show=False),
]


class UndoScreen(CopyScreen):
    """Lists acts that can be taken back, the newest first. The result is the chosen one, None if the list was left."""

    TITLE = "Take back"
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("undo_list", "take(0)", "Newest", meaning="take the newest back")
    ]


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

    @property
    def keys_without_use(self) -> tuple[str, ...]:
        """The verbs that the footer, the help and the palette leave out, as there is nothing to take back."""
        return () if self.acts_here.newest_first else ("undo", "undo_list")

    def taken_back(self, act: Act) -> None:
        """Show the screen again after `act` was taken back."""

    @work(exclusive=True, group="undo")
    async def action_take_back(self, choosing: bool = False) -> None:
        """Take back the newest act or, if `choosing`, the one that the user chooses."""
        acts = self.acts_here
        if not (listed := acts.newest_first):
            self.notify(acts.nothing)
            return
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
