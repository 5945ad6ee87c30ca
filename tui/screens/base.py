"""The bases of all screens. One that follows files or the machine reads in a thread; each reading comes as one message,
becomes the reactive `latest`, and is shown. No screen ever waits for a disk or a driver."""

from __future__ import annotations

import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Horizontal
from textual.message import Message
from textual.reactive import var
from textual.screen import ModalScreen
from textual.widget import Widget
from textual.widgets import Static

from ...engine.files.places import home
from ..base.base_app import BaseApp
from ..base.errors import clean
from ..base.glyphs import Glyphs, glyphs_of
from ..base.keys import VERBS, key_of, keys_of
from ..upstream.textual_app import Keepable
from ..upstream.textual_widgets import StyledOnce
from ..widgets.key_footer import KeyFooter, ScreenTab, ScreenTabs
from . import catalogue

LEAST_TITLE = 20  # columns of a title, before the queue is named
STALE_SECONDS = 1.0  # a screen that was hidden for longer says that it is catching up


class Header(Horizontal):
    """The first line of a screen: the tabs of the screens that open from everywhere, then the widget `title`."""

    app: BaseApp
    DEFAULT_CSS = """
    Header {
        height: 1; background: $panel;
        #title { width: 1fr; height: 1; padding: 0 1 0 2; background: $panel; }
        #queue { display: none; width: auto; height: 1; padding: 0 1; background: $panel; color: $text-primary;
                 text-wrap: nowrap; }
    }
    """

    def __init__(self, title: Widget | None = None) -> None:
        super().__init__()
        self._title = title

    def compose(self) -> ComposeResult:
        listed = catalogue.places()
        tabs = [ScreenTab(entry.name, VERBS[entry.verb].label, key_of(self.app, entry.verb)) for entry in listed]
        yield ScreenTabs(tabs, catalogue.place_of(self.screen), "live")
        if self._title is not None:
            yield self._title
        yield Static(id="queue", markup=False)

    def on_mount(self) -> None:
        self.watch(self.app, "queue_words", self.on_resize)
        self.watch(self.app, "running_count", self.on_resize)

    @on(events.Click, "#queue")
    async def _show_runs(self) -> None:
        await self.app.run_action("app.show('runs')")

    def on_resize(self) -> None:
        """Show the number of running runs, and the longest of the texts about what waits for which there is room."""
        tabs = self.query_one(ScreenTabs)
        tabs.show(self.app.running_count)
        beside = tabs.get_content_width(self.size, self.size) + (LEAST_TITLE if self._title is not None else 0) + 2
        words = self.app.queue_words
        text = next((text for text in words if len(text) <= self.app.size.width - beside), "")
        queue = self.query_one("#queue", Static)
        queue.display = bool(text)
        queue.update(text)


Reading = TypeVar("Reading")


class AppScreen(StyledOnce, Keepable):
    app: BaseApp
    # Further verbs, which the screen does not have, of which it says why their keys have no effect.
    EXPLAINED: ClassVar[tuple[str, ...]] = ()
    _offered_by: tuple[object, ...] = ()

    @property
    def glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    @property
    def in_front(self) -> bool:
        """True if no other screen lies over this screen. Dialogs and the help do not count."""
        whole = (screen for screen in reversed(self.app.screen_stack) if not isinstance(screen, ModalScreen))
        return next(whole, None) is self

    def on_mount(self) -> Awaitable[None] | None:  # Textual calls it in addition to the method of a derived class
        self.watch(self.app, "theme", self._theme_changed, init=False)
        return None

    def _theme_changed(self) -> None:
        if self.in_front and self.is_attached:
            self.call_after_refresh(self.show_again)  # when the variables of the new theme are made

    def on_resize(self) -> None:
        self.show_again()

    def show_again(self) -> None:
        """Paint again for another size or theme, or as the screen is in front again. By default nothing is done."""

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool | None:
        return self.can(action) is True

    def can(self, _action: str) -> bool | str:
        """Return True if the action has an effect now, else the reason why not; False if that is obvious or unknown."""
        return True

    def offer_by(self, *facts: object) -> None:
        """Make the footer again if a fact has changed on which the offered keys depend."""
        if facts != self._offered_by:
            self._offered_by = facts
            self.refresh_bindings()

    def on_key(self, event: events.Key) -> None:
        """Answer a key of this screen that has no effect now, as nothing else says that it was seen."""
        if event.key in self.active_bindings:
            return
        bindings = (binding for base in type(self).__mro__ for binding in vars(base).get("BINDINGS", ()))
        actions = [(binding.id or "", binding.action) for binding in bindings if isinstance(binding, Binding)]
        actions = [
            (verb, action.partition("(")[0])
            for verb, action in (*actions, *((verb, verb) for verb in self.EXPLAINED))
            if verb in VERBS and VERBS[verb].group == "Actions" and event.key in keys_of(self.app, verb)
        ]
        for verb, _ in actions[:1]:
            reason = next((f": {clean(why)}" for _, action in actions if isinstance(why := self.can(action), str)), "")
            self.notify(f"{key_of(self.app, verb)} ({VERBS[verb].label}) has no effect now{reason}", markup=False)

    def action_back(self) -> None:
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()


