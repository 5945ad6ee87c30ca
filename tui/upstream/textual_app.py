"""The application, with functions that the public parts of Textual (8.2) do not offer. - Exceptions: Textual ends the
application with any exception of a screen, a widget, a timer or a worker. Waits for a method of `App` that gets the
exception and the node that failed, and decides whether the application continues. - Hidden screens: Textual takes the
screen below for one that is seen, even if the screen in front hides it, and paints all of the screen again whenever
something changes below. Waits for: an opaque screen hides all screens below it. - Focus: while the terminal has none,
Textual takes the focus from the widgets, and the footer would lose their keys. Waits for: a way to keep it. -
Notifications: waits for a method that withdraws one. - Keys: waits for a property with the keymap that `set_keymap` has
set, for the name that Textual gives to a character, and for no question about a key to a screen that is not built yet
or is being removed. - Styles: for each widget, Textual looks up all rules in a set, by a method of Python that returns
their `id`. Waits for rules with the hash of `object`, which is the same and takes a third of the time. - Sequences:
waits for a method that writes a control sequence to the terminal, as `bell` does."""

from __future__ import annotations

import math
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual._context import active_message_pump
from textual.app import App
from textual.css.model import RuleSet
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.keys import _character_to_key
from textual.message import Message
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.worker import WorkerFailed, get_current_worker

if TYPE_CHECKING:
    from textual.widget import Widget


RuleSet.__hash__ = object.__hash__  # type: ignore[method-assign]

Dispatch = Callable[[Message], Awaitable[None]]


class UpstreamApp(App[None]):
    """The base of the application. Subclasses decide which exceptions end it, and which line then stays."""

    def continues_after(self, _error: Exception, _node: MessagePump | None = None) -> bool:
        """True if the application continues after an exception of the node (None: that which handles a message)."""
        return False

    def last_line(self, error: BaseException) -> str:
        """Return the line that stays on the terminal if an exception ends the application."""
        raise NotImplementedError

    async def _guard(self, node: MessagePump, dispatch: Dispatch, message: Message) -> None:
        # An exception is raised again only if it must end the application.
        try:
            await dispatch(message)
        except Exception as error:
            if not self.continues_after(error, node):
                raise

    def _register_child(self, parent: DOMNode, child: Widget, before: int | None, after: int | None) -> None:
        # By `_guard` an exception does not end the handling of later messages. Textual calls this.
        super()._register_child(parent, child, before, after)
        vars(child)["_dispatch_message"] = partial(self._guard, child, child._dispatch_message)

    async def _dispatch_message(self, message: Message) -> None:
        await self._guard(self, super()._dispatch_message, message)

    def _check_action_state(self, action: str, default_namespace: DOMNode) -> bool | None:
        # Textual calls this; the screen may miss a widget that its `check_action` asks for.
        try:
            return super()._check_action_state(action, default_namespace)
        except NoMatches:
            return False

    def _handle_exception(self, error: Exception) -> None:
        # Textual calls this after an exception of a timer, a worker, painting, or `_guard`.
        if not self.continues_after(error):
            super()._handle_exception(error)

    def _fatal_error(self) -> None:
        # In place of Textual's traceback.
        error = sys.exception()
        assert error is not None
        self.panic(Text(self.last_line(error)))

    @property
    def _background_screens(self) -> list[Screen[Any]]:
        return [] if self.screen.styles.background.a == 1 else super()._background_screens

    def _watch_app_focus(self, _focus: bool) -> None:
        # Textual calls this. The focus within the screen stays.
        self.screen.update_node_styles()

    def withdraw(self, before: float = math.inf) -> None:
        """Remove the shown messages of severity information from before `before`, which are no longer true."""
        for notification in list(self._notifications):
            if notification.severity == "information" and notification.raised_at < before:
                self._unnotify(notification)

    def write_sequence(self, sequence: str) -> None:
        """Write a control sequence to the terminal, in the same way as Textual's bell and clipboard."""
        if (driver := self._driver) is not None:
            driver.write(sequence)
            driver.flush()


def keymap_of(app: App[Any]) -> Mapping[str, str]:
    """Return the keys that were set by `set_keymap`, by the id of the binding."""
    return app._keymap


def name_of(character: str) -> str:
    """Return Textual's name of the key for a character, such as slash."""
    return _character_to_key(character)


def failed_node(app: App[Any], error: Exception) -> MessagePump:
    """Return the node whose code has failed: the worker's, else the one that is handling a message now."""
    if isinstance(error, WorkerFailed):
        return get_current_worker().node
    return active_message_pump.get(app)


def is_built(node: MessagePump) -> bool:
    return node._is_mounted


def is_gone(app: App[Any], node: MessagePump) -> bool:
    """Return True if the node, or the whole application, is being removed."""
    if app._exit or app._closing:
        return True
    if isinstance(node, App) or not isinstance(node, DOMNode):
        return False
    above = node.ancestors_with_self
    return above[-1] is not app or any(each._closing or each._closed or each._pruning for each in above)


class Keepable:
    """Makes a screen stay built when it is closed, if its class sets `KEPT` and it has a name in `kept_as`."""

    KEPT: ClassVar[int] = 0  # the number of screens of this class that stay built
    kept_as = ""  # distinguishes the kept screens of this class; empty: this screen is removed when it is closed

    def opened_again(self, other: Any) -> None:
        """Take over the arguments of `other`, a new screen in whose place this kept screen is opened."""


class KeptScreens:
    def __init__(self, app: App[Any]) -> None:
        self._app = app
        self._screens: dict[str, Any] = {}  # each also a Keepable, by name, the one opened last at the end

    def open(self, screen: Screen[Any], instead: bool) -> None:
        """Open the screen or a kept one of its class and name, over the present one or `instead` of it."""
        name = f"{type(screen).__name__} {screen.kept_as}" if isinstance(screen, Keepable) and screen.kept_as else ""
        if (kept := self._screens.pop(name, None)) is not None:
            self._screens[name] = kept
            kept.opened_again(screen)
            if kept is self._app.screen:
                return
            # It may be below others in the stack. Kept screens that show its readings are taken out as well.
            stack = self._app._screen_stack
            for taken in [each for each in self._screens.values() if kept in (each, getattr(each, "source", None))]:
                if taken in stack:
                    stack.remove(taken)
                    taken._pop_result_callback()
        if instead:
            self._app.switch_screen(kept or screen)
        else:
            self._app.push_screen(kept or screen)
        if name and kept is None and isinstance(screen, Keepable):
            self._app.install_screen(screen, name)
            self._screens[name] = screen
            alike = [kept for kept in self._screens.values() if type(kept) is type(screen)]
            closed = [kept for kept in alike if kept not in self._app.screen_stack]
            for oldest in closed[: max(0, len(alike) - screen.KEPT)]:
                self.remove(oldest)

    def remove(self, screen: Screen[Any]) -> None:
        """Remove a closed screen and the screens that show its readings. Nothing happens if it is not kept."""
        if self._app.uninstall_screen(screen) is None:
            return
        self._screens = {name: kept for name, kept in self._screens.items() if kept is not screen}
        screen.remove()
        for kept in list(self._screens.values()):
            if getattr(kept, "source", None) is screen:
                self.remove(kept)
