"""The table of screens: nothing is missing in it, and what the application makes of it; the keys below them."""

from __future__ import annotations

import importlib
import inspect
import os
import pkgutil
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.runs import Run
from gputui.tui import screens
from gputui.tui.app import GputuiApp
from gputui.tui.reading.run_list import Ended
from gputui.tui.screens import base, catalogue, undoing
from gputui.tui.screens.compare.compared_curves import ComparedCurves
from gputui.tui.screens.form.form_values import CheckedForm
from gputui.tui.screens.form.view import FormView
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.live.view import LiveView
from gputui.tui.screens.proof.screen import ProofView
from gputui.tui.screens.runs import watch
from gputui.tui.screens.runs import watch as run_watch
from gputui.tui.screens.runs.actions import DeletingScreen, RunActions
from gputui.tui.screens.runs.queue_actions import QueueActions
from gputui.tui.screens.runs.sweep_actions import SweepActions
from gputui.tui.widgets.key_footer import ScreenTabs
from textual.events import AppBlur
from textual.pilot import Pilot
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

from tests.support import recorded
from tests.support.form_pilot import go, opened, settled, told
from tests.support.tiny import text_of, wait_for

BASES = {
    Screen,
    ModalScreen,
    base.AppScreen,
    base.FollowingScreen,
    undoing.UndoActions,
    FormView,
    CheckedForm,
    ComparedCurves,
    DeletingScreen,
    LiveView,
    ProofView,
    QueueActions,
    SweepActions,
    RunActions,
}


def test_every_screen_is_listed_and_found() -> None:
    names = [module.name for module in pkgutil.walk_packages(screens.__path__, f"{screens.__name__}.")]
    modules = [importlib.import_module(name) for name in names]
    written = {
        found
        for module in modules
        for _, found in inspect.getmembers(module, inspect.isclass)
        if issubclass(found, Screen) and not issubclass(found, ModalScreen) and found.__module__ == module.__name__
    }
    assert {entry.screen_class for entry in catalogue.SCREENS} == written - BASES


def test_names_and_keys_are_given_once() -> None:
    names = [entry.name for entry in catalogue.SCREENS]
    keys = [key for entry in catalogue.SCREENS for key in entry.keys.split(",") if key]
    assert len(set(names)) == len(names)
    assert len(set(keys)) == len(keys)
    places = {entry.name: entry.place for entry in catalogue.SCREENS if entry.place}
    below = {
        "runs": "proofs compare proof tune scaling sweep", "gpus": "processes", "live": "diagnosis",
        "form": "changes presets text",
    }  # fmt: skip
    assert places == {name: place for place, screens in below.items() for name in screens.split()}
    shown = [(binding.action, binding.show) for binding in catalogue.key_bindings()]
    footer, header = ("form", "live", "runs"), ("gpus", "doctor")
    assert shown == [(f"show('{name}')", name in footer) for name in (*footer, *header)]


async def test_the_keys_below_a_screen_change_with_what_they_do_and_are_not_made_anew_otherwise() -> None:
    async with opened((120, 40)) as pilot:
        footer = pilot.app.screen.query_one(Footer)
        await go(pilot, "input.batch_size")
        await wait_for(pilot, "Change")
        await settled(pilot)
        keys = list(footer.query(FooterKey))
        await go(pilot, "train.seed")
        await settled(pilot)
        assert list(footer.query(FooterKey)) == keys
        await pilot.press("enter")
        await wait_for(pilot, "Accept")
        await pilot.press("escape")
        shown = await wait_for(pilot, "Change")
        assert "Accept" not in shown


async def test_a_terminal_without_the_focus_at_the_start_shows_the_keys_too(home: Path) -> None:
    class Behind(GputuiApp):
        def on_load(self) -> None:  # as a browser's driver and some terminals do
            self.call_later(self.post_message, AppBlur())

    async with Behind().run_test(size=(80, 24)) as pilot:
        await wait_for(pilot, "? Help")
        assert not pilot.app.app_focus
        await pilot.app.push_screen(LiveScreen(recorded.write(home, name="over", gpus=0, seconds=20)))
        await wait_for(pilot, "r Run again")
        assert not pilot.app.app_focus


PLACES = ("Form", "Live ▶1", "Runs", "GPUs", "Doctor")


def top(pilot: Pilot[Any]) -> str:
    """The first line of the screen."""
    return text_of(pilot.app).split("\n")[0]


