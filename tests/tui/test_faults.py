"""Exceptions that nobody expected: they end what has failed and not the application; under tests they are noticed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen
from textual.widgets import Label, Static
from textual.worker import WorkerFailed

from tests.doors.tui import AppScreen, Faults, FollowingScreen, Header, KeyFooter, in_background, keys
from tests.support.form_pilot import told
from tests.support.tiny import Tiny, wait_for


class Painting(Static):
    fails = False

    def render(self) -> Any:
        if Painting.fails:
            raise ZeroDivisionError("painting")
        return super().render()


class Failing(AppScreen):
    """A screen with a key for each way to fail, and one that works."""

    BINDINGS: ClassVar[list[BindingType]] = [*((key, f"fail('{key}')") for key in "mtwabp"), ("k", "work", "Work")]

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
