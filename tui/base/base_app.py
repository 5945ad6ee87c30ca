"""The interface of the application for its screens, and their common services. Screens depend on this interface and not
on app.py, which knows all of them."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
import traceback
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from textual import events
from textual.app import App
from textual.binding import Binding
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.message_pump import MessagePump
from textual.notifications import SeverityLevel
from textual.reactive import Initialize, Reactive, var
from textual.screen import ModalScreen, Screen
from textual.scrollbar import ScrollBar, ScrollBarRender
from textual.worker import WorkerFailed

from ...engine.files import places
from ...engine.files.writing import write_atomically
from ..upstream.textual_app import KeptScreens, UpstreamApp, failed_node, is_built, is_gone
from ..upstream.thread_imports import import_one_at_a_time
from ..upstream.typeahead import Typeahead
from . import keys
from .errors import clean
from .glyphs import glyphs_of
from .settings import Settings
from .themes import CALM, THEMES, own_colours

if TYPE_CHECKING:
    from textual.driver import Driver
    from textual.theme import Theme

    from ...engine.options import Options
    from ...engine.process.launch import Warm
    from ...engine.proof.folder import Proof
    from ...engine.runs import Run
    from ...engine.runs.trash import Trash
    from ...engine.system.identity import Process
    from ..form.form_state import FormState


OWN_THEMES = {theme.name: theme for theme in THEMES}
NOTHING_TO_UNDO = {  # by the places whose acts can be taken back
    "runs": "nothing to take back: nothing was deleted, taken out of the queue, moved, named, noted or tagged here",
    "presets": "nothing to take back: no preset was deleted or written over here",
    "settings": "nothing to take back: no setting was changed here",
}
SHOWN_SECONDS = {"information": 4.0, "warning": 6.0, "error": 8.0}


@dataclass(frozen=True)
class Act:
    """An act and how it is taken back. `what` says in the past tense what was done. `take_back` is called in a thread;
    it returns the reasons for what could not be taken back, if any, and raises an exception with a sentence if nothing
    could. `done` is the message afterwards, by default made of `what`. `key` is the row that then gets the cursor."""

    what: str
    take_back: Callable[[], Sequence[str] | None]
    done: str = ""
    key: str = ""
    at: float = field(default_factory=lambda: time.time())

    @property
    def message(self) -> str:
        return self.done or f"taken back: {self.what}"


class Acts:
    """The acts of one place that can be taken back, the latest last. `nothing` is the message if there is none."""

    def __init__(self, nothing: str) -> None:
        self.nothing = nothing
        self._acts: list[Act] = []

    def add(self, what: str, take_back: Callable[[], Sequence[str] | None], done: str = "", key: str = "") -> None:
        """Add an act. `take_back` may return None for no reasons; the other parameters are those of `Act`."""
        self._acts.append(Act(what, take_back, done, key))

    @property
    def newest_first(self) -> list[Act]:
        return self._acts[::-1]

    def postpone(self, act: Act) -> None:
        """Put an act that cannot be taken back now below all others, so that `u` reaches these."""
        if act in self._acts:
            self._acts.remove(act)
            self._acts.insert(0, act)

    def take_back(self, act: Act) -> Sequence[str]:
        """Take the act back, and return the reasons for what could not be; then it stays in the list. In a thread."""
        reasons = act.take_back() or ()
        if not reasons and act in self._acts:
            self._acts.remove(act)
        return reasons


class PlainBar(ScrollBarRender):
    """A scrollbar drawn only with blanks, for terminals that cannot show block characters."""

    VERTICAL_BARS: ClassVar[list[str]] = [" "] * 8
    HORIZONTAL_BARS: ClassVar[list[str]] = [" "] * 8


def _first_theme(app: Any) -> str:
    return str(app.theme_at_start())


class BaseApp(UpstreamApp):
    """The application's interface for its screens. app.py implements what is only declared here."""

    open_run: Callable[[Run], None]  # the live view of a run, which may be running or finished
    open_compare: Callable[[list[Run]], None]  # the comparison of runs, whose order is that of its columns
    open_proof: Callable[[Proof], Any]  # the screen of a proof, which may be running or finished
    open_form: Callable[[Path], Any]  # with the preset of a file, after a question if unsaved changes would be lost
    show_in_form: Callable[[FormState], None]  # in place of the whole content, without a question
    warm_up: Callable[[], Any]  # start an engine that imports TensorFlow in advance, unless a run needs the machine

    # Notifications cover the footer.
    CSS = """
    ToastRack { margin-bottom: 0; overflow: hidden; }
    Input > .input--placeholder, Input > .input--suggestion { color: $foreground-muted; }
    Toast { width: 100%; max-width: 100%; margin-top: 0; padding: 0 1; }
    CommandPalette > #--container {
        width: 100; max-width: 96%; margin-top: 1; background: $panel;
        SearchIcon { display: none; }
        #--input, #--input.--list-visible { border: round $primary; }
        CommandInput, CommandInput:focus { height: 1; border: none; padding: 0 1; }
        CommandList, CommandList.--populating { border: round $border; border-top: none; background: $panel; }
    }
    """

    # Right from the start, so that the styles are made only once.
    theme: Reactive[str] = Reactive(Initialize(_first_theme))
    engines: list[Any]  # processes started here, kept so that their exit status is collected
    not_deleted = ""  # why deleted runs could not be removed at the end
    warm: Warm | None = None  # an engine that has imported TensorFlow, and waits for the form's run
    running_count: var[int] = var(0)  # number of running runs
    queue_words: var[tuple[str, ...]] = var(())  # measurements and the queue, the longest text first

    def __init__(self) -> None:
        import_one_at_a_time()
        self.kept = KeptScreens(self)
        self.faults = Faults(self, self.kept.remove)
        self._themes: dict[str, Theme] = {}  # all that are available: Textual asks for them with each widget
        self.settings = Settings()  # Textual asks for the theme, which they name
        self.stopping_runs: dict[str, Process | None] = {}  # the engines that were asked to stop, by the run's id
        self.acts = {place: Acts(nothing) for place, nothing in NOTHING_TO_UNDO.items()}
        self._trashes: dict[str, Trash] = {}
        super().__init__()
        self._acted_at = 0.0  # when the latest key or click took effect, as `time.time`
        self.typeahead = Typeahead(self, self._act)
        ScrollBar.renderer = ScrollBarRender if glyphs_of(self).braille else PlainBar

    def is_stopping(self, run: Run) -> bool:
        """Return True if the present engine of the run was asked to stop in this application. Reads the folder."""
        return run.id in self.stopping_runs and self.stopping_runs[run.id] == run.process("engine")

    def trash(self, place: str) -> Trash:
        """Return the trash of `runs` or `proofs`. What is in it can be brought back until the application ends."""
        from ...engine.proof.folder import reserved  # not needed for the first paint
        from ...engine.runs.trash import Trash  # the same

        if place not in self._trashes:
            self._trashes[place] = Trash(reserved) if place == "proofs" else Trash()
        return self._trashes[place]

    def theme_at_start(self) -> str:
        """Return the name of the theme of the first paint. Textual calls this before the application has a console."""
        return CALM.name

    @property
    def available_themes(self) -> dict[str, Theme]:
        """Return all themes by name, also gputui's: Textual looks for a theme before one can be registered."""
        others = super().available_themes
        if len(self._themes) != len(others) + len(OWN_THEMES):
            self._themes = others | OWN_THEMES
        return self._themes

    def get_theme_variable_defaults(self) -> dict[str, str]:
        return own_colours(self.current_theme)

    def on_mount(self) -> None:
        self.screen_change_signal.subscribe(self, lambda _: self.withdraw(self._acted_at))

    def on_unmount(self) -> None:
        for trash in self._trashes.values():
            self.not_deleted = trash.empty() or self.not_deleted

    async def on_event(self, event: events.Event) -> None:
        """Hold keys and clicks back until a screen that is being opened is ready."""
        if isinstance(event, events.Key | events.Paste) and not event.is_forwarded:
            await self.typeahead.take(event)
        elif isinstance(event, events.MouseUp) and not event.is_forwarded:
            await self.typeahead.act(event)
        else:
            await super().on_event(event)

    async def _act(self, event: events.Event) -> None:
        self._acted_at = time.time()
        await self.hand_over(event)

    async def hand_over(self, event: events.Event) -> None:
        """Pass a key or a click to Textual. It is called when all earlier keys and clicks have had their effect."""
        await super().on_event(event)

    # ---- unexpected exceptions -------------------------------------------------------------------

    def continues_after(self, error: Exception, node: MessagePump | None = None) -> bool:
        return self.faults.handled(error, node)

    def last_line(self, error: BaseException) -> str:
        return f"gputui ended by an unexpected {type(error).__name__}; please report {self.faults.log(error)}"

    def key(self, verb: str) -> str:
        """Return the first key of a verb, as text for a message. The settings may have changed the keys of the verb."""
        return keys.key_of(self, verb)

    def get_key_display(self, binding: Binding) -> str:
        """The name of the key in the footer. The Enter key is shown as ⏎ if the terminal can show this character."""
        return "⏎" if binding.key == "enter" and glyphs_of(self).braille else keys.shown(binding.key)

    def get_driver_class(self) -> type[Driver]:
        driver = super().get_driver_class()
        if driver.__name__ != "LinuxDriver":
            return driver
        from ..upstream.terminal_input import TerminalDriver  # tests drive no terminal

        return TerminalDriver

    @property
    def training_python(self) -> str | None:
        """The path of the Python that the form names (run.python). None if it names none."""
        return None

    def open_screen(self, screen: Screen[Any], *, instead: bool = False) -> None:
        """Open the screen over the present one or `instead` of it. One that has stayed built opens as it was left."""
        self.kept.open(screen, instead)

    @property
    def form_state(self) -> FormState:
        raise NotImplementedError

    def apply(self, path: Path, values: Mapping[str, Any], what: str, options: Options | None = None) -> Any:
        """Put `values`, by option key, into the form with the preset of the file or, if it holds another one, all of
        `options` that differ; `what` says to the user what they are."""
        raise NotImplementedError

    def take_warm(self) -> Warm | None:
        """Return the engine that was started in advance, and remove it from here; None if there is none."""
        warm, self.warm = self.warm, None
        return warm

    def close_warm(self) -> None:
        if (warm := self.take_warm()) is not None:
            warm.close()

    def copy(self, text: str, what: str) -> None:
        """Copy text to the terminal's clipboard, and show `what` it is and a second place that has it."""

        def store() -> None:
            message = clean(f"{what}; {keep(text)}")
            self.call_from_thread(self.notify, message, title="Copied", markup=False)

        self.copy_to_clipboard(text)
        self.run_worker(store, thread=True, group="copying")

    def notify(
        self, message: str, *, title: str = "", severity: SeverityLevel = "information",
        timeout: float | None = None, markup: bool = True,
    ) -> None:  # fmt: skip
        """Show a message in the last line for `timeout` seconds; with `markup` it may have Textual's. A new message of
        severity information replaces the previous one, and `withdraw` removes it."""
        if severity == "information":
            self.withdraw()
        text = f"{title}: {message}" if title else message
        super().notify(text, severity=severity, timeout=timeout or SHOWN_SECONDS[severity], markup=markup)

    def complain(self, reason: str) -> None:
        self.notify(clean(reason), severity="error", markup=False)


