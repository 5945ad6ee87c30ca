"""Decides what follows an unexpected exception in a screen, a widget or a thread. Textual ends the application with any
such exception. But the user may be watching a run, so only the failed part ends: the traceback goes to tui.log, one
line on the screen names the fault, and everything else continues. An exception of a screen that is being removed, or of
an application that is being left, is only logged, as a thread, a timer or a message came too late. If it only misses a
widget, that is no fault. A screen that cannot be built, or that fails again and again, is closed. If it is the screen
at the bottom, the application ends, with one line on the terminal and exit code 1."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from textual.app import App
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.screen import ModalScreen, Screen
from textual.worker import WorkerFailed

from ...engine.files import places
from ..upstream.textual_app import failed_node, is_built, is_gone
from .errors import clean

TOO_MANY, WITHIN_SECONDS = 5, 10.0  # this many faults of a screen within this time close it
LOG_BYTES = 1_000_000  # a longer log is begun again


class Faults:
    """Counts and handles the unexpected exceptions of an application."""

    tolerated = True  # tests set it to False

    def __init__(self, app: App[Any], remove: Callable[[Screen[Any]], None]) -> None:
        """`remove` removes a closed screen that the application would keep."""
        self._app, self._remove = app, remove
        self._recent: WeakKeyDictionary[MessagePump, deque[float]] = WeakKeyDictionary()
        self._ended_by: Exception | None = None
        self.lines: list[str] = []  # shown so far

    def handled(self, error: Exception, node: MessagePump | None = None) -> bool:
        """Log an exception and show it in one line. False if the application has to end. `node` (None: to be found) has
        failed."""
        if error is self._ended_by:
            return False
        cause = error.error if isinstance(error, WorkerFailed) else error
        node = node or failed_node(self._app, error)
        if is_gone(self._app, node):
            if not isinstance(cause, NoMatches):  # its widgets are gone too
                self.log(cause)
        elif not self.tolerated or not self._can_go_on(node):
            self._ended_by = error
            return False
        else:
            self.log(cause)
            self._say(cause)
        return True

    def _can_go_on(self, node: MessagePump) -> bool:
        """True if a screen is still usable after a fault of `node`. Closes one that fails too often or cannot be
        built."""
        screen = _screen_of(node)
        being_built = node in (screen, self._app) and not is_built(node)
        if not self._is_too_much(screen or node, being_built):
            return True
        if screen is None or screen is self._app.screen_stack[0]:
            return False
        self._app.call_later(self._close, screen)
        return True

    def log(self, error: BaseException) -> Path:
        """Write the traceback to tui.log. Return the path of this file, also if it could not be written."""
        path = places.home() / "tui.log"
        with contextlib.suppress(OSError):
            path.parent.mkdir(parents=True, exist_ok=True)
            mode = "w" if path.exists() and path.stat().st_size > LOG_BYTES else "a"
            with path.open(mode, encoding="utf-8", errors="replace") as file:
                file.write(time.strftime("%Y-%m-%d %H:%M:%S\n") + "".join(traceback.format_exception(error)) + "\n")
        return path

    def _is_too_much(self, node: MessagePump, at_once: bool) -> bool:
        times = self._recent.setdefault(node, deque(maxlen=TOO_MANY))
        times.append(now := time.monotonic())
        return at_once or (len(times) == TOO_MANY and now - times[0] < WITHIN_SECONDS)

    def _say(self, error: BaseException) -> None:
        frames = traceback.extract_tb(error.__traceback__)
        where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
        line = clean(f"a part of gputui failed ({type(error).__name__}{where}); the rest goes on; please report ")
        if line not in self.lines:
            self.lines.append(line)
            self._app.notify(f"{line}{places.home() / 'tui.log'}", severity="error", markup=False)

    def _close(self, screen: Screen[Any]) -> None:
        while screen in self._app.screen_stack:
            above = self._app.screen
            if isinstance(above, ModalScreen):
                above.dismiss(None)
            else:
                self._app.pop_screen()
        self._remove(screen)


def _screen_of(node: MessagePump) -> Screen[Any] | None:
    if isinstance(node, Screen) or not isinstance(node, DOMNode) or isinstance(node, App):
        return node if isinstance(node, Screen) else None
    return next((above for above in node.ancestors if isinstance(above, Screen)), None)