class FollowingScreen(AppScreen, Generic[Reading]):
    """A screen that shows readings. Subclasses make the readings in `readings`, which runs in a thread, and paint the
    newest reading, `latest`, in `show_latest`. If `FOLLOWS_COVERED` is set, the screen reads from its opening to its
    end, else only while `is_followed` is true."""

    FOLLOWS_COVERED: ClassVar[bool] = False

    latest: var[Reading | None] = var(None, init=False, always_update=True)

    @dataclass
    class Read(Message):
        """A reading was made. If several such messages wait, only the newest is used."""

        bubble = False

        reading: Any

        def can_replace(self, message: Message) -> bool:
            return isinstance(message, FollowingScreen.Read)

    def __init__(self) -> None:
        super().__init__()
        self._leaving = threading.Event()
        self._leaving.set()  # nothing is read before the screen is seen
        self._one_at_a_time = threading.Lock()
        self._hidden_since: float | None = None
        self.is_stale = False  # the newest reading is from before the screen was hidden
        self._has_failed = False  # the screen says that it cannot be drawn

    def readings(self, leaving: threading.Event) -> Iterator[Reading]:
        """Yield readings until nothing more can change or `leaving` is set. In a thread, which may wait for a disk."""
        raise NotImplementedError

    def show_latest(self) -> None:
        raise NotImplementedError

    def show_again(self) -> None:
        if self.latest is not None:
            self.show_latest()

    def _paint(self, paint: Callable[[], None]) -> None:
        """An older picture would be taken for the present one, so a screen that fails says so in place of its
        content."""
        failed = False
        try:
            paint()
        except Exception as error:
            if not self.app.continues_after(error, self):
                raise
            failed = True
        if failed == self._has_failed or not self.is_attached:
            return
        self._has_failed = failed
        for widget in self.children:
            widget.visible = not failed or isinstance(widget, Header | KeyFooter)
        if failed:
            text = f"This view cannot be drawn. The reason is in {home() / 'tui.log'}."
            self.mount(Static(text, id="failed", markup=False), after=self.query_one(Header))
        else:
            self.query("#failed").remove()

    @property
    def is_followed(self) -> bool:
        """True if it is in front, `FOLLOWS_COVERED`, or a screen over it shows a part of its readings."""
        over = any(getattr(screen, "source", None) is self for screen in self.app.screen_stack)
        return self.FOLLOWS_COVERED or self.in_front or over

    def read_again(self) -> None:
        """End the present readings and begin new ones at once, if the screen should read."""
        self._leaving.set()
        if self.is_followed:
            self._leaving = threading.Event()
            self._follow(self._leaving)

    @work(thread=True, group="reading", name="reading")
    def _follow(self, leaving: threading.Event) -> None:
        # The former readings end first, as a driver may be slow.
        app = self.app
        with self._one_at_a_time:
            for reading in self.readings(leaving):
                self.post_message(self.Read(reading))
                if not app.is_running:  # it has failed, and leaves no screen any more
                    leaving.set()

    def on_following_screen_read(self, message: FollowingScreen.Read) -> None:
        self.is_stale = False
        self.latest = message.reading

    def watch_latest(self) -> None:
        if self.in_front:
            self._paint(self.show_latest)

    def on_screen_resume(self) -> None:
        if not self.in_front:  # several screens were closed at once, and this was one of them
            return
        paused = self._leaving.is_set()  # else it only returned from a dialog or the help
        hidden_seconds = time.monotonic() - self._hidden_since if self._hidden_since is not None else 0.0
        self.is_stale = paused and self.latest is not None and hidden_seconds > STALE_SECONDS
        self._hidden_since = None
        if self.latest is not None:
            self._paint(self.show_again)
        if paused:
            self.read_again()

    def on_screen_suspend(self) -> None:
        if not self.is_followed:
            self._leaving.set()
            self._hidden_since = self._hidden_since or time.monotonic()

    def on_unmount(self) -> None:
        self._leaving.set()
