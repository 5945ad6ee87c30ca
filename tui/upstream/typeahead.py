"""Handles keys one at a time: the next key waits until the screen or field that the last key opens is ready. Keys may
arrive in bunches (a paste, a slow line, a busy machine), while the field, dialog or screen that a key opens takes a
moment to appear. Textual dispatches keys as they arrive, so that the rest of a bunch would act on the screen below.
Here they act in their order, each where the keys before it lead to. A key that answers a question before it could be
read has no effect, nor has a letter that starts a training and arrives in one packet with other text (a paste of a
terminal that does not mark pastes), nor have keys that follow such a key without a pause. Escape always works, since it
only leaves. The last line of the screen names the keys without effect. Waits for an event queue of Textual that holds
keys until the screens and fields opened by earlier keys are mounted."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

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
PACKET_SECONDS = 0.01  # no hand presses keys so soon after each other
PAUSE_SECONDS = 0.6  # a key that follows one without effect sooner may have been typed together with it
NAMED_AFTER_SECONDS = 0.3  # the keys without effect are named together
NAMED_WITHIN_SECONDS = 1.5  # of the first of them, even if more arrive
FLUSH_SECONDS = 0.25  # a message pump that takes longer is asked again
AT_ONCE = "ctrl+q"  # leaving is always possible
# groups of workers that no key waits for
GOING_ON = {"reading", "machine", "checks", "offer", "warm", "sweeping", "copying", "running", "waiting", "closer"}

Typed = events.Key | events.Paste


class Moment(NamedTuple):
    """The screen, the focused widget and the workers of the application at one time, to find out what an event has
    changed."""

    screen: Screen[Any] | None
    focused: Widget | None
    workers: frozenset[Worker[Any]]


class Typeahead:
    """Holds keys back until the effects of earlier keys are complete. `hand_over` is the application's handler for an
    event from its terminal. `starts` returns True if a key may start a training. `name_unused` shows the keys that had
    no effect."""

    def __init__(
        self, app: App[Any], hand_over: Callable[[events.Event], Awaitable[None]], starts: Callable[[str], bool],
        name_unused: Callable[[list[events.Key]], None],
    ) -> None:  # fmt: skip
        self._app, self._hand_over, self._starts, self._name = app, hand_over, starts, name_unused
        self._held: deque[Typed] = deque()
        self._former: Typed | None = None  # the event before the first that is held
        self._awaited: Typed | None = None  # the latest that may start a training, once its packet has arrived
        self._settling: asyncio.Task[None] | None = None
        self._seen_since: WeakKeyDictionary[Screen[Any], float] = WeakKeyDictionary()
        self._refused = -PAUSE_SECONDS  # when the latest key without effect arrived
        self._refused_key = ""
        self._unused: list[events.Key] = []  # keys without effect, until the screen has named them
        self._naming: asyncio.TimerHandle | None = None

    @property
    def busy(self) -> bool:
        """True if a key would be held back or have no effect now, or if a message about such keys is to be shown."""
        return self._settling is not None or bool(self._unused) or time.monotonic() - self._refused < PAUSE_SECONDS

    # ---- events from the terminal ---------------------------------------------------------------

    async def take(self, event: Typed) -> None:
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
        before = self._now()
        await self._hand_over(event)
        if self._settling is None:
            self._settling = asyncio.create_task(self._settle(before))

    async def _next(self) -> None:
        while self._held and self._settling is None:
            event = self._held[0]
            if not self._ready():
                self._settling = asyncio.create_task(self._settle(self._now()))
            elif self._may_start(event) and event is not self._awaited:
                self._awaited = event
                self._settling = asyncio.create_task(self._wait_for_packet())
            else:
                self._held.popleft()
                former, self._former = self._former, event
                if isinstance(event, events.Key) and event.key == "escape":
                    self._refused = -PAUSE_SECONDS
                elif isinstance(event, events.Key) and self._has_no_effect(event, former):
                    self.refuse(event)
                    continue
                await self.act(event)

    # ---- keys without effect ----------------------------------------------------------------------

    def _has_no_effect(self, event: events.Key, former: Typed | None) -> bool:
        screen = self._app.screen
        seen_after = getattr(screen, "seen_after_seconds", 0.0)
        unseen = seen_after > 0 and event.time - self._seen_since.get(screen, event.time) < seen_after
        beside = (former, self._held[0] if self._held else None)
        pasted = self._may_start(event) and any(
            isinstance(other, events.Key) and other.is_printable and abs(event.time - other.time) < PACKET_SECONDS
            for other in beside
        )
        return unseen or pasted or event.time - self._refused < PAUSE_SECONDS

    def _may_start(self, event: Typed) -> bool:
        if not isinstance(event, events.Key) or not event.is_printable or _is_field(self._app.focused):
            return False
        return self._starts(event.key)

    def refuse(self, event: events.Key, until: float = 0.0) -> None:
        """Record the key as one without effect, to be named in a message. Keys that follow without a pause, or before
        the time `until` (monotonic), have no effect, too."""
        at_once = event.time - self._refused < PAUSE_SECONDS
        if not (at_once and event.key == self._refused_key and not event.is_printable):
            self._refused = max(event.time, until)  # not for a key that is held down: it would never act
        self._refused_key = event.key
        self._unused.append(event)
        if self._naming is not None:
            self._naming.cancel()
        waits = min(NAMED_AFTER_SECONDS, max(0.0, self._unused[0].time + NAMED_WITHIN_SECONDS - time.monotonic()))
        self._naming = asyncio.get_running_loop().call_later(waits, self._name_unused)

    def _name_unused(self) -> None:
        unused, self._unused = self._unused, []
        if self._app.is_running and unused:
            self._name(unused)

    def comes_to_the_front(self, screen: Screen[Any]) -> None:
        screen.call_after_refresh(lambda: self._seen_since.setdefault(screen, time.monotonic()))

    # ---- waiting --------------------------------------------------------------------------------

    def _now(self) -> Moment:
        screen = self._app.screen if self._app.screen_stack else None
        return Moment(screen, screen.focused if screen else None, frozenset(self._app.workers))

    async def _wait_for_packet(self) -> None:
        await asyncio.sleep(PACKET_SECONDS)
        self._app.call_later(self._settled)  # after the keys that have arrived

    async def _settle(self, before: Moment) -> None:
        """Wait until messages, screens and workers of an event are complete, at most LIMIT_SECONDS; then handle the
        next key."""
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
            else:  # the user may still be typing, and sees only now that they are lost
                while self._held:
                    if isinstance(key := self._held.popleft(), events.Key):
                        self.refuse(key, until=time.monotonic())
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
