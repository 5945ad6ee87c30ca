"""Which keys the last line has at each width, and what it calls them."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest
from gputui.tui.base import keys
from gputui.tui.base.glyphs import PLAIN
from gputui.tui.widgets.key_footer import KeyFooter, ScreenTab, ScreenTabs
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.geometry import Size
from textual.screen import Screen
from textual.widgets import Input
from textual.widgets._footer import FooterKey

from tests.support.tiny import Tiny, tiny, wait_for


class Keys(Screen[None]):
    """A screen with keys of each kind; those without an effect here are not offered."""

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("start", "nothing"), keys.bind("runs", "place"), keys.bind("save", "nothing_else"),
        keys.bind("remedy", "nothing(1)"), keys.bind("hold", "more", show=False),
        keys.bind("down", "moves", show=False), keys.bind("help", "helps"), keys.bind("back", "closes"),
        keys.bind("leave", "app.quit", "Quit"),
    ]  # fmt: skip

    def __init__(self) -> None:
        super().__init__()
        self.labels_now: dict[str, str] = {}
        self.keys_without_use: set[str] = set()

    def compose(self) -> ComposeResult:
        yield ScreenTabs([ScreenTab("runs", "Runs", "F4")], "runs", "runs", keys_from=90)
        yield Input()
        yield KeyFooter()

    def action_nothing(self, *_: Any) -> None: ...
    def action_nothing_else(self) -> None: ...
    def action_place(self) -> None: ...
    def action_more(self) -> None: ...
    def action_moves(self) -> None: ...
    def action_helps(self) -> None: ...
    def action_closes(self) -> None: ...


async def test_the_keys_for_which_there_is_room_and_the_ways_out(
    monkeypatch: pytest.MonkeyPatch, snapshot: Any
) -> None:
    async with Tiny(Keys, PLAIN).run_test(size=(80, 12)) as pilot:
        screen, app = pilot.app.screen, tiny(pilot)
        assert isinstance(screen, Keys)
        footer, field = screen.query_one(KeyFooter), screen.query_one(Input)
        screen.set_focus(None)
        await pilot.pause()

        def shown(width: int = 80) -> str:
            monkeypatch.setattr(Tiny, "size", Size(width, 12))
            chosen = footer.chosen_keys()
            return ", ".join(f"{app.get_key_display(key.binding)} {key.binding.description}" for key in chosen)

        found, before = list[str](), ""
        for width in range(10, 121):
            if (now := shown(width)) != before:
                found.append(f"from {width}: {now}")
            before = now
        screen.labels_now["start"], screen.labels_now["back"] = "Run again", "All lines"
        screen.keys_without_use.update(("save", "hold"))
        found.append(f"other labels, and without use: {shown(119)}")
        app.running_count = 2
        found.append(f"while runs go on: {shown(119)}")
        field.focus()
        await pilot.pause()
        found.append(f"in a field: {shown(119)}")
        assert "\n".join(found) == snapshot


async def test_the_last_line_is_made_again_only_if_its_keys_have_changed() -> None:
    async with Tiny(Keys, PLAIN).run_test(size=(80, 12)) as pilot:
        screen = pilot.app.screen
        assert isinstance(screen, Keys)
        footer = screen.query_one(KeyFooter)
        screen.set_focus(None)
        await pilot.pause()
        made = list(footer.query(FooterKey))
        for again in (footer.choose_again, footer.recompose):
            footer.call_later(again)
        await pilot.pause()
        assert list(footer.query(FooterKey)) == made
        assert "Start" in [key.description for key in made]
        screen.labels_now["start"] = "Run again"
        footer.call_later(footer.choose_again)
        await wait_for(pilot, lambda: "Run again" in [key.description for key in footer.query(FooterKey)])
        assert len(footer.query(FooterKey)) == len(made)
