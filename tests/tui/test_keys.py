"""Keys: one verb on every screen, other ones by the settings, and such as arrive together or in pieces."""

from __future__ import annotations

import asyncio
import inspect
import random
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from textual import events
from textual._ansi_sequences import ANSI_SEQUENCES_KEYS, IGNORE_SEQUENCE
from textual._xterm_parser import XTermParser
from textual.command import CommandPalette
from textual.drivers import linux_driver
from textual.message import Message
from textual.screen import Screen

from tests.doors.engine import launch, places
from tests.doors.tui import (
    PIECE_SECONDS,
    SEEN_AFTER_SECONDS,
    VERBS,
    Ask,
    FollowingScreen,
    GputuiApp,
    HelpScreen,
    LiveScreen,
    RunsScreen,
    TerminalDriver,
    TerminalInput,
    keys,
    starting,
    typeahead,
    working,
)
from tests.support import recorded
from tests.support.bursts import DOWN, ENTER, PALETTE, answered, burst
from tests.support.form_pilot import form, go, opened, seen, settled, told, write
from tests.support.recorded_proof import write_proof, write_search
from tests.support.tiny import wait_for


async def test_every_screen_keeps_to_the_grammar_in_its_keys_its_help_and_the_palette(home: Path) -> None:
    run = recorded.write(home, name="20260921-100000-cnn", gpus=2, seconds=40)
    other = recorded.write(home, name="20260921-110000-cnn", gpus=2, seconds=40, settings=("batch_size=256",))
    proof, search = write_proof(home), write_search(home)
    meant: dict[str, str] = {}
    async with opened((120, 40)) as pilot:
        app = pilot.app
        assert isinstance(app, GputuiApp)
        app.theme = "gputui"  # whatever suits the terminal of the tests
        ways: dict[str, Callable[[], Any]] = {
            "form": lambda: app.action_show("form"), "live": lambda: app.open_run(run),
            "diagnosis": lambda: app.screen.run_action("screen.diagnosis"),
            "chart": lambda: app.screen.source.open_chart("loss"),  # type: ignore[attr-defined]
            "runs": lambda: app.action_show("runs"), "compare": lambda: app.open_compare([run, other]),
            "proof": lambda: app.open_proof(proof),
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
            said = [line for lines in working(screen).values() for _, line in lines]
            assert len(said) == len(set(said)), f"{name}: {said}"
            titles = [command.title for command in app.get_system_commands(screen)]
            assert len(titles) == len(set(titles)), f"{name}: {titles}"
            await pilot.press("f1")
            assert isinstance(app.screen, HelpScreen)
            await pilot.press("q")
            assert app.screen is screen


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
        if binding.description and not binding.system and not taken:
            assert keys.shown(key) in listed, (screen, key)
        verb = VERBS.get(binding.id or "")
        if verb is not None and not verb.place:
            assert meant.setdefault(key, verb.id) == verb.id, (screen, key)
            if verb.group == "Actions":
                assert any(binding.description.lower() in title.lower() for title in commands), (screen, binding)


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
        await wait_for(pilot, "Make it faster  (T)")
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


@pytest.fixture
def started_of_tui_bursts(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What would have been done to trainings, instead of doing it."""
    from tests.doors.engine import runs

    done: list[str] = []

    def refuse(what: str) -> Any:
        def act(*given: Any, **named: Any) -> None:
            done.append(what)
            raise OSError(what)

        return act

    monkeypatch.setattr(starting, "start", refuse("start"))
    monkeypatch.setattr(launch, "start", refuse("start"))
    monkeypatch.setattr(runs, "request_stop", refuse("stop"))
    return done


async def test_a_question_is_answered_by_the_first_key_after_it_could_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if no key has opened it, but work in the background."""
    monkeypatch.setattr(Ask, "seen_after_seconds", SEEN_AFTER_SECONDS)
    answers: list[str | None] = []
    async with opened() as pilot:
        pilot.app.push_screen(Ask("Wait?", ("Wait for it", "Measure anyway", "Cancel")), answers.append)
        await wait_for(pilot, "Measure anyway")
        await pilot.pause(SEEN_AFTER_SECONDS)
        await burst(pilot, "m")
        await answered(pilot)
        assert answers == ["Measure anyway"]


async def test_keys_that_were_held_too_long_are_dropped_and_it_is_said(
    started_of_tui_bursts: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened() as pilot:
        with monkeypatch.context() as short:
            short.setattr(typeahead, "LIMIT_SECONDS", 0.3)
            form(pilot).call_later(asyncio.sleep, 1.0)
            await burst(pilot, DOWN, PALETTE, *"scaling", ENTER)
            await wait_for(pilot, lambda: "were not used" in told(pilot))
        await answered(pilot)
        assert pilot.app.screen is form(pilot)
        assert not started_of_tui_bursts
        await pilot.press("ctrl+p")  # again
        await wait_for(pilot, lambda: isinstance(pilot.app.screen, CommandPalette))


async def test_a_value_that_was_started_is_not_taken_back(started_of_tui_bursts: list[str]) -> None:
    async with opened() as pilot:
        await go(pilot, "input.batch_size")
        await burst(pilot, "128", "\x12")
        await wait_for(pilot, lambda: started_of_tui_bursts == ["start"])
        await pilot.press("escape")
        await answered(pilot)
        assert form(pilot).state.texts["input.batch_size"] == "128"


KEYS = [
    sequence
    for sequence, keys in ANSI_SEQUENCES_KEYS.items()
    if sequence[:2] in ("\x1b[", "\x1bO") and len(sequence) > 2 and keys is not IGNORE_SEQUENCE
]
MOUSE = ["\x1b[<35;120;40M", "\x1b[<0;5;7m", "\x1b[<64;33;21M"]
SLOW = (0.0, 0.15, 0.6)  # seconds between the pieces


class Line:
    """A terminal at the other end of a line whose packets take their time."""

    def __init__(self) -> None:
        self.now = 100.0
        self.parser = TerminalInput(clock=lambda: self.now)

    def send(self, *pieces: str, pause: float = 0.0) -> list[Message]:
        found: list[Message] = []
        for piece in pieces:
            found += self.parser.feed(piece)
            until = self.now + pause
            while self.now < until:
                self.now += 0.1
                found += self.parser.tick()
        self.now += PIECE_SECONDS + 0.1
        return found + list(self.parser.tick())


def keys_of(found: list[Message]) -> list[str]:
    return [event.key if isinstance(event, events.Key) else type(event).__name__ for event in found]


@pytest.mark.parametrize("pause", SLOW)
def test_a_cut_sequence_is_that_key_or_none(pause: float) -> None:
    for sequence in KEYS + MOUSE:
        whole = [key for key in keys_of(list(XTermParser().feed(sequence))) if key != "escape"]
        for at in range(1, len(sequence)):
            line = Line()
            found = keys_of(line.send(sequence[:at], sequence[at:], pause=pause))
            assert [key for key in found if key != "escape"] == whole, (sequence, at)
            assert keys_of(line.send("x")) == ["x"]


def test_the_driver_of_the_terminal_uses_this_parser(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(linux_driver), "XTermParser", XTermParser)
    monkeypatch.setattr(linux_driver.LinuxDriver, "run_input_thread", lambda _: None)
    TerminalDriver.run_input_thread(object.__new__(TerminalDriver))
    assert vars(linux_driver)["XTermParser"] is TerminalInput


def test_escape_and_letters_by_hand() -> None:
    line = Line()
    assert keys_of(line.send("\x1b", "r", pause=0.3)) == ["escape", "r"]
    assert keys_of(line.send("\x1b\x1b[B")) == ["escape", "down"]
    assert keys_of(line.send("\x1br")) == ["alt+r"]
    assert keys_of(line.send("\x1b", "[", pause=0.3)) == ["escape", "left_square_bracket"]
    assert keys_of(line.send("añ中\r")) == ["a", "ñ", "中", "enter"]


@pytest.mark.parametrize("seed", range(20))
def test_a_paste_is_one_text_however_it_is_cut(seed: int) -> None:
    chance = random.Random(seed)
    text = "train\nr s [A dd\x1b[3~ 201~ 256\n"
    sent, pieces = f"\x1b[200~{text}\x1b[201~", []
    while sent:
        at = chance.randrange(1, 9)
        pieces.append(sent[:at])
        sent = sent[at:]
    line = Line()
    # The first cut is within reach of the sequence that opens the paste; longer pauses come later.
    found = line.send(*pieces, pause=chance.choice((0.0, 0.15)))
    pasted = [event.text for event in found if isinstance(event, events.Paste)]
    assert pasted == [text.replace("\x1b", "")]
    assert [key for key in keys_of(found) if key not in ("escape", "Paste")] == []
    assert keys_of(line.send("x", "\x1b[B")) == ["x", "down"]


def test_a_paste_without_an_end_does_not_swallow_what_is_typed() -> None:
    line = Line()
    assert keys_of(line.send("\x1b[200~train")) == ["Paste"]
    assert keys_of(line.send("x")) == ["x"]
