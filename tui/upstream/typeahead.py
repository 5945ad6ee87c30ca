"""Handles keys one at a time: the next key waits until the screen or field that the last key opens is ready. Keys may
arrive in bunches (a slow line, a busy machine), while the field, dialog or screen that a key opens takes a moment to
appear. Textual dispatches keys as they arrive, so that the rest of a bunch would act on the screen below. Here they act
in their order, each where the keys before it lead to. Waits for an event queue of Textual that holds keys until the
screens and fields opened by earlier keys are mounted."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker

from .thread_imports import raised

LIMIT_SECONDS = 10.0  # keys are held no longer than this; then they are dropped
DROPPED = "gputui was busy, and the keys pressed meanwhile were not used - press again"
FLUSH_SECONDS = 0.25  # a message pump that takes longer is asked again
AT_ONCE = "ctrl+q"  # leaving is always possible
# groups of workers that no key waits for
GOING_ON = {"reading", "machine", "checks", "offer", "warm", "sweeping", "copying", "running", "waiting"}


class Moment(NamedTuple):
    """Screen, focus and workers of the application at one time, to find out what an event has changed."""

    screen: Screen[Any] | None
    focused: Widget | None
    workers: frozenset[Worker[Any]]


class Typeahead:
    """Holds keys until earlier ones have taken effect. `hand_over` handles an event from the terminal."""

    def __init__(self, app: App[Any], hand_over: Callable[[events.Event], Awaitable[None]]) -> None:
        self._app, self._hand_over = app, hand_over
        self._held: deque[events.Key | events.Paste] = deque()
        self._settling: asyncio.Task[None] | None = None
        self.pressed_at = 0.0  # when the key or click that acts now was made, by `time.monotonic`

    @property
    def busy(self) -> bool:
        """True if a key would be held back now."""
        return self._settling is not None

    async def take(self, event: events.Key | events.Paste) -> None:
        """Handle a key or a paste or, if an earlier key is opening a screen or a field, hold it back until that is
        ready. Held keys are dropped after 10 s. Ctrl+Q is handled at once, and drops the held keys."""
        if isinstance(event, events.Key) and event.key == AT_ONCE:
            self._held.clear()
            await self.act(event)
            return
        self._held.append(event)
        await self._next()

    async def act(self, event: events.Event) -> None:
        """Handle a key or a click at once. Keys that follow wait until it has taken effect."""
        before, self.pressed_at = self._now(), event.time
        await self._hand_over(event)
        if self._settling is None:
            self._settling = asyncio.create_task(self._settle(before))

    async def _next(self) -> None:
        while self._held and self._settling is None:
            if self._ready():
                await self.act(self._held.popleft())
            else:
                self._settling = asyncio.create_task(self._settle(self._now()))

    def _now(self) -> Moment:
        screen = self._app.screen if self._app.screen_stack else None
        return Moment(screen, screen.focused if screen else None, frozenset(self._app.workers))

    async def _settle(self, before: Moment) -> None:
        """Wait until messages, screens and workers of an event are complete; then handle the next key."""
        until, target, seen = time.monotonic() + LIMIT_SECONDS, before.focused, tuple[object, ...]()
        try:
            while time.monotonic() < until:
                handled = [await _flush(node) for node in [*_upwards(target), *self._path()]]
                now = self._now()
                waits = self._waits_for(now, before)
                if all(handled) and now[:2] == seen and not waits and self._ready():
                    break
                seen, target = now[:2], None
                await asyncio.sleep(0.01 if waits else 0)
            else:  # the screen is no longer the one for which they were pressed
                if self._held:
                    self._app.notify(DROPPED)
                self._held.clear()
        except Exception as fault:  # noqa: BLE001 - raised again in the application, which logs it and continues
            self._app.call_later(raised, fault)
        finally:
            self._app.call_later(self._settled)  # else all later keys would be held forever

    async def _settled(self) -> None:
        self._settling = None
        await self._next()

    def _ready(self) -> bool:
        if not self._app.screen_stack or not self._app.screen.is_mounted:
            return False
        return self._app.focused is None or self._app.focused.is_mounted

    def _waits_for(self, now: Moment, before: Moment) -> bool:
        if now.screen is not before.screen or _is_field(now.focused):
            return False
        new = now.workers - before.workers
        return any(worker.group not in GOING_ON and not worker.is_finished for worker in new)

    def _path(self) -> Iterator[MessagePump]:
        if self._app.screen_stack:
            yield from _upwards(self._app.focused or self._app.screen)
        yield self._app


def _upwards(node: DOMNode | None) -> Iterator[MessagePump]:
    if node is not None:
        yield from (above for above in node.ancestors_with_self if not isinstance(above, App))


async def _flush(node: MessagePump) -> bool:
    """Wait until the node has handled its present messages. False if that takes longer than FLUSH_SECONDS."""
    handled = asyncio.Event()
    if not node.is_running or not node.call_later(handled.set):
        return True
    try:
        async with asyncio.timeout(FLUSH_SECONDS):
            await handled.wait()
    except TimeoutError:
        return False
    return True


def _is_field(widget: Widget | None) -> bool:
    return isinstance(widget, Input) or getattr(widget, "read_only", True) is False  # which only a TextArea has
