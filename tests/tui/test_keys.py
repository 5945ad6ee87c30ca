"""The grammar of the keys: one verb for a key on every screen, in the help and the palette, and other keys at will."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

from gputui.engine.files import places
from gputui.tui import app as application
from gputui.tui import screens, widgets
from gputui.tui.app import GputuiApp
from gputui.tui.base import keys
from gputui.tui.base.keys import GRAMMAR, VERBS, remapped
from gputui.tui.screens.base import FollowingScreen
from gputui.tui.screens.catalogue import offers_all
from gputui.tui.screens.help import REST, HelpScreen, working
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.widgets.key_footer import KeyFooter
from textual.binding import Binding
from textual.command import CommandPalette
from textual.containers import ScrollableContainer
from textual.dom import DOMNode
from textual.screen import Screen
from textual.widgets import DataTable, Input, OptionList, TextArea

from tests.support import recorded
from tests.support.form_pilot import form, opened, seen, settled, told, write
from tests.support.recorded_proof import write_proof
from tests.support.recorded_search import write_search
from tests.support.tiny import wait_for

# Keys without a verb: of Textual's focus, which nobody can change.
WITHOUT = {("Ask", "left"), ("Ask", "right")}
LISTS = (OptionList, DataTable, ScrollableContainer, TextArea)
COMMON = (keys.PLACES, keys.ALWAYS, REST)  # sections of the help that are not of one screen
OF_THE_MACHINE = ("gpus", "processes")  # screens whose keys depend on its GPUs
Written = Any  # the text of `__snapshots__`
PLACED = {keys.FIELD, keys.FORM, keys.CHART, "Diagnosis"}


def classes() -> Iterator[type[DOMNode]]:
    """Every screen and widget of the application."""
    names = [f"{package.__name__}.{found.name}" for package in (screens, widgets)
             for found in pkgutil.iter_modules(package.__path__)]  # fmt: skip
    for module in (application, *map(importlib.import_module, names)):
        for _, found in inspect.getmembers(module, inspect.isclass):
            if issubclass(found, DOMNode) and found.__module__ == module.__name__:
                yield found


def declared() -> Iterator[tuple[type, Binding]]:
    """Every binding that a class of the application declares."""
    for found in classes():
        yield from ((found, binding) for binding in found.__dict__.get("BINDINGS", ()))


def test_every_key_is_that_of_a_verb() -> None:
    for where, binding in declared():
        assert isinstance(binding, Binding)
        if (where.__name__, binding.key) not in WITHOUT:
            assert binding.id in VERBS, f"{where.__name__}: {binding.key} is bound without a verb: use keys.bind"
            one_of_many = binding.id == "remedy"  # each number tells its action which remedy
            assert (binding.key in VERBS[binding.id].keys) if one_of_many else binding.key == VERBS[binding.id].keys


def test_every_list_is_walked_with_the_same_keys() -> None:
    moves = ("down", "up", "first", "last", "page_down", "page_up")
    wanted = {key for verb in moves for key in VERBS[verb].keys.split(",")}
    lists = {found for found in classes() if issubclass(found, LISTS)}
    assert len(lists) > 8
    for found in lists:
        merged = found._merged_bindings
        verbs = {key: bindings[0].id for key, bindings in merged.key_to_bindings.items()} if merged else {}
        if found._inherit_bindings and found.can_focus and not issubclass(found, Input):
            assert {key for key in wanted if verbs.get(key) in VERBS} == wanted, found


def test_a_key_means_one_verb_except_in_places_of_its_own() -> None:
    meant: dict[tuple[str, str], str] = {}
    for verb in GRAMMAR:
        assert verb.place in PLACED | {""}
        for key in verb.keys.split(","):
            other = meant.setdefault((key, verb.place), verb.id)
            assert other == verb.id, f"{key} is the key of {other} and of {verb.id}"


def test_other_keys_are_taken_from_the_settings_unless_they_clash() -> None:
    given = {"stop": "ctrl+x", "compare": "F7, X", "copy": "c", "why": "?", "undo": "Space", "log": "w"}
    keymap, problems = remapped(given)
    assert keymap == {"stop": "ctrl+x", "compare": "f7,X", "copy": "c"}
    assert problems == [
        "keys: why: ? is the key of help (the keys that work now); w stays",
        "keys: undo: space is the key of mark (mark or unmark, switch on or off); u stays",
        "keys: log: w is the key of why (the diagnosis: what limits the speed); l stays",
    ]
    assert remapped({"stop": "c", "compare": "x"})[0] == {"stop": "c", "compare": "x"}  # they change places
    wrong = {
        "stopp": "there is no such verb", "stop": "'ctrl-x' is no key", "accept": "cannot be changed",
        "help": "tab moves the focus", "log": "'' is no key",
    }  # fmt: skip
    given = dict(zip(wrong, ("a", "ctrl-x", "k", "tab", ""), strict=True))
    assert remapped(given)[0] == {}
    for problem, (verb, said) in zip(remapped(given)[1], wrong.items(), strict=True):
        assert problem.startswith(f"keys: {verb}: ")
        assert said in problem


async def test_every_screen_keeps_to_the_grammar_in_its_keys_its_help_and_the_palette(
    home: Path, snapshot: Written
) -> None:
    run = recorded.write(home, name="20260921-100000-cnn", gpus=2, seconds=40)
    other = recorded.write(home, name="20260921-110000-cnn", gpus=2, seconds=40, settings=("batch_size=256",))
    proof, search = write_proof(home), write_search(home)
    meant: dict[str, str] = {}
    written: list[str] = []
    async with opened((120, 40)) as pilot:
        app = pilot.app
        assert isinstance(app, GputuiApp)
        app.theme = "gputui"  # whatever suits the terminal of the tests
        ways: dict[str, Callable[[], Any]] = {
            "form": lambda: app.action_show("form"), "live": lambda: app.open_run(run),
            "diagnosis": lambda: app.screen.run_action("screen.diagnosis"),
            "chart": lambda: app.screen.source.open_chart("loss"),  # type: ignore[attr-defined]
            "runs": lambda: app.action_show("runs"), "compare": lambda: app.open_compare([run, other]),
            "proofs": lambda: app.action_show("proofs"), "proof": lambda: app.open_proof(proof),
            "tune": lambda: app.open_proof(search),
            "gpus": lambda: app.action_show("gpus"), "processes": lambda: app.screen.run_action("screen.processes"),
            "settings": lambda: app.action_show("settings"), "doctor": lambda: app.action_show("doctor"),
            "presets": lambda: app.form.action_presets(),
            "text": lambda: app.form.action_text("yaml"), "changes": lambda: app.form.action_changes(),
        }  # fmt: skip
        for name, way in ways.items():
            found = way()
            if inspect.isawaitable(found):
                await found
            await wait_for(pilot, partial(opens, app, name))
            await settled(pilot)
            screen = app.screen
            keeps_to_the_grammar(screen, meant)
            if name not in OF_THE_MACHINE:
                written += [f"==== {name}", *offered(app)]
            said = [line for lines in working(screen).values() for _, line in lines]
            assert len(said) == len(set(said)), f"{name}: {said}"
            titles = [command.title for command in app.get_system_commands(screen)]
            assert len(titles) == len(set(titles)), f"{name}: {titles}"
            await pilot.press("f1")
            assert isinstance(app.screen, HelpScreen)
            await pilot.press("q")
            assert app.screen is screen
    assert "\n".join(written) == snapshot


def offered(app: GputuiApp) -> Iterator[str]:
    """Yield what a screen offers: its footer, the sections of its help, and the commands of the palette."""
    screen = app.screen
    footer = screen.query_one(KeyFooter).chosen_keys()
    yield f"footer: {', '.join(f'{keys.shown(key.binding.key)} {key.binding.description}' for key in footer)}"
    for title, lines in (*working(screen).items(), *getattr(screen, "HELP_SECTIONS", ())):
        if title not in COMMON:
            yield f"-- {title}"
            yield from (f"{names}: {about}" for names, about in lines)
    yield "-- palette"
    listed = [each for each in app.get_system_commands(screen) if each.discover]  # without the themes of Textual
    if screen is app.form:
        yield from (f"{each.title}: {each.help}" for each in listed)
    else:
        yield ", ".join(each.title for each in listed if not each.title.startswith("Theme "))


def opens(app: GputuiApp, name: str) -> bool:
    """Return True if the screen is open and has read what its keys depend on."""
    screen = app.screen
    is_read = screen.latest is not None if isinstance(screen, FollowingScreen) else True
    if isinstance(screen, LiveScreen):
        is_read = screen.now.outcome is not None
    if isinstance(screen, RunsScreen):
        is_read = screen.current is not None
    return type(screen).__name__.lower().startswith(name) and is_read


def keeps_to_the_grammar(screen: Screen[Any], meant: dict[str, str]) -> None:
    """Each key means what it meant on the screens before, does something, and stands in the help and the palette."""
    listed = {key for lines in working(screen).values() for names, _ in lines for key in names.split(", ")}
    commands = {command.title for command in screen.app.get_system_commands(screen)}
    for key, active in screen.active_bindings.items():
        binding, name = active.binding, active.binding.action.rpartition(".")[2].partition("(")[0]
        node = screen.app if binding.action.startswith("app.") else active.node
        node = screen if binding.action.startswith("screen.") else node
        assert hasattr(node, f"action_{name}") or hasattr(node, f"_action_{name}"), (screen, binding)
        taken = key == "super+c" or (len(key) == 1 and screen.check_consume_key(key, key))
        unused = binding.id in getattr(screen, "keys_without_use", ())
        if binding.description and not binding.system and not taken and not unused:
            assert keys.shown(key) in listed, (screen, key)
        verb = VERBS.get(binding.id or "")
        if verb is not None and not verb.place:
            assert meant.setdefault(key, verb.id) == verb.id, (screen, key)
            if verb.group == "Actions" and getattr(screen, "offers", offers_all)(binding.action):
                assert any(title.startswith(binding.description) for title in commands), (screen, binding)


async def test_a_remapped_key_works_and_stands_in_the_footer_the_help_and_the_palette(home: Path) -> None:
    path = places.settings_file()
    path.parent.mkdir(parents=True)
    path.write_text("keys: {search: ctrl+f, start: q, runs: 'ctrl+t,f4'}\n")
    async with opened((120, 40)) as pilot:
        assert "settings.yaml: keys: start: q is the key of leave" in told(pilot)
        assert "ctrl+f Search" in await wait_for(pilot, "ctrl+t Runs")
        await pilot.press("slash")
        assert not pilot.app.screen.query_one("#search").has_focus
        await pilot.press("ctrl+f")
        assert pilot.app.screen.query_one("#search").has_focus
        await pilot.press("escape", "question_mark")
        assert "ctrl+f " in seen(pilot)
        await pilot.press("escape", "ctrl+p")
        assert isinstance(pilot.app.screen, CommandPalette)
        await write(pilot, "fastest")
        await wait_for(pilot, "Tune: find the fastest settings  (T)")
        await pilot.press(*["backspace"] * len("fastest"))
        await write(pilot, "search")
        await wait_for(pilot, "Search  (ctrl+f)")
        await pilot.press("enter")
        await wait_for(pilot, lambda: pilot.app.focused is not None and pilot.app.focused.id == "search")
        await pilot.press("escape", "ctrl+t")
        await wait_for(pilot, "no runs so far")
        await pilot.press("q")
        await wait_for(pilot, lambda: pilot.app.screen is form(pilot))
        pilot.app.screen.set_focus(None)
        await pilot.press("3")  # a digit begins a value in the form, wherever the focus is
        await pilot.pause(0.1)
        await wait_for(pilot, lambda: pilot.app.screen is form(pilot))
        await pilot.press("q")
        await wait_for(pilot, lambda: pilot.app._exit)
