"""What the application offers to all screens: messages, copied texts, keys, settings, kept screens."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.runs import Run
from gputui.engine.system.identity import Process
from gputui.tui.base import base_app, keys
from gputui.tui.base.base_app import OWN_THEMES
from gputui.tui.base.glyphs import PLAIN, RICH
from gputui.tui.base.settings import Settings
from gputui.tui.upstream.kept_screens import Keepable
from textual.app import ComposeResult
from textual.binding import Binding
from textual.events import Key
from textual.screen import Screen
from textual.widgets import Label

from tests.support.form_pilot import told
from tests.support.tiny import Tiny, tiny, wait_for


class Empty(Screen[None]):
    """A screen without parts."""


async def test_a_message_replaces_the_last_one_of_its_kind_and_errors_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(base_app, "SHOWN_SECONDS", {"information": 40.0, "warning": 60.0, "error": 80.0})
    async with Tiny(Empty, PLAIN).run_test(size=(80, 12)) as pilot:
        app = tiny(pilot)

        async def messages() -> list[tuple[str, str, float]]:
            await pilot.pause()
            return [(each.message, each.severity, each.timeout) for each in app._notifications]

        app.notify("first", title="Copied")
        assert await messages() == [("Copied: first", "information", 40.0)]
        app.complain("bad\x1b")
        app.notify("careful", severity="warning")
        app.notify("second", timeout=90.0)
        assert await messages() == [
            ("bad?", "error", 80.0), ("careful", "warning", 60.0), ("second", "information", 90.0),
        ]  # fmt: skip
        app.complain("worse")
        await pilot.pause()
        assert told(pilot).splitlines() == ["bad?", "careful", "second", "worse"], "it replaces nothing"
        app.withdraw()
        assert [severity for _, severity, _ in await messages()] == ["error", "warning", "error"]
        app.notify("[b]not bold[/b]", markup=False)
        assert (await messages())[-1][0] == "[b]not bold[/b]"


async def test_a_copied_text_is_said_with_a_second_place_from_which_it_can_be_taken(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(base_app, "_to_tmux", lambda text: False)
    async with Tiny(Empty, PLAIN).run_test(size=(80, 12)) as pilot:
        tiny(pilot).copy("text\nof two lines", "the id\x07")
        await pilot.app.workers.wait_for_complete()
        await pilot.pause()
        place = "if the terminal does not take it (OSC 52), it is in"
        assert told(pilot) == f"Copied: the id?; {place} {home / 'copied.txt'}"
        assert pilot.app.clipboard == "text\nof two lines"
        assert (home / "copied.txt").read_text() == "text\nof two lines"
        tiny(pilot).copy("b", "the name")
        await pilot.app.workers.wait_for_complete()
        assert (home / "copied.txt").read_text() == "b"


async def test_a_run_is_being_stopped_only_as_long_as_its_engine_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, other = Run(tmp_path / "one"), Run(tmp_path / "two")
    engines = {"one": Process.of(os.getpid()), "two": None}
    monkeypatch.setattr(Run, "process", lambda of, name: engines[of.id] if name == "engine" else None)
    async with Tiny(Empty, PLAIN).run_test(size=(80, 12)) as pilot:
        app = tiny(pilot)
        assert not app.is_stopping(run)
        app.stopping_runs[run.id] = engines["one"]
        assert (app.is_stopping(run), app.is_stopping(other)) == (True, False)
        engines["one"] = Process.of(os.getppid())
        assert not app.is_stopping(run), "it was resumed: this is another engine"


@pytest.mark.parametrize("reasons", [("", ""), ("no room", ""), ("", "in use"), ("no room", "in use")])
async def test_at_the_end_it_is_said_what_could_not_be_deleted(reasons: tuple[str, str]) -> None:
    app, emptied = Tiny(Empty, PLAIN), list[str]()

    def trash(reason: str) -> Any:
        def empty() -> str:
            emptied.append(reason)
            return reason

        return SimpleNamespace(empty=empty)

    async with app.run_test(size=(80, 12)):
        app.trash, app.proof_trash = map(trash, reasons)
    assert sorted(emptied) == sorted(reasons), "both are emptied"
    assert (app.not_deleted in reasons, bool(app.not_deleted)) == (True, any(reasons))


async def test_keys_and_themes_have_the_names_that_the_terminal_can_show() -> None:
    for glyphs, enter in ((RICH, "⏎"), (PLAIN, "enter")):
        async with Tiny(Empty, glyphs).run_test(size=(80, 12)) as pilot:
            names = [
                pilot.app.get_key_display(Binding(key, "x"))
                for key in ("enter", "escape", "ctrl+r", "f3", "slash", "pagedown", "pageup", "delete", "space")
            ]
            assert names == [enter, "esc", "ctrl+r", "F3", "/", "pgdn", "pgup", "del", "space"]
            assert set(OWN_THEMES) < set(pilot.app.available_themes)
            assert tiny(pilot).key("stop") == "x"
            pilot.app.set_keymap({"stop": "ctrl+x,y"})
            assert (tiny(pilot).key("stop"), keys.keys_of(pilot.app, "stop")) == ("ctrl+x", ["ctrl+x", "y"])
            assert [keys.opens_place(pilot.app, key) for key in ("f3", "2", "f7", "x")] == [True, False, False, False]


def test_keys_without_effect_are_named_in_one_line() -> None:
    def line(*pressed: tuple[str, str | None]) -> str:
        return keys.unused([Key(key, character) for key, character in pressed])

    assert line(("a", "a")) == "the key a was not used - press again"
    assert line(("space", " ")) == "the key space was not used - press again"
    assert line(("escape", "\x1b")) == "the key esc was not used - press again"
    assert line(("a", "a"), ("b", "b")) == '2 keys were not used ("ab") - press again'
    assert line(("a", "a"), ("enter", "\r"), ("space", " "), ("b", "b")) == (
        '4 keys were not used ("a enter  b") - press again'
    )


def test_a_binding_may_leave_out_a_key_and_has_the_words_of_its_verb() -> None:
    usual, other = keys.bind("start"), keys.bind("start", "go", "Go", show=False, meaning="go on", without="r")
    assert (usual.key, usual.action, usual.description, usual.show, usual.id) == (
        "r,ctrl+r", "start", "Start", True, "start",
    )  # fmt: skip
    assert usual.tooltip == "start the training; run it again; check again"
    assert (other.key, other.action, other.description, other.show, other.tooltip) == (
        "ctrl+r", "go", "Go", False, "go on",
    )  # fmt: skip
    assert [keys.bind(verb).priority for verb in ("quit", "leave")] == [True, False]
    digits: list[Any] = keys.numbered("remedy", "take")
    assert [(each.key, each.action, each.show) for each in digits[:2]] == [
        ("1", "take(1)", True),
        ("2", "take(2)", False),
    ]
    assert len(digits) == 9


def test_keys_that_cannot_be_given_to_a_verb_are_named_and_the_others_are_used() -> None:
    keymap, problems = keys.remapped(
        {
            "remedy": "b",
            "stop": "up",
            "copy": "tab",
            "pin": "ctrl+b, ctrl+b",
            "log": "C, L",
            "note": "n,shift+tab",
            "tags": "ctrl+c",
        }
    )
    assert keymap == {"pin": "ctrl+b"}
    assert problems == [
        "keys: remedy: these keys cannot be changed",
        *(
            f"keys: {verb}: {key} moves the focus or copies the selection, and cannot be used"
            for verb, key in (("copy", "tab"), ("note", "shift+tab"), ("tags", "ctrl+c"))
        ),
        "keys: stop: up is the key of up (the row before); x stays",
        "keys: log: C is the key of columns (choose the columns); l stays",
    ]


# ---- settings ----------------------------------------------------------------------------------------------------


def test_a_setting_that_cannot_be_written_is_named_with_its_line_and_one_that_stays_is_not_written(
    tmp_path: Path,
) -> None:
    path = tmp_path / "settings.yaml"
    settings = Settings(path)
    settings.change("runs.sort", "when")
    settings.flush()
    assert not path.exists(), "it is the default already"
    settings.change("runs.sort", "loss")
    settings.flush()
    with path.open("a") as lines:
        lines.write("log: [\n")
    said: list[str] = []
    settings.complain = said.append
    settings.change("runs.sort", "id")
    settings.flush()
    (line,) = said
    assert line.startswith(f"{path}:5: runs.sort lasts until gputui ends: not valid YAML: "), line
    assert settings.get("runs.sort") == "id"
    path.write_text("keys: {stop: 5}\nruns: {sortt: x, sort: loss}\ncharts: {smoothing: 1}\nlog: {fold: }\nother: 3\n")
    again = Settings(path)
    assert (dict(again.keys), again.runs.sort, again.log.fold) == ({"stop": "5"}, "loss", True)
    names = ", ".join(f"runs.{name}" for name in ("columns", "sort", "descending", "filter", "side_view"))
    assert again.problems[0] == f"{path}:2: there is no setting runs.sortt; known: {names}"
    assert again.problems[1] == f"{path}:3: charts.smoothing must be a number from 0 to 0.99, not 1.0; 0.0 is used"
    assert again.problems[2].startswith(f"{path}:5: there is no setting other; known: theme, ")
    assert len(again.problems) == 3


# ---- screens that stay built -------------------------------------------------------------------------------------


class Kept(Screen[None], Keepable):
    KEPT = 2

    def __init__(self, name: str, source: Any = None) -> None:
        super().__init__()
        self.kept_as, self.source = name, source
        self.again: list[Any] = []

    def opened_again(self, other: Any) -> None:
        self.again.append(other)

    def compose(self) -> ComposeResult:
        yield Label(self.kept_as)


class Below(Kept):
    """A screen that shows the readings of another."""


async def test_the_screens_that_were_opened_last_stay_built_with_those_that_show_their_readings() -> None:
    async with Tiny(Empty, PLAIN).run_test(size=(80, 12)) as pilot:
        app = tiny(pilot)

        async def show(screen: Screen[None], instead: bool = False) -> Any:
            app.open_screen(screen, instead=instead)
            await pilot.pause()
            return app.screen

        def built() -> list[str]:
            return sorted(each.kept_as for each in app._registry if isinstance(each, Kept))

        one = await show(Kept("one"))
        chart = await show(Below("chart of one", one))
        assert [type(screen) for screen in app.screen_stack[1:]] == [Empty, Kept, Below]
        again = Kept("one")
        assert (await show(again), one.again) == (one, [again])
        assert app.screen_stack[2:] == [one], "its chart was taken out of the stack, too"
        assert await show(Kept("one")) is one, "it is in front already"
        two = await show(Kept("two"), instead=True)
        assert app.screen_stack[2:] == [two]
        assert await show(Below("chart of one", one)) is chart
        app.pop_screen()
        assert await show(Kept("one"), instead=True) is one
        three = await show(Kept("three"), instead=True)
        await wait_for(pilot, lambda: built() == ["chart of one", "one", "three"])  # two was opened before one
        four = await show(Kept("four"), instead=True)
        await wait_for(pilot, lambda: built() == ["four", "three"])  # with a screen goes its chart
        assert app.screen_stack[2:] == [four]
        app.kept.remove(three)
        app.kept.remove(three)
        await wait_for(pilot, lambda: built() == ["four"])
        nameless = await show(Kept(""))
        app.pop_screen()
        await wait_for(pilot, lambda: (nameless.is_attached, built()) == (False, ["four"]))
