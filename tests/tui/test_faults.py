"""Exceptions that nobody expected: they end what has failed and not the application; under tests they are noticed."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from gputui.tui.app import GputuiApp
from gputui.tui.base import keys
from gputui.tui.base.unexpected_errors import Faults
from gputui.tui.form.form_state import FormState
from gputui.tui.reading.run.reader import RunReader
from gputui.tui.screens.base import AppScreen, FollowingScreen, Header
from gputui.tui.screens.form.screen import FormScreen
from gputui.tui.screens.live.screen import LiveScreen
from gputui.tui.screens.runs.screen import RunsScreen
from gputui.tui.upstream.thread_imports import in_background
from gputui.tui.upstream.typeahead import Typeahead
from gputui.tui.widgets.key_footer import KeyFooter
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import VerticalScroll
from textual.pilot import Pilot
from textual.screen import Screen
from textual.widgets import Label, Static
from textual.worker import WorkerFailed

from tests.support import recorded
from tests.support.bursts import DOWN, F4, answered, burst
from tests.support.form_pilot import told
from tests.support.tiny import Tiny, text_of, wait_for


class Painting(Static):
    fails = False

    def render(self) -> Any:
        if Painting.fails:
            raise ZeroDivisionError("painting")
        return super().render()


class Failing(AppScreen):
    """A screen with a key for each way to fail, and one that works."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *((key, f"fail('{key}')") for key in "mtwabp"),
        ("k", "work", "Work"),
    ]

    def compose(self) -> ComposeResult:
        yield Label("nothing", id="done")
        yield Painting("picture", id="picture")

    def action_fail(self, how: str) -> None:
        ways: dict[str, Callable[[], Any]] = {
            "m": self._fail,
            "t": lambda: self.set_interval(0.01, self._fail, repeat=1),
            "w": self._in_a_thread,
            "a": self._in_a_worker,
            "b": lambda: in_background(self, self._fail, print),
            "p": self._paint,
        }
        ways[how]()

    def _fail(self) -> None:
        raise ZeroDivisionError("of a test")

    @work(thread=True)
    def _in_a_thread(self) -> None:
        self._fail()

    @work
    async def _in_a_worker(self) -> None:
        self._fail()

    def _paint(self) -> None:
        Painting.fails = True
        self.query_one("#picture").refresh()

    def action_work(self) -> None:
        label = self.query_one("#done", Label)
        label.update(str(label.content) + "+")


class Read(FollowingScreen[int]):
    """A screen that cannot draw its first reading, and asks for a widget that it does not have."""

    BINDINGS: ClassVar[list[BindingType]] = [keys.bind("stop", "none"), *keys.back()]

    def compose(self) -> ComposeResult:
        yield Header()
        yield Label("before", id="content")
        yield KeyFooter()

    def readings(self, _leaving: threading.Event) -> Iterator[int]:
        yield 0

    def show_latest(self) -> None:
        self.query_one("#content", Label).update(f"{1 / (self.latest or 0):.0f} drawn")

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool | None:
        return action != "none" or self.query_one("#content").display


class Unbuilt(AppScreen):
    def compose(self) -> ComposeResult:
        raise ZeroDivisionError("composing")


@pytest.fixture(autouse=True)
def painted_when_looked_at() -> None:
    """Painted as for a terminal: that may fail, too."""


