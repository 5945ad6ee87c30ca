"""Handles keys one at a time: the next key waits until the screen or field that the last key opens is ready. Keys may
arrive in bunches (a paste, a slow line, a busy machine), while the field, dialog or screen that a key opens takes a
moment to appear. Textual dispatches keys as they arrive, so that the rest of a bunch would act on the screen below.
Here keys are held until the new screen or field is ready. Text goes into its field. A letter that was typed before the
screen was visible has no effect, nor have keys that follow it without a pause. There are two exceptions. If a key leads
back to a screen that its user has seen, keys pressed after it act there, unless they arrived in one packet with it. A
single letter right after the key that opens a screen of the header is meant for that screen. Escape always works, since
it only leaves. A letter that starts a training has no effect if it arrives in one packet with other text: that is a
paste of a terminal that does not mark pastes. The last line of the screen names the keys without effect. Waits for an
event queue of Textual that holds keys until the screens and fields opened by earlier keys are mounted."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

from textual import events
from textual.app import App
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.screen import ModalScreen, Screen
from textual.widget import Widget
from textual.widgets import Input
from textual.worker import Worker

from ...engine.frozen import dataclass

LIMIT_SECONDS = 10.0  # keys are held no longer than this; then they are dropped
PACKET_SECONDS = 0.01  # no hand presses keys so soon after each other
PAUSE_SECONDS = 0.6  # a key that follows one without effect sooner may have been typed together with it
NAMED_AFTER_SECONDS = 0.3  # the keys without effect are named together
NAMED_WITHIN_SECONDS = 1.5  # of the first of them, even if more arrive
SEEN_SECONDS = 0.03  # two frames: a place that is mounted has been painted
FLUSH_SECONDS = 0.25  # a message pump that takes longer is asked again
AT_ONCE = "ctrl+q"  # leaving is always possible
# groups of workers that no key waits for
GOING_ON = {"reading", "machine", "checks", "offer", "warm", "sweeping", "copying", "running", "waiting", "closer"}
ERASING = ("backspace", "delete")

Typed = events.Key | events.Paste


@dataclass(frozen=True)
class Place:
    """The screen that keys go to, and its field that takes text (None if no field has the focus)."""

    screen: Screen[Any] | None = None
    field: Widget | None = None


@dataclass(frozen=True)
class Held:
    """A key or a paste that waits until earlier keys have been handled."""

    event: Typed
    changes: int  # of the place, when it arrived
    behind_place: bool  # it came right after the key that opens a place
    behind: Typed | None  # what arrived before it, in the same packet
    has_waited: bool = False  # for text that arrives together with it


@dataclass(frozen=True)
class Moment:
    """The screen, the focused widget and the workers of the application at one time, to find out what an event has
    changed."""

    screen: Screen[Any] | None
    focused: Widget | None
    workers: frozenset[Worker[Any]]


class Typeahead:
    """Holds keys back until the effects of earlier keys are complete. `hand_over` is the application's handler for an
    event from its terminal. `opens_place` returns True if a key opens one of the screens that the header lists,
    `starts` if it may start a training. `name_unused` shows the keys that had no effect. `answered` is called if no key
    waits any more, and what the keys have changed is painted."""

    def __init__(
        self, app: App[Any], hand_over: Callable[[events.Event], Awaitable[None]],
        opens_place: Callable[[str], bool], starts: Callable[[str], bool],
        name_unused: Callable[[list[events.Key]], None], answered: Callable[[], None],
    ) -> None:  # fmt: skip
        self._app, self._hand_over = app, hand_over
        self._is_place_key, self._starts, self._name, self._answered = opens_place, starts, name_unused, answered
        self._held: deque[Held] = deque()
        self._opens_place = False  # whether the latest key is that of a place
        self._latest: Typed | None = None
        self._settling: asyncio.Task[None] | None = None
        self._place = Place()
        self._changes = 0  # of the place: a key that came before the last one was typed for another place
        self._seen_since: WeakKeyDictionary[Screen[Any], float] = WeakKeyDictionary()
        self._in_front_since = 0.0  # the screen
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
        ready. A key that was typed before its screen was visible may be refused. Held keys are dropped after 10 s.
        Ctrl+Q is handled at once, and drops the held keys."""
        if isinstance(event, events.Key) and event.key == AT_ONCE:
            self._held.clear()
            await self._watched(event)
            return
        if self._settling is None and self._ready():
            self._arrive()
        latest, self._latest = self._latest, event
        behind = latest if latest is not None and event.time - latest.time < PACKET_SECONDS else None
        self._held.append(Held(event, self._changes, self._opens_place, behind))
        self._opens_place = isinstance(event, events.Key) and self._is_place_key(event.key)
        await self._next()

    async def click(self, event: events.MouseUp) -> None:
        """Hold back the keys that follow a click until it has taken effect, as it may open a screen or a field."""
        await self._watched(event)

    async def _next(self) -> None:
        while self._held and self._settling is None:
            if not self._ready():
                self._settle_after(self._now())
                return
            held = self._held.popleft()
            if self._may_start(held.event) and not held.has_waited:
                self._held.appendleft(replace(held, has_waited=True))
                self._settling = asyncio.create_task(self._wait_for_packet())
                return
            ahead = held.changes != self._changes or held.event.time < self._in_front_since
            if self._meant(held.event, ahead=ahead and not self._for_this_place(held), pasted=self._is_pasted(held)):
                await self._watched(held.event)
        if self._is_at_rest:
            asyncio.get_running_loop().call_later(SEEN_SECONDS, self._at_rest)

    @property
    def _is_at_rest(self) -> bool:
        return not self._held and self._settling is None

    def _at_rest(self) -> None:
        if self._is_at_rest and self._app.is_running:
            self._answered()

    async def _watched(self, event: events.Event) -> None:
        before = self._now()
        await self._hand_over(event)
        if self._settling is None:
            self._settle_after(before, event)

    # ---- which events take effect ---------------------------------------------------------------

    def _meant(self, event: Typed, ahead: bool, pasted: bool) -> bool:
        """True if the event is meant for the present screen or field; else it is refused. `ahead`: typed before that
        was visible."""
        if isinstance(event, events.Paste):
            return True
        if event.key == "escape":
            self._refused = -PAUSE_SECONDS
            return True
        command = event.is_printable or event.key in ERASING
        blind = ahead and command and not _written(self._app.focused, event)
        if self._unseen(event) or blind or pasted or event.time - self._refused < PAUSE_SECONDS:
            self.refuse(event)
            return False
        return True

    def _may_start(self, event: Typed) -> bool:
        if not isinstance(event, events.Key) or not event.is_printable:
            return False
        return self._starts(event.key) and not _written(self._app.focused, event)

    def _is_pasted(self, held: Held) -> bool:
        after = self._held[0] if self._held and self._held[0].behind is held.event else None
        return self._may_start(held.event) and (_is_text(held.behind) or (after is not None and _is_text(after.event)))

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

    def _unseen(self, event: events.Key) -> bool:
        screen = self._app.screen
        seconds = getattr(screen, "seen_after_seconds", 0.0)
        return seconds > 0 and event.time - self._seen_since.get(screen, event.time) < seconds

    def _for_this_place(self, held: Held) -> bool:
        # A single key typed right after the one that opened this screen, with an action there. Never for a dialog.
        screen = self._app.screen
        alone = held.behind_place and not self._held and not isinstance(screen, ModalScreen)
        return alone and isinstance(held.event, events.Key) and held.event.key in screen.active_bindings

    def comes_to_the_front(self, screen: Screen[Any]) -> None:
        """Record that the screen is in front: keys that were typed earlier were meant for another."""
        self._in_front_since = time.monotonic()
        screen.call_after_refresh(self._painted, screen)

    def _painted(self, screen: Screen[Any]) -> None:
        self._seen_since.setdefault(screen, time.monotonic())

    def _arrive(self) -> None:
        place = Place(self._app.screen, self._app.focused if _is_field(self._app.focused) else None)
        if place != self._place:
            self._place = place
            self._seen_since.setdefault(self._app.screen, time.monotonic())
            self._changes += 1

    # ---- waiting --------------------------------------------------------------------------------

    def _now(self) -> Moment:
        screen = self._app.screen if self._app.screen_stack else None
        return Moment(screen, screen.focused if screen else None, frozenset(self._app.workers))

    async def _wait_for_packet(self) -> None:
        await asyncio.sleep(PACKET_SECONDS)
        self._app.call_later(self._settled)  # after the keys that have arrived

    def _settle_after(self, before: Moment, event: events.Event | None = None) -> None:
        self._settling = asyncio.create_task(self._settle(before, event))

    async def _settle(self, before: Moment, event: events.Event | None) -> None:
        """Wait until messages, screens and workers of an event are complete, at most LIMIT_SECONDS; then handle the
        next key."""
        until, target = time.monotonic() + LIMIT_SECONDS, before.focused
        arriving = asyncio.create_task(self._arrive_early())
        try:
            await self._come_to_rest(before, until, target)
        except Exception as fault:  # noqa: BLE001 - raised again in the application, which logs it and continues
            self._app.call_later(_raise, fault)
        finally:
            arriving.cancel()
            if arriving.done() and not arriving.cancelled() and (failed := arriving.exception()) is not None:
                self._app.call_later(_raise, failed)
            self._app.call_later(self._settled, event)  # else all later keys would be held forever

    async def _come_to_rest(self, before: Moment, until: float, target: Widget | None) -> None:
        """Wait until no messages and workers of the event are left; at `until` (monotonic) the held keys are
        dropped."""
        seen: tuple[object, ...] = ()
        while time.monotonic() < until:
            handled = [await _flush(node) for node in [*_upwards(target), *self._path()]]
            now = self._now()
            waits = self._waits_for(now, before)
            if all(handled) and (now.screen, now.focused) == seen and not waits and self._ready():
                break
            seen, target = (now.screen, now.focused), None
            await asyncio.sleep(0.01 if waits else 0)
        else:
            self._drop()

    def _drop(self) -> None:
        # The user may still be typing, and sees only now that they are lost.
        while self._held:
            if isinstance(key := self._held.popleft().event, events.Key):
                self.refuse(key, until=time.monotonic())

    async def _arrive_early(self) -> None:
        # It may still load data, or the last place is being removed.
        while True:
            await asyncio.sleep(SEEN_SECONDS)
            if self._ready():
                self._arrive()

    async def _settled(self, event: events.Event | None = None) -> None:
        """Keys after `event` are meant for the present screen if that was seen before; after Escape, also in one
        packet."""
        self._settling = None
        since = math.inf
        if self._ready():
            self._arrive()
            since = self._seen_since.get(self._app.screen, since)
        leaving = isinstance(event, events.Key) and event.key == "escape"
        if event is not None and (leaving or since < event.time):
            self._in_front_since = 0.0
            self._held = deque(
                replace(held, changes=self._changes) if leaving or held.behind is None else held for held in self._held
            )
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


def _raise(fault: BaseException) -> None:
    raise fault


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


def _is_text(event: Typed | None) -> bool:
    return isinstance(event, events.Key) and event.is_printable


def _is_field(widget: Widget | None) -> bool:
    return isinstance(widget, Input) or getattr(widget, "read_only", True) is False  # which only a TextArea has


def _written(widget: Widget | None, event: events.Key) -> bool:
    begins = getattr(widget, "begins_with", None)  # a widget that becomes a field with the first character
    return _is_field(widget) or (begins is not None and begins(event.character or ""))
