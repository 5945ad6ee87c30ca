"""Which keys act and which are refused, by the times at which they were typed: the application is a stand-in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from textual import events

from tests.doors.tui import Typeahead, typeahead


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
