"""Which keys act and which are refused, by the times at which they were typed: the application is a stand-in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from gputui.tui.upstream import typeahead
from gputui.tui.upstream.typeahead import Typeahead
from textual import events
from textual.screen import ModalScreen


class Place:
    """Stands in for a screen without a field, which has actions for some keys."""

    is_running: Any = False
    is_mounted: Any = True
    seen_after_seconds = 0.0
    active_bindings: Any = None
    focused: Any = None
    ancestors_with_self: Any = None

    def __init__(self, *actions: str) -> None:
        self.active_bindings = dict.fromkeys(actions)
        self.ancestors_with_self = [self]
        self.painted: list[Callable[[], None]] = []

    def call_after_refresh(self, callback: Callable[..., Any], *args: Any, **_: Any) -> bool:
        self.painted.append(lambda: callback(*args))
        return True


class Dialog(Place, ModalScreen[None]):
    def __init__(self, *actions: str) -> None:
        Place.__init__(self, *actions)


class Early:
    """Keys that arrive, at the times of `clock`, in an application whose screen a key of `opens` changes."""

    is_running = True

    def __init__(self, monkeypatch: pytest.MonkeyPatch, **opens: Any) -> None:
        self.clock, self.opens = [100.0], opens
        self.acted: list[str] = []
        self.named: list[str] = []
        self.workers: list[Any] = []
        self.screen: Any = Place("a", "b")
        self.answers = 0
        monkeypatch.setattr(typeahead, "time", SimpleNamespace(monotonic=lambda: self.clock[0]))
        for name in ("NAMED_AFTER_SECONDS", "SEEN_SECONDS"):
            monkeypatch.setattr(typeahead, name, 0.0)
        app: Any = self
        self.typed = Typeahead(app, self.hand_over, lambda key: key in opens, "r".__eq__, self.name, self.answer)

    @property
    def screen_stack(self) -> list[Any]:
        return [self.screen]

    @property
    def focused(self) -> Any:
        return self.screen.focused

    def call_later(self, done: Callable[..., Any], *given: Any) -> bool:
        async def call() -> None:
            outcome = done(*given)
            if asyncio.iscoroutine(outcome):
                await outcome

        self.task = asyncio.get_running_loop().create_task(call())
        return True

    async def hand_over(self, event: Any) -> None:
        self.acted.append(event.key if isinstance(event, events.Key) else f"paste {event.text}")
        if self.acted[-1] in self.opens:
            self.screen = self.opens[self.acted[-1]]
            self.typed.comes_to_the_front(self.screen)

    def name(self, unused: list[events.Key]) -> None:
        self.named.append(" ".join(key.key for key in unused))

    def answer(self) -> None:
        self.answers += 1

    async def press(self, *keys: tuple[str, float]) -> tuple[list[str], list[str]]:
        """Type the keys at their times, each when the one before has had its effect. Returns those that acted and those
        that were named as without effect.
        """
        self.acted, self.named = [], []
        for key, at in keys:
            self.clock[0] = max(self.clock[0], at)
            await self.typed.take(typed(key, at))
            await self.rest()
        return self.acted, self.named

    async def rest(self) -> None:
        for _ in range(100):
            await asyncio.sleep(0)


def typed(key: str, at: float) -> events.Key:
    event = events.Key(key, key if len(key) == 1 else None)
    event.time = at
    return event


async def test_after_a_key_without_effect_only_keys_after_a_pause_act(monkeypatch: pytest.MonkeyPatch) -> None:
    early = Early(monkeypatch)
    assert not early.typed.busy
    assert await early.press(("a", 100.0), ("b", 100.1)) == (["a", "b"], [])
    assert early.answers > 0
    early.typed.refuse(typed("x", 101.0))
    assert early.typed.busy, "the message is still to be shown"
    await early.rest()
    assert early.named == ["x"]
    assert await early.press(("a", 101.5), ("b", 102.0), ("a", 102.59), ("b", 103.2)) == (["b"], ["a", "b", "a"])
    early.clock[0] = 103.3
    early.typed.refuse(typed("x", 103.3))
    await early.rest()
    for early.clock[0], busy in ((103.89, True), (103.91, False)):
        assert early.typed.busy is busy
    early.typed.refuse(typed("x", 104.0), until=110.0)
    assert await early.press(("a", 110.5), ("a", 111.2)) == (["a"], ["x a"])
    early.typed.refuse(typed("x", 112.0))
    assert await early.press(("escape", 112.1), ("a", 112.2)) == (["escape", "a"], ["x"]), "Escape ends it"


async def test_a_key_that_is_held_down_acts_again_and_letters_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    early = Early(monkeypatch)
    early.typed.refuse(typed("up", 100.0))
    assert await early.press(("up", 100.3), ("up", 100.59), ("up", 100.61)) == (["up"], ["up up", "up"])
    early.typed.refuse(typed("x", 200.0))
    assert await early.press(("x", 200.3), ("x", 200.59), ("x", 200.61)) == ([], ["x x", "x", "x"])
    early.typed.refuse(typed("up", 300.0))
    assert await early.press(("down", 300.3), ("up", 300.61), ("up", 300.95)) == ([], ["up down", "up", "up"])
    assert await early.press(("up", 301.22)) == (["up"], [])


async def test_a_paste_and_ctrl_q_always_act(monkeypatch: pytest.MonkeyPatch) -> None:
    early = Early(monkeypatch)
    early.typed.refuse(typed("x", 100.0))
    paste = events.Paste("text")
    paste.time = 100.1
    await early.typed.take(paste)
    await early.typed.take(typed("a", 100.2))
    await early.typed.take(typed("ctrl+q", 100.2))
    await early.rest()
    assert early.acted == ["paste text", "ctrl+q"], "what was held back is dropped"


@pytest.mark.parametrize(
    ("opened", "keys", "acted"),
    [
        (Place("a"), (("f5", 100.0), ("a", 100.0)), ["f5", "a"]),
        (Place("b"), (("f5", 100.0), ("a", 100.0)), ["f5"]),
        (Place("a", "b"), (("f5", 100.0), ("a", 100.0), ("b", 100.0)), ["f5"]),
        (Place("up"), (("f5", 100.0), ("up", 100.0)), ["f5", "up"]),
        (Place(), (("f5", 100.0), ("up", 100.0)), ["f5", "up"]),
        (Place(), (("f5", 100.0), ("backspace", 100.0)), ["f5"]),
        (Dialog("a"), (("f5", 100.0), ("a", 100.0)), ["f5"]),
    ],
)
async def test_a_key_typed_right_after_the_key_of_a_place_acts_there_if_it_is_alone(
    opened: Any, keys: Any, acted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    early = Early(monkeypatch, f5=opened)
    for key, at in keys:
        await early.typed.take(typed(key, at))
    early.clock[0] = 100.2
    await early.rest()
    assert early.acted == acted
    assert "".join(early.named) == " ".join(key for key, _ in keys if key not in acted)


async def test_keys_pressed_after_one_that_leads_back_to_a_known_screen_wait_and_act(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    early = Early(monkeypatch, q=Dialog())
    below = early.screen
    early.screen.is_running = True
    assert await early.press(("a", 100.0), ("q", 101.0)) == (["a", "q"], [])
    early.opens = {"q": below}
    early.acted = []
    for key, at in (("q", 103.0), ("a", 103.005), ("a", 103.9), ("b", 104.3)):
        await early.typed.take(typed(key, at))
    early.clock[0] = 104.5  # the dialog was closed only now
    await early.rest()
    assert (early.acted, early.named) == (["q", "a", "b"], ["a"]), "only what came in one packet is dropped"


@pytest.mark.parametrize(
    ("text", "acted"),
    [(["r", "u", "n"], ["u", "n"]), (["a", "r"], ["a"]), (["enter", "r"], ["enter", "r"]), (["r"], ["r"])],
)
async def test_a_paste_that_the_terminal_does_not_mark_starts_nothing(
    text: list[str], acted: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(typeahead, "PAUSE_SECONDS", 0.0)
    early = Early(monkeypatch)
    for number, key in enumerate(text):
        await early.typed.take(typed(key, 100.0 + number * 0.001))
    await asyncio.sleep(0.02)
    await early.rest()
    assert (early.acted, early.named) == (acted, ["r"] * ("r" not in acted))


async def test_a_key_waits_until_the_widget_with_the_focus_is_built(monkeypatch: pytest.MonkeyPatch) -> None:
    early = Early(monkeypatch)
    await early.press(("b", 100.0))
    early.screen.focused = field = Place()
    field.is_mounted = False
    assert await early.press(("a", 101.0)) == ([], [])
    field.is_mounted = True
    await early.rest()
    assert (early.acted, early.named) == (["a"], [])


async def test_a_question_must_have_been_seen_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    question = Place("a")
    question.seen_after_seconds = 0.5
    early = Early(monkeypatch, f5=question)
    await early.press(("f5", 100.0))
    early.clock[0] = 100.4
    question.painted.pop()()
    assert await early.press(("a", 100.45)) == ([], ["a"])
    assert await early.press(("a", 101.1)) == (["a"], [])


async def test_keys_without_effect_are_named_together_soon_after_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    early = Early(monkeypatch)
    monkeypatch.setattr(typeahead, "NAMED_AFTER_SECONDS", 0.3)
    waits: list[float] = []
    cancelled: list[int] = []

    def call_later(seconds: float, _: Callable[[], None]) -> Any:
        waits.append(round(seconds, 3))
        number = len(waits)
        return SimpleNamespace(cancel=lambda: cancelled.append(number))

    monkeypatch.setattr(asyncio, "get_running_loop", lambda: SimpleNamespace(call_later=call_later))
    for at in (100.0, 101.0, 101.4, 103.0):
        early.clock[0] = at
        early.typed.refuse(typed("x", at))
    assert (waits, cancelled) == ([0.3, 0.3, 0.1, 0.0], [1, 2, 3])
