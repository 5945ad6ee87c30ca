"""The table of screens: nothing is missing in it, and what the application makes of it; the keys below them."""

from __future__ import annotations

import importlib
import inspect
import pkgutil

from gputui.tui import screens
from gputui.tui.screens import base, catalogue
from gputui.tui.screens.form_checks import CheckedForm
from gputui.tui.screens.form_view import FormView
from gputui.tui.screens.live_view import LiveView
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer
from textual.widgets._footer import FooterKey

from tests.support.form_pilot import go, opened, settled
from tests.support.tiny import wait_for

BASES = {Screen, ModalScreen, base.AppScreen, base.FollowingScreen, FormView, CheckedForm, LiveView}


def test_every_screen_is_listed_and_found() -> None:
    names = [module.name for module in pkgutil.iter_modules(screens.__path__)]
    modules = [importlib.import_module(f"{screens.__name__}.{name}") for name in names]
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
