"""The list that opens presets over made-up files: its parts, its cursor, what is typed, and what its keys do."""

from __future__ import annotations

import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.presets import saving
from gputui.tui.form.form_state import FormState
from gputui.tui.reading import preset_files
from gputui.tui.reading.preset_files import Group, Listing, PresetFile
from gputui.tui.screens.presets import screen as presets_screen
from gputui.tui.screens.presets.screen import PresetsScreen
from textual.pilot import Pilot
from textual.widgets import Input, OptionList, Static

from tests.support.form_pilot import told
from tests.support.tiny import Tiny, tiny, wait_for

HERE, OWN, SLOW = Path("/made/up/here"), Path("/made/up/own"), Path("/made/up/slow")
answers, answered = threading.Event(), threading.Event()  # of the disk with the folder SLOW


def file(path: Path, group: Group, text: str = "", **more: Any) -> PresetFile:
    return PresetFile(path, group, text, **more)


LISTINGS: dict[Group, Listing] = {
    "here": Listing((file(HERE / "broken.yaml", "here", other="not a preset"),
                     file(HERE / "wrong.yaml", "here", fault="no such option"),
                     file(HERE / "night.yaml", "here", "trains at night"))),
    "recent": Listing((file(HERE / "night.yaml", "recent", "trains at night"),
                       file(OWN / "fast.yaml", "recent", "/made/up/own"))),
    "yours": Listing((file(OWN / "fast.yaml", "yours", "the fast one"), file(OWN / "slow.yaml", "yours", "at night")),
                     "2 more YAML files\x1b"),
    "shipped": Listing((file(presets.SHIPPED / "quickstart.yaml", "shipped", "a small network"),)),
    "path": Listing((file(HERE / "night.yaml", "path"), file(HERE / "nightly", "path", folder=True),
                     file(HERE / "day.yaml", "path"), file(HERE / "other.yaml", "path", other="not a preset")),
                    "cannot be read whole"),
}  # fmt: skip


class Opening(Tiny):
    """The application with a form."""

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        self.state = FormState.first()

    @property
    def form_state(self) -> FormState:
        return self.state

    def show_in_form(self, state: FormState) -> None:
        self.opened.append(("shown", state))


@asynccontextmanager
async def opened(
    monkeypatch: pytest.MonkeyPatch, size: tuple[int, int] = (120, 40), listings: Any = None,
    late: tuple[Group, threading.Event] | None = None,
) -> AsyncIterator[tuple[Pilot[None], PresetsScreen]]:  # fmt: skip
    """The screen with the listings, which it waits for; `late` is a group that is listed only after an event."""

    def read(group: Group, folder: Path | None = None) -> Listing:
        if late is not None and late[0] == group:
            late[1].wait(60)
        if folder == SLOW:
            answers.wait(60)
            answered.set()
            return Listing((file(SLOW / "late.yaml", "path"),))
        return (listings or LISTINGS).get(group, Listing())

    monkeypatch.setattr(preset_files, "read", read)
    monkeypatch.setattr(presets_screen, "ARRIVE_SECONDS", 60.0 if late is None else 0.0)
    screen = PresetsScreen()
    async with Opening(lambda: screen).run_test(size=size, notifications=True) as pilot:
        await wait_for(pilot, lambda: screen.is_mounted and screen.listed)
        yield pilot, screen


def lines(screen: PresetsScreen) -> list[str]:
    """The lines of the list, the one under the cursor with a >."""
    entries = screen.query_one("#list", OptionList)
    return [
        f"{'>' if at == entries.highlighted else ' '}{str(option.prompt).rstrip()}"
        for at, option in enumerate(entries.options)
    ]


ALL = [
    " in this folder", "   broken.yaml  not a preset", "   wrong.yaml   cannot be used: no such option",
    ">  night.yaml   trains at night", " recent", "   fast.yaml  /made/up/own", " yours", "   slow  at night",
    "   2 more YAML files?", " shipped with gputui", "   quickstart  a small network",
]  # fmt: skip