async def test_the_header_has_the_places_counts_the_running_runs_and_can_be_clicked(home: Path) -> None:
    recorded.write(home, name="first", gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    recorded.write(home, name="second", gpus=0, seconds=20)
    async with opened((80, 24)) as pilot:
        first = (await wait_for(pilot, "▌F2 Form▐ F3 Live ▶1  F4 Runs  F5 GPUs  F6 Doctor   quickstart")).split("\n")[0]
        for place in ("GPUs", "Runs", "Live", "Form"):
            await pilot.click(offset=(first.index(place) + 1, 0))
            marked = f"{place} ▶1▐" if place == "Live" else f"{place}▐"
            await wait_for(pilot, marked)
            await wait_for(pilot, lambda: all(name in top(pilot) for name in PLACES))
            first = top(pilot)
        pilot.app.open_compare([Run(home / "runs/first"), Run(home / "runs/second")])  # type: ignore[attr-defined]
        await wait_for(pilot, "F2 Form  F3 Live ▶1 ▌F4 Runs▐ F5 GPUs  F6 Doctor")  # where a comparison belongs


async def test_a_badge_that_comes_while_the_screen_is_laid_out_cuts_no_place() -> None:
    async with opened((80, 24)) as pilot:
        pilot.app.screen.query_one(ScreenTabs).refresh(layout=True)
        pilot.app.screen._refresh_layout()
        pilot.app.running_count = 1  # type: ignore[attr-defined]
        await wait_for(pilot, "F3 Live ▶1  F4 Runs  F5 GPUs  F6 Doctor   quickstart")


async def test_a_message_stays_on_the_screen_that_the_key_of_its_act_has_led_to_and_goes_with_it(home: Path) -> None:
    recorded.write(home, name="20260921-100000-cnn", gpus=0, seconds=20)
    async with opened((80, 24)) as pilot:
        await pilot.press("f4")
        await wait_for(pilot, "1 of 1 run")
        await pilot.press("ctrl+c")
        await wait_for(pilot, lambda: "runs and proofs go on without it" in told(pilot))
        await pilot.press("d")
        await wait_for(pilot, "Keep")
        assert told(pilot) == "", "the message of the list is not laid over the dialog"
        await pilot.press("d")
        await wait_for(pilot, lambda: "deleted 1 run" in told(pilot))
        await wait_for(pilot, "▌F4 Runs▐")
        await pilot.pause()
        assert "deleted 1 run" in told(pilot)
        await pilot.press("f2")
        await wait_for(pilot, "▌F2 Form▐")
        assert told(pilot) == ""


async def test_the_end_of_a_run_is_said_on_whatever_screen_one_is(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_watch, "LOOK_SECONDS", 0.05)
    monkeypatch.setattr(run_watch, "SHOWN_SECONDS", 90.0)
    going_on = recorded.write(home, name="first", gpus=0, seconds=20, outcome=None, engine_pid=os.getpid())
    over = recorded.write(home / "later", name="first", gpus=0, seconds=20, outcome="oom")
    written: list[str] = []
    app = GputuiApp()
    async with app.run_test(size=(80, 24), notifications=True) as pilot:
        await wait_for(pilot, "▶1")
        app.run_watch._title = watch.TerminalTitle(written.append)
        await wait_for(pilot, lambda: written)
        await pilot.press("f4")
        await wait_for(pilot, "▌F4 Runs▐")
        for name in ("result.json", "status.json"):  # each of them whole, as it is read all the time
            over.file(name).replace(going_on.file(name))
        await wait_for(pilot, "first: out of memory")
        await wait_for(pilot, lambda: "▶" not in text_of(app))
        assert told(pilot).count("out of memory") == 1
        app.open_run(going_on)
        await wait_for(pilot, "✗ out of memory")
        app.clear_notifications()
        app.run_watch._show_end(Ended("first", going_on.id, "oom"))
        assert not app._notifications, "the screen shows it, and nothing lies over its keys"
    assert written == ["\x1b[22;2t\x1b]2;100 % first - gputui\x07", "\x1b]2;\x07\x1b[23;2t"]


def test_a_terminal_gets_only_what_it_understands() -> None:
    assert watch.notification("a\x1b\nb", {"TERM": "xterm-256color"}) == "\x1b]9;a? b\x07"
    assert not watch.notification("a", {"TERM": "screen", "STY": "1"})
    assert not watch.notification("a", {"TERM": "tmux-256color", "TMUX": "/nowhere,1,0", "PATH": "/nowhere"})
    assert not watch.understands({"TERM": "linux"})
    assert not watch.understands({"TERM": "dumb"})
    assert watch.understands({"TERM": "xterm-kitty"})
