"""The screen of the settings: each with its line, its meaning, and what its key does; defaults, and taking back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from gputui.tui.base.settings import declared
from gputui.tui.base.themes import THEMES
from gputui.tui.screens.dialogs import AskText
from gputui.tui.screens.settings import AskSetting, SettingsRows, SettingsScreen, parsed
from textual.content import Content
from textual.pilot import Pilot
from textual.widgets import Input, Label

from tests.support.form_pilot import told
from tests.support.tiny import Tiny, lines_of, text_of, wait_for

Written = Any  # a text of `__snapshots__`
SETTINGS = dict(declared())


def at(pilot: Pilot[None], key: str) -> SettingsScreen:
    screen = pilot.app.screen
    assert isinstance(screen, SettingsScreen)
    screen.query_one(SettingsRows).highlighted = list(SETTINGS).index(key)
    return screen


def value(pilot: Pilot[None], key: str) -> Any:
    return pilot.app.settings.get(key)  # type: ignore[attr-defined]


async def opened(pilot: Pilot[None]) -> None:
    await wait_for(pilot, lambda: isinstance(pilot.app.screen, SettingsScreen))
    pilot.app.theme = "gputui"
    await pilot.pause()


async def test_all_settings_with_their_values_and_meanings(snapshot: Written, tmp_path: Path) -> None:
    parts = []
    async with Tiny(SettingsScreen).run_test(size=(120, 40)) as pilot:
        await opened(pilot)
        pilot.app.settings.change("charts.smoothing", 0.5)  # type: ignore[attr-defined]
        pilot.app.settings.change("log.wrap", True)  # type: ignore[attr-defined]
        pilot.app.settings.change("runs.columns", ("loss", "when"))  # type: ignore[attr-defined]
        pilot.app.settings.change("notify.url", "https://me:pass@ntfy.example/a-secret-topic")  # type: ignore[attr-defined]
        path = str(pilot.app.settings.path)  # type: ignore[attr-defined]
        for size in ((120, 40), (80, 24)):
            await pilot.resize_terminal(*size)
            await pilot.pause()
            screen = at(pilot, "theme")
            await pilot.pause()
            about = screen.query_one("#about").region.y
            parts.append(lines_of(pilot.app).partition("in /")[0])
            for key in SETTINGS:
                at(pilot, key)
                await pilot.pause()
                text = "\n".join(text_of(pilot.app).split("\n")[about:-1])
                parts += [f"---- {key}", *(line.rstrip() for line in text.split("\n") if path[:20] not in line)]
        assert path in text_of(pilot.app).replace("\n", "") or len(path) > 78
    assert "\n".join(parts) == snapshot


async def test_a_key_switches_takes_the_next_word_asks_or_says_where_a_setting_is_changed() -> None:
    async with Tiny(SettingsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        await opened(pilot)
        path = pilot.app.settings.path  # type: ignore[attr-defined]
        for key, setting in SETTINGS.items():
            default = setting.metadata["default"]
            pilot.app.clear_notifications()
            at(pilot, key)
            await pilot.press("enter")
            await pilot.pause()
            if key == "theme":
                names = [theme.name for theme in THEMES]
                assert pilot.app.theme == names[(names.index("gputui") + 1) % len(names)]
            elif key.startswith("runs.") and key != "runs.side_view":
                press = {"columns": "C", "sort": "<", "descending": "I", "filter": "/"}[key.partition(".")[2]]
                assert told(pilot) == f"{press} in the list of runs (F4) changes it", key
                assert value(pilot, key) == default
            elif isinstance(default, bool):
                assert value(pilot, key) is not default, key
            elif choices := setting.metadata["choices"]:
                assert value(pilot, key) == choices[(list(choices).index(default) + 1) % len(choices)], key
            elif isinstance(default, dict):
                assert told(pilot) == f"write it into {path}; it is read when gputui starts", key
            else:
                dialog = pilot.app.screen
                assert isinstance(dialog, AskSetting), key
                assert dialog.query_one(Input).value == str(default)
                assert str(dialog.query(Label).first().content).startswith(f"{key}: ")
                await pilot.press("escape")
                await pilot.pause()
            assert told(pilot) == "" or key.startswith(("runs.", "keys")), key


async def test_a_default_comes_back_and_each_change_can_be_taken_back() -> None:
    async with Tiny(SettingsScreen).run_test(size=(120, 40), notifications=True) as pilot:
        await opened(pilot)
        screen = at(pilot, "log.wrap")
        before = value(pilot, "log.wrap")
        assert screen.keys_without_use == ("undo", "undo_list")
        await pilot.press("enter")
        shown = await wait_for(pilot, f"* log.wrap             {'off' if before else 'on'}")
        assert "* log.fold" not in shown
        prompts = {str(option.id): option.prompt for option in screen.query_one(SettingsRows).options}
        bold = {key for key, text in prompts.items() if isinstance(text, Content) and _is_bold(text, 23)}
        assert bold == {"log.wrap"}, "the value that is not the default"
        assert not screen.keys_without_use
        at(pilot, "log.fold")
        await pilot.press("enter")
        at(pilot, "charts.smoothing")
        await pilot.press("enter")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, AskText))
        for typed, refusal in (
            ("1", "must be a number from 0 to 0.99, not 1.0"), ("x", "must be a number from 0 to 0.99, not 'x'"),
        ):  # fmt: skip
            pilot.app.screen.query_one(Input).value = typed
            await pilot.press("enter")
            assert str(pilot.app.screen.query_one("#complaint", Label).content).endswith(refusal)
        pilot.app.screen.query_one(Input).value = " 0.25 "
        await pilot.press("enter")
        await wait_for(pilot, lambda: value(pilot, "charts.smoothing") == 0.25)
        acts = [act.what for act in pilot.app.acts["settings"].newest_first]
        on, off = ("on", "off") if before else ("off", "on")
        assert acts[0] == "changed charts.smoothing from 0.0 to 0.25"
        assert acts[-1] == f"changed log.wrap from {on} to {off}"
        at(pilot, "log.wrap")
        await pilot.press("d")
        assert value(pilot, "log.wrap") is before
        await pilot.press("d")
        assert len(pilot.app.acts["settings"].newest_first) == 4, "it is the default already"
        at(pilot, "theme")
        for undone, now in (
            ("log.wrap", not before), ("charts.smoothing", 0.0), ("log.fold", SETTINGS["log.fold"].metadata["default"]),
            ("log.wrap", before),
        ):  # fmt: skip
            await pilot.press("u")
            await wait_for(pilot, lambda undone=undone: screen.key == undone)
            assert value(pilot, undone) == now
        await pilot.press("u")
        await wait_for(pilot, lambda: "nothing to take back: no setting was changed here" in told(pilot))
        at(pilot, "notify.url")
        await pilot.press("enter")
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, AskText))
        pilot.app.screen.query_one(Input).value = "https://me:pass@ntfy.example/a-secret-topic"
        await pilot.press("enter")
        await wait_for(pilot, lambda: screen.acts_here.newest_first)
        assert screen.acts_here.newest_first[0].what == "changed notify.url from - to ntfy.example"
        await pilot.press("u")
        await wait_for(pilot, lambda: not screen.acts_here.newest_first)
        assert told(pilot).endswith("taken back: changed notify.url from - to ntfy.example")
        pilot.app.settings.change("runs.sort", "loss")
        pilot.app.settings.change("runs.columns", ("loss", "when"))
        for key in ("theme", "runs.sort", "runs.columns", "keys"):
            at(pilot, key)
            kept = value(pilot, key)
            await pilot.press("d")
            assert (value(pilot, key), len(screen.acts_here.newest_first)) == (kept, 0)


def _is_bold(text: Content, at: int) -> bool:
    return any(span.style == "bold" for span in text.spans if span.start <= at < span.end)


@pytest.mark.parametrize(
    ("key", "text", "found"),
    [
        ("charts.smoothing", "0.5", 0.5),
        ("charts.smoothing", "x", "x"),
        ("notify.url", " $URL ", "$URL"),
        ("theme", "", ""),
    ],
)
def test_what_is_typed_is_of_the_type_of_the_default(key: str, text: str, found: Any) -> None:
    assert parsed(SETTINGS[key], text) == found