async def test_the_parts_of_the_list_and_the_cursor_on_the_first_preset_of_the_folder(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with opened(monkeypatch) as (pilot, screen):
        await pilot.pause()
        assert lines(screen) == ALL
        for key, at in (("down", 5), ("down", 7), ("down", 10), ("down", 2), ("up", 10)):
            await pilot.press(key)
            assert [number for number, line in enumerate(lines(screen)) if line[0] == ">"] == [at]
        screen.query_one("#open", Input).value = "night"
        await pilot.pause()
        assert lines(screen) == [" in this folder", ">  night.yaml  trains at night", " yours", "   slow  at night"]
        screen.query_one("#open", Input).value = "nothing at all"
        await pilot.pause()
        assert lines(screen) == []
        await pilot.press("enter")
        assert told(pilot) == "there is no preset that fits 'nothing at all'"
        await pilot.press("escape")
        first = [line.replace(">", " ").replace("   wrong", ">  wrong") for line in ALL]
        assert (screen.typed, lines(screen)) == ("", first)
        await pilot.press("escape")
        assert not isinstance(pilot.app.screen, PresetsScreen)


async def test_without_presets_in_the_folder_the_cursor_is_on_the_preset_of_the_form(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listings = {**LISTINGS, "here": Listing(LISTINGS["here"].files[:2])}
    async with opened(monkeypatch, listings=listings) as (pilot, screen):
        await pilot.pause()
        assert [line for line in lines(screen) if line[0] == ">"] == [">  quickstart  a small network"]
        await pilot.press("home", "enter")
        assert tiny(pilot).opened == [("form", presets.SHIPPED / "quickstart.yaml")]


async def test_the_preset_of_the_form_gets_the_cursor_when_its_part_of_the_list_arrives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listings = {**LISTINGS, "here": Listing(LISTINGS["here"].files[:2])}
    for pressed, at in (([], "quickstart"), (["down"], "night.yaml")):
        arrives = threading.Event()
        async with opened(monkeypatch, listings=listings, late=("shipped", arrives)) as (pilot, screen):

            def under_cursor(screen: PresetsScreen = screen) -> list[str]:
                return [line.split()[0].strip(">") or line.split()[1] for line in lines(screen) if line[0] == ">"]

            await wait_for(pilot, lambda screen=screen: len(screen.listings) == 3)  # type: ignore[misc]
            await pilot.pause()
            assert under_cursor() == ["wrong.yaml"]
            await pilot.press(*pressed)
            arrives.set()
            await wait_for(pilot, lambda screen=screen: len(screen.listings) == 4)  # type: ignore[misc]
            await pilot.pause()
            assert under_cursor() == [at]
            await pilot.press("down")
            assert under_cursor() == ["wrong.yaml" if at == "quickstart" else "fast.yaml"], "it was placed once"


async def test_a_typed_path_lists_its_folder_is_completed_and_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(monkeypatch) as (pilot, screen):
        field = screen.query_one("#open", Input)
        field.value = " /made/up/here/n "  # as it was copied
        await wait_for(pilot, lambda: len(screen.listed) == 2)
        await pilot.pause()
        assert lines(screen) == [">  night.yaml", "   nightly/", "   cannot be read whole"]
        await pilot.press("tab")
        assert field.value == "/made/up/here/night"
        await pilot.press("tab")
        assert (field.value, field.cursor_position) == ("/made/up/here/night.yaml", len("/made/up/here/night.yaml"))
        await pilot.press("enter")
        assert tiny(pilot).opened.pop() == ("form", HERE / "night.yaml")
        field.value = "/made/up/here/night"
        await wait_for(pilot, lambda: len(screen.listed) == 2)
        await pilot.press("down", "enter")
        assert field.value == "/made/up/here/nightly/", "a folder is gone into"
        assert tiny(pilot).opened == []
        field.value = "/made/up/here/o"
        await wait_for(pilot, lambda: len(screen.listed) == 1)
        await pilot.press("tab")
        assert field.value == "/made/up/here/o", "what is no preset is not completed"
        field.value = "/made/up/slow/"
        await pilot.pause()
        assert lines(screen) == []
        field.value = "/made/up/here/d"
        await wait_for(pilot, lambda: lines(screen)[:1] == [">  day.yaml"])
        answers.set()
        await wait_for(pilot, answered.is_set)
        await pilot.pause(0.1)
        assert lines(screen)[:1] == [">  day.yaml"], "another folder has been typed meanwhile"
        field.value = "/made/up/net.py"
        monkeypatch.setattr(presets_screen, "of_python", lambda path: f"Python code: {path}")
        await pilot.pause()
        await pilot.press("enter")
        assert told(pilot) == "/made/up/net.py: Python code: /made/up/net.py"


async def test_the_preview_follows_the_cursor_and_is_made_anew_after_a_change(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine, other = tmp_path / "mine.yaml", tmp_path / "other.yaml"
    mine.write_text("train: {epochs: 3}\n")
    other.write_text("train: {epoch: 3}\n")
    listings = {"yours": Listing((file(mine, "yours"), file(other, "yours")))}
    async with opened(monkeypatch, listings=listings) as (pilot, screen):

        def preview() -> str:
            return str(screen.query_one("#preview", Static).visual)

        await wait_for(pilot, lambda: "train.epochs  3  default 2" in preview())
        await pilot.press("down")
        await wait_for(pilot, lambda: preview().startswith("other") and "cannot be used" in preview())
        await pilot.press("tab", "S")
        assert told(pilot) == "a preset with errors cannot be duplicated"
        await pilot.press("up")
        await wait_for(pilot, lambda: preview().startswith("mine"))
        await pilot.press("d", "d")
        await wait_for(pilot, lambda: not mine.exists())
        assert told(pilot).endswith("deleted mine; u in the list brings it back")
        await pilot.press("down")
        await pilot.press("u")
        await wait_for(pilot, mine.exists)
        await wait_for(pilot, lambda: screen.chosen is not None and screen.chosen.path == mine)
        mine.write_text("train: {epochs: 4}\n")
        tiny(pilot).state = FormState.open(mine)  # type: ignore[attr-defined]
        mine.write_text("train: {epochs: 5}\n")
        screen.acts_here.add("saved over mine", lambda: None, "", str(mine))
        await pilot.press("u")
        await wait_for(pilot, lambda: "train.epochs  5  default 2" in preview())
        ((what, state),) = tiny(pilot).opened
        assert (what, state.text_of_file("train.epochs"), state.texts["train.epochs"]) == ("shown", "5", "4")


async def test_a_copy_is_proposed_next_to_the_file_or_in_the_users_own_folder(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = tmp_path / "mine.yaml"
    mine.write_text("# few\ntrain: {epochs: 3}\n")
    listings = {"here": Listing((file(mine, "here"),)), "shipped": LISTINGS["shipped"]}
    async with opened(monkeypatch, listings=listings) as (pilot, screen):
        await wait_for(pilot, lambda: screen.chosen is not None)
        for key, proposed in (("home", tmp_path / "mine-copy.yaml"), ("end", saving.place("quickstart-copy"))):
            screen.query_one("#list").focus()
            await pilot.press(key, "S")
            await wait_for(pilot, lambda: pilot.app.screen is not screen)
            value = pilot.app.screen.query_one(Input).value
            assert Path(value).expanduser().absolute() == proposed
            await pilot.press("enter")
            await wait_for(pilot, proposed.exists)
            await wait_for(pilot, lambda: pilot.app.screen is screen)
        assert (tmp_path / "mine-copy.yaml").read_text() == "# few\ntrain: {epochs: 3}\n"
        await pilot.press("end", "d")
        assert told(pilot).endswith("quickstart ships with gputui and cannot be deleted")