TMUX_SECONDS = 2.0


def file() -> Path:
    """Return the path of the file that has the text that was copied last. It need not exist."""
    return places.home() / "copied.txt"


def keep(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Store the text in tmux' buffer or else in a file, and name the place; waits for the disk. tmux passes OSC 52 on
    to the terminal only if its `set-clipboard` is on, but takes the text for its own buffer."""
    if environment.get("TMUX"):
        command = ["tmux", "load-buffer", "-w", "-"]
        with contextlib.suppress(OSError, subprocess.SubprocessError):
            ended = subprocess.run(command, input=text.encode(), capture_output=True, timeout=TMUX_SECONDS, check=False)
            if ended.returncode == 0:
                return "tmux has it as well: its prefix, then ] pastes it"
    kept = file()
    try:
        places.make(kept.parent, exist_ok=True)
        write_atomically(kept, text, durable=False)
    except OSError as fault:
        return f"if the terminal does not take it (OSC 52), there is no other way: {kept}: {fault.strerror}"
    return f"if the terminal does not take it (OSC 52), it is in {kept}"


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
            frames = traceback.extract_tb(cause.__traceback__)
            where = f" in {Path(frames[-1].filename).name}, line {frames[-1].lineno}" if frames else ""
            line = clean(f"a part of gputui failed ({type(cause).__name__}{where}); the rest goes on; please report ")
            if line not in self.lines:
                self.lines.append(line)
                self._app.notify(f"{line}{places.home() / 'tui.log'}", severity="error", markup=False)
        return True

    def _can_go_on(self, node: MessagePump) -> bool:
        """True if a screen is still usable after a fault of `node`. Closes one that fails too often or is not built."""
        above = node.ancestors_with_self if isinstance(node, DOMNode) else []
        screen = next((each for each in above if isinstance(each, Screen)), None)
        being_built = node in (screen, self._app) and not is_built(node)
        times = self._recent.setdefault(screen or node, deque(maxlen=TOO_MANY))
        times.append(now := time.monotonic())
        if not being_built and (len(times) < TOO_MANY or now - times[0] >= WITHIN_SECONDS):
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

    def _close(self, screen: Screen[Any]) -> None:
        while screen in self._app.screen_stack:
            above = self._app.screen
            if isinstance(above, ModalScreen):
                above.dismiss(None)
            else:
                self._app.pop_screen()
        self._remove(screen)
