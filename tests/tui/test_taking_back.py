"""Taking acts back: the last one or one of the list, what is said of it, and what stays to be taken back."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.engine.presets.saving import SaveError
from gputui.engine.runs import RunError
from gputui.tui.base.undo import Act, Acts
from gputui.tui.screens import undoing
from gputui.tui.screens.undoing import UndoActions

from tests.support.answering import Answering, act


class Choosing(Answering):
    """Chooses from a list by the number, None for no choice. `offered` has the lines of each list."""

    def __init__(self, *answers: Any) -> None:
        super().__init__(*answers)
        self.offered: list[list[str]] = []

    async def push_screen_wait(self, screen: Any) -> Any:  # type: ignore[override]
        self.offered.append([f"{entry.name} | {entry.preview}" for entry in screen.offered])
        number = self.answers.pop(0)
        return None if number is None else screen.offered[number]


class Place(UndoActions):
    """A screen whose acts are taken back, which is not run."""

    def __init__(self) -> None:
        super().__init__()
        self.acts = Acts("nothing to take back here")
        self.seen: list[str] = []

    @property
    def acts_here(self) -> Acts:
        return self.acts

    def taken_back(self, act: Act) -> None:
        self.seen.append(act.what)

    def refresh_bindings(self) -> None:
        self.seen.append("keys")

    def call_later(self, do: Any, *given: Any) -> bool:
        do(*given)
        return True


@pytest.fixture
def app(monkeypatch: pytest.MonkeyPatch) -> Choosing:
    made = Choosing()
    monkeypatch.setattr(Place, "app", made, raising=False)
    monkeypatch.setattr(undoing, "time", SimpleNamespace(time=lambda: 1000.0))
    return made


def refusing(fault: Exception) -> Any:
    def take_back() -> Sequence[str]:
        raise fault

    return take_back


def whats(screen: Place) -> list[str]:
    return [each.what for each in screen.acts.newest_first]


def test_the_last_act_is_taken_back_and_said(app: Choosing) -> None:
    screen, done = Place(), list[str]()
    assert list(screen.keys_without_use) == ["undo", "undo_list"]
    screen.did("moved one", lambda: done.append("one"))
    screen.did("moved two\x1b", lambda: done.append("two"), "two is back\x1b", "key")
    assert (screen.seen, list(screen.keys_without_use)) == (["keys"] * 2, [])
    assert screen.acts.newest_first[0].key == "key"
    for what, message in (("moved two\x1b", "two is back?"), ("moved one", "taken back: moved one")):
        screen.seen.clear()
        act(screen, "take_back")
        assert (screen.seen, app.told.pop()) == ([what, "keys"], f"{message} (information)")
    assert (done, whats(screen)) == (["two", "one"], [])
    for action in ("take_back", "undo_list"):
        act(screen, action)
        assert app.told.pop() == "nothing to take back here (information)"
    assert (app.told, app.offered) == ([], [])


def test_an_act_that_can_be_taken_back_only_in_part_says_why_and_stays(app: Choosing) -> None:
    screen = Place()
    screen.did("deleted two", lambda: ["one is in use\x1b", "two is gone"], "they were restored")
    act(screen, "take_back")
    assert app.told == ["one is in use? (error)", "two is gone (error)"]
    assert (whats(screen), screen.seen) == (["deleted two"], ["keys", "deleted two", "keys"])


@pytest.mark.parametrize("fault", [RunError("it is gone"), SaveError("it is gone"), OSError("it is gone")])
def test_an_act_that_cannot_be_taken_back_makes_room_for_the_one_before_it(app: Choosing, fault: Exception) -> None:
    screen = Place()
    screen.did("moved one", lambda: None)
    screen.did("moved two", lambda: None)
    screen.did("deleted three", refusing(fault))
    screen.seen.clear()
    act(screen, "take_back")
    assert (app.told, screen.seen) == (["not taken back: it is gone (error)"], [])
    assert whats(screen) == ["moved two", "moved one", "deleted three"]
    act(screen, "take_back")
    assert (app.told[1:], whats(screen)) == (["taken back: moved two (information)"], ["moved one", "deleted three"])


def test_an_act_of_the_list_is_taken_back_and_the_others_stay(app: Choosing) -> None:
    screen = Place()
    for number, at in enumerate((1.0, 940.0, 999.0)):
        screen.did(f"act {number}", lambda: None)
        object.__setattr__(screen.acts.newest_first[0], "at", at)
    for chosen, left in ((None, ["act 2", "act 1", "act 0"]), (1, ["act 2", "act 0"]), (1, ["act 2"])):
        app.answers = [chosen]
        act(screen, "undo_list")
        assert whats(screen) == left
    assert app.offered[0] == ["act 2 | 0:01 ago", "act 1 | 1:00 ago", "act 0 | 16:39 ago"]
    assert app.told == ["taken back: act 1 (information)", "taken back: act 0 (information)"]


def test_the_chosen_act_is_taken_back_also_if_another_was_done_meanwhile(
    app: Choosing, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen, choose = Place(), Choosing.push_screen_wait
    for number in (1, 2):
        screen.did(f"act {number}", lambda: None)

    async def meanwhile(app: Choosing, offered: Any) -> Any:
        screen.did("act 3", lambda: None)
        return await choose(app, offered)

    monkeypatch.setattr(Choosing, "push_screen_wait", meanwhile)
    app.answers = [0]
    act(screen, "undo_list")
    assert whats(screen) == ["act 3", "act 1"]


def test_acts_without_a_time_have_none(app: Choosing) -> None:
    app.answers = [1, None]
    for chosen in (1, None):
        assert asyncio.run(undoing.choose(app, [("a", 0.0), ("b", 0.0)])) == chosen
    assert app.offered == [["a | ", "b | "]] * 2
