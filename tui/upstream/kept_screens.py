"""Keeps closed screens built (Textual: installed), so that they are painted at once when they are opened again. Waits
for a method that brings an open screen to the front, and for a number of screens from which on Textual removes the
oldest."""

from __future__ import annotations

from typing import Any, ClassVar

from textual.app import App
from textual.screen import Screen


class Keepable:
    """Makes a screen stay built when it is closed, if its class sets `KEPT` and it has a name in `kept_as`."""

    KEPT: ClassVar[int] = 0  # the number of screens of this class that stay built
    kept_as = ""  # distinguishes the kept screens of this class; empty: this screen is removed when it is closed

    def opened_again(self, other: Any) -> None:
        """Take over the arguments of `other`, a new screen in whose place this kept screen is opened."""


class KeptScreens:
    """The screens of an application that stay built."""

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
            self._take_out(kept)
        if instead:
            self._app.switch_screen(kept or screen)
        else:
            self._app.push_screen(kept or screen)
        if name and kept is None:
            self._app.install_screen(screen, name)
            self._screens[name] = screen
            self._remove_oldest(type(screen))

    def _take_out(self, screen: Screen[Any]) -> None:
        # It is below others in the stack. Kept screens that show its readings are taken out as well.
        stack = self._app._screen_stack
        for taken in [kept for kept in self._screens.values() if screen in (kept, getattr(kept, "source", None))]:
            if taken in stack:
                stack.remove(taken)
                taken._pop_result_callback()

    def _remove_oldest(self, kind: type[Any]) -> None:
        alike = [kept for kept in self._screens.values() if type(kept) is kind]
        closed = [kept for kept in alike if kept not in self._app.screen_stack]
        for kept in closed[: max(0, len(alike) - kind.KEPT)]:
            self.remove(kept)

    def remove(self, screen: Screen[Any]) -> None:
        """Remove a closed screen and the screens that show its readings. Nothing happens if it is not kept."""
        if self._app.uninstall_screen(screen) is None:
            return
        self._screens = {name: kept for name, kept in self._screens.items() if kept is not screen}
        screen.remove()
        for kept in list(self._screens.values()):
            if getattr(kept, "source", None) is screen:
                self.remove(kept)