@pytest.fixture
def going_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for a user, and not as in tests."""
    monkeypatch.setattr(Faults, "tolerated", True)
    monkeypatch.setattr(Painting, "fails", False)


def log(home: Path) -> str:
    path = home / "tui.log"
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize("way", list("mtwab"))
async def test_a_fault_in_a_test_is_noticed(way: str) -> None:
    async def fail() -> None:
        async with Tiny(Failing).run_test() as pilot:
            await pilot.press(way)
            await wait_for(pilot, lambda: pilot.app._exception is not None)

    with pytest.raises((ZeroDivisionError, WorkerFailed), match="of a test"):
        await fail()


@pytest.mark.usefixtures("going_on")
async def test_what_has_failed_is_said_and_logged_and_the_rest_goes_on(home: Path) -> None:
    async with Tiny(Failing).run_test(size=(160, 24)) as pilot:
        for count, way in enumerate("mtwa", 1):
            before = log(home).count("Traceback")
            await pilot.press(way)
            await wait_for(pilot, lambda before=before: log(home).count("Traceback") > before)  # type: ignore[misc]
            await pilot.press("k")
            await wait_for(pilot, f"nothing{'+' * count} ")
        assert "ZeroDivisionError in test_faults.py, line " in told(pilot)
        assert str(home / "tui.log") in told(pilot)
        assert told(pilot).count("\n") == 0, "one place in the code is said once"
    assert "in _in_a_thread" in log(home)
    assert not pilot.app.return_code


@pytest.mark.usefixtures("going_on")
async def test_a_view_that_cannot_be_drawn_says_so_in_its_place_until_it_can(home: Path) -> None:
    async with Tiny(Failing).run_test(size=(160, 24)) as pilot:
        screen = Read()
        await pilot.app.push_screen(screen)
        shown = await wait_for(pilot, f"This view cannot be drawn. The reason is in {home / 'tui.log'}.")
        assert "before" not in shown
        assert "x Stop" in shown
        screen.latest = 1
        assert "cannot be drawn" not in await wait_for(pilot, "1 drawn")
    assert log(home).count("Traceback") == 1


@pytest.mark.usefixtures("going_on")
async def test_a_reading_in_the_background_that_fails(home: Path) -> None:
    async with Tiny(Failing).run_test() as pilot:
        await pilot.press("b")
        await wait_for(pilot, lambda: "of a test" in log(home))
        await pilot.press("k")
        await wait_for(pilot, "nothing+")


@pytest.mark.usefixtures("going_on")
async def test_a_screen_that_is_of_no_use_is_closed(home: Path) -> None:
    """One that cannot be built at once, one that cannot be painted after a few tries."""
    async with Tiny(Failing).run_test(size=(160, 24)) as pilot:
        below = pilot.app.screen
        pilot.app.push_screen(Unbuilt())
        await wait_for(pilot, lambda: "composing" in log(home) and pilot.app.screen is below)
        pilot.app.push_screen(Failing())
        await wait_for(pilot, "nothing")
        await pilot.press("p")
        until = time.monotonic() + 60
        while pilot.app.screen is not below and time.monotonic() < until:
            pilot.app.screen.query("#picture").refresh()
            with contextlib.suppress(ZeroDivisionError):  # the pilot also paints by itself
                await pilot.pause(0.02)
        Painting.fails = False
        assert pilot.app.screen is below
        await pilot.press("k")
        await wait_for(pilot, "nothing+")


@pytest.mark.usefixtures("going_on")
async def test_without_a_screen_left_it_ends_with_one_line(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Bottomless(Tiny):
        def get_default_screen(self) -> Screen[Any]:
            return Unbuilt()

    async def end() -> None:
        async with app.run_test() as pilot:
            await wait_for(pilot, lambda: not app.is_running)

    app = Bottomless(Failing)
    with pytest.raises(ZeroDivisionError):
        await end()
    assert app.return_code == 1
    said = "".join(capsys.readouterr().err.split())  # the terminal wraps a long path
    assert said == f"gputuiendedbyanunexpectedZeroDivisionError;pleasereport{home / 'tui.log'}"
    assert "composing" in log(home)


async def test_what_comes_too_late_for_a_screen_concerns_nobody(home: Path) -> None:
    """Its screen, or the whole application, has gone while a thread worked: also under tests."""

    async def late(pilot: Pilot[None], leave: Callable[[], Any]) -> None:
        screen = pilot.app.screen
        screen.call_next(lambda: leave() and None)
        screen.call_next(screen.query_one("#done").mount, Label("too late"))
        screen.call_next(screen.query_one, "#never")
        await pilot.pause()

    async with Tiny(Failing).run_test() as pilot:
        pilot.app.push_screen(Failing())
        await pilot.pause()
        await late(pilot, pilot.app.pop_screen)
        assert text_of(pilot.app)
        await pilot.press("k")
        await wait_for(pilot, "nothing+")
        await late(pilot, pilot.app.exit)
    assert not pilot.app.return_code
    assert "MountError" in log(home)
    assert "NoMatches" not in log(home), "a widget that is gone is no fault"


async def test_a_preset_that_is_opened_while_the_form_is_built(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The form lies below a run that is watched, and is built when it comes to the front."""
    run = recorded.write(home, gpus=0, seconds=20)
    build = FormScreen.recompose

    async def build_late(form: FormScreen) -> None:
        form.load(FormState.first())
        await build(form)

    monkeypatch.setattr(FormScreen, "recompose", build_late)
    async with GputuiApp(watch=run).run_test() as pilot:
        await wait_for(pilot, "step 80")
        await pilot.press("f2")
        await wait_for(pilot, "quickstart")


async def test_the_live_view_of_eight_gpus_is_left_while_it_is_shown(home: Path) -> None:
    """Its cards are mounted when the first reading comes, which may be when the application is being left."""
    run = recorded.write(home, gpus=8, seconds=20)
    app = GputuiApp(watch=run)
    async with app.run_test(size=(120, 40)) as pilot:
        await wait_for(pilot, lambda: isinstance(app.screen, LiveScreen))
        screen = app.screen
        assert isinstance(screen, LiveScreen)
        app.exit()
        screen.post_message(LiveScreen.Read(RunReader(run).picture))
        screen.call_next(screen.query_one(VerticalScroll).mount, Label("late"))
    assert app.return_code == 0


async def test_the_list_of_runs_has_keys_before_its_table_is_built(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The line of keys asks for them as early as this on a busy machine."""
    answers: list[object] = []
    compose = RunsScreen.compose

    def asked_before(screen: RunsScreen) -> ComposeResult:
        answers.extend((screen.check_action("resume", ()), screen.offers("stop"), screen.run_meant))
        yield from compose(screen)

    monkeypatch.setattr(RunsScreen, "compose", asked_before)
    async with GputuiApp().run_test() as pilot:
        await pilot.app.push_screen(RunsScreen())
    assert answers == [True, False, None]


@pytest.mark.usefixtures("going_on")
async def test_keys_act_after_a_fault_while_keys_were_held(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fail(*_: Any) -> None:
        raise ZeroDivisionError("waiting")

    async with GputuiApp().run_test() as pilot:
        await answered(pilot)
        with monkeypatch.context() as failing:
            failing.setattr(Typeahead, "_come_to_rest", fail)
            await burst(pilot, DOWN)
            await wait_for(pilot, lambda: "ZeroDivisionError: waiting" in log(home))
        await burst(pilot, F4)
        await wait_for(pilot, lambda: pilot.app.screen is not pilot.app.screen_stack[0])
    assert not pilot.app.return_code
