"""The Textual application: its stack of screens, the keys that work everywhere, themes and the command palette. The
form lies at the bottom of the stack and keeps its content; runs, live views and comparisons open above it. A run is an
engine process of its own and never belongs to the application, which only follows its folder.
Deferred imports: the first paint needs the form only; a screen or a reader is imported when it is asked for."""

from __future__ import annotations

import asyncio
import gc
import os
import time
from collections.abc import Iterable, Mapping
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console
from textual import constants, events, work
from textual.app import SystemCommand
from textual.screen import ModalScreen, Screen
from textual.theme import Theme

from ..engine.files.places import proofs_folder, runs_folder
from ..engine.finding import errors
from ..engine.interpreter import interpreter
from ..engine.presets import Preset, PresetError
from .base import keys
from .base.base_app import BaseApp
from .base.errors import clean
from .base.themes import CALM, HIGH_CONTRAST, MONOCHROME, THEMES
from .form.form_state import FormState
from .reading import preset_files
from .screens import catalogue
from .screens.form.screen import FormScreen
from .screens.runs.watch import RunWatch

if TYPE_CHECKING:
    from ..engine.options import Options
    from ..engine.proof.folder import Proof
    from ..engine.runs import Run


GARBAGE_AFTER = 10_000  # new objects; Python's own is 700
PALETTE_SECONDS = 0.1  # by then the palette has gone
WARM_AFTER_SECONDS = 1.0  # by then the user has first looked at the form
UNDER_WAY = ("running", "starting")  # a run that is stopping is not offered


class GputuiApp(BaseApp):
    """The application. `preset` fills the form, None takes the last one. `opens` has the name of another screen that
    opens at once, and what it is opened with."""

    TITLE = "gputui"
    # The style of the form: as the screen at the bottom it is never pushed, so that Textual would not load it.
    CSS_PATH = Path(__file__).with_name("screens") / "form" / "form.tcss"
    COMMANDS = {catalogue.Commands}
    BINDINGS = [
        keys.bind("help"),
        *catalogue.key_bindings(),
        keys.bind("settings", "show('settings')", show=False),
        keys.bind("palette", "command_palette", show=False),
        keys.bind("quit", show=False),
    ]

    def __init__(self, preset: Preset | FormState | None = None, opens: tuple[Any, ...] = ()) -> None:
        super().__init__()
        if isinstance(preset, Preset):
            state = FormState(None, preset)
        else:
            state = preset or (None if opens else _last_opened()) or FormState.first()
        self.form = FormScreen(state, waits=bool(opens))
        self.opens = opens
        self.engines = []
        self.run_watch = RunWatch(self)
        self.animation_level = "none"  # over SSH a jump is calmer than a slide, and far fewer bytes
        keymap, problems = keys.remapped(self.settings.keys)
        self.set_keymap(keymap)
        self.settings.problems += [f"{self.settings.path}: {problem}" for problem in problems]
        self._theme_kept = self.theme

    def theme_at_start(self) -> str:
        """Return the theme of the settings or, without a known one, that which suits the terminal's colours."""
        if "NO_COLOR" in os.environ:  # Textual removes it from the environment later
            return MONOCHROME.name
        theme = self.settings.theme
        if theme in self.available_themes:
            return theme
        if theme:
            names = ", ".join(theme.name for theme in THEMES)
            self.settings.problems.append(f"{self.settings.path}: there is no theme {theme!r}; known: {names}")
        # Sixteen colours have no shades: only the theme without any stays readable.
        system: Any = constants.COLOR_SYSTEM
        colours = Console(color_system=system, force_terminal=True).color_system
        return HIGH_CONTRAST.name if colours in (None, "standard") else CALM.name

    def _keep_theme(self, theme: Theme) -> None:
        # A theme of the start is not stored.
        if theme.name != self._theme_kept:
            self._theme_kept = theme.name
            self.settings.change("theme", theme.name)

    def get_default_screen(self) -> Screen[None]:
        return self.form

    def on_mount(self) -> None:
        self.theme_changed_signal.subscribe(self, self._keep_theme)
        interpreter.ask_with(partial(self.call_from_thread, self._asking))
        self.settings.complain = partial(self.call_from_thread, self.complain)
        faults = self.settings.problems
        if len(faults) > 1:
            message = f"{len(faults)} faults in {self.settings.path.name}: {self.key('palette')} faults lists them"
            self.notify(message, severity="error", markup=False, timeout=10)
        elif faults:
            self.complain(faults[0])
        self.call_after_refresh(self._collect_seldom)
        self.call_after_refresh(self._sweep)
        self.call_after_refresh(self.run_watch.start)
        if self.opens:
            self._open(*self.opens)
        else:
            self.call_after_refresh(self._offer_running)
            self.set_timer(WARM_AFTER_SECONDS, self.warm_up)

    @staticmethod
    def _collect_seldom() -> None:
        # Nearly all objects of a paint are freed by counting references: the usual threshold costs a 20th of the time.
        gc.set_threshold(GARBAGE_AFTER, *gc.get_threshold()[1:])
        gc.enable()

    def _asking(self, python: str) -> None:
        self.notify(clean(f"asking {python} what is installed for it ..."), markup=False)

    def action_faults(self) -> None:
        from .screens.help import ListScreen

        self.push_screen(ListScreen("Faults in the settings", self.settings.problems))

    def on_unmount(self) -> None:
        interpreter.give_up()  # a thread that waits for an answer would keep the process
        self.run_watch.close()
        self.close_warm()

    # ---- what other screens call ----------------------------------------------------------------

    def open_run(self, run: Run) -> None:
        self._open("live", run)

    def open_compare(self, runs: list[Run]) -> None:
        self._open("compare", runs)

    @work
    async def open_proof(self, proof: Proof) -> None:
        from ..engine.trials.kinds import kind  # not needed for the first paint

        self._open(kind(await asyncio.to_thread(lambda: proof.record.kind)).screen, proof)

    @work
    async def open_form(self, preset_yaml_path: Path) -> None:
        if (state := await self._state_of(preset_yaml_path)) is not None:
            self.action_show("form")
            self.clear_notifications()  # about a file that could not be opened before
            self.form.load(state)
            if not (state.shipped or state.of_a_run):
                preset_files.note(preset_yaml_path)

    @work
    async def apply(self, path: Path, values: Mapping[str, Any], what: str, options: Options | None = None) -> None:
        """Put `values`, by option key, into the form with the preset of the file; its other changes stay. If the form
        holds another file, all values of `options` that differ are put in."""
        present = self.form.state if self.form.state.path == path else None
        state = present or await self._state_of(path)
        if state is not None:
            self.action_show("form")
            self.form.apply(state, values if options is None or state is present else state.differing(options), what)

    async def _state_of(self, preset_yaml_path: Path) -> FormState | None:
        if not await self.form_is_safe():
            return None
        try:
            return await asyncio.to_thread(FormState.open, preset_yaml_path)
        except (PresetError, OSError) as fault:
            self.complain(str(fault))
            return None

    def show_in_form(self, state: FormState) -> None:
        self.form.load(state)

    @property
    def form_state(self) -> FormState:
        return self.form.state

    @property
    def training_python(self) -> str | None:
        return self.form.state.preset.options.run.python

    async def form_is_safe(self) -> bool:
        """Return True if the content of the form may be replaced."""
        from .screens.saving import save_first

        return not self.form.state.at_risk or await save_first(self, self.form.state)

    # ---- one screen over another ----------------------------------------------------------------

    def _open(self, name: str, *opened_with: Any) -> None:
        screen_class = catalogue.entry(name).screen_class
        self.open_screen(screen_class(*opened_with), instead=isinstance(self.screen, screen_class))

    def action_show(self, name: str) -> None:
        """Show a screen of the catalogue, closing the screens over it. The live view shows the running, else the latest
        run."""
        entry = catalogue.entry(name)
        waits = name == "live" and getattr(self.screen, "waiting", None) is not None  # another run may train
        opened = [at for at, screen in enumerate(self.screen_stack) if type(screen) is entry.screen_class]
        if opened and not waits:
            while len(self.screen_stack) > opened[0] + 1:
                self.pop_screen()
        elif name == "live":
            self._open_latest()
        else:
            self.open_screen(entry.screen_class())

    async def hand_over(self, event: events.Event) -> None:
        """Pass an event to Textual. A key of a screen in the header first closes an open dialog."""
        covered = self.screen_stack and isinstance(self.screen, ModalScreen) and isinstance(event, events.Key)
        name = catalogue.place_of_key(self, event.key) if covered and isinstance(event, events.Key) else ""
        if not name:
            await super().hand_over(event)
            return
        while isinstance(self.screen, ModalScreen):
            self.screen.dismiss(None)
        self.action_show(name)

    @work(thread=True, exclusive=True, group="latest")
    def _open_latest(self) -> None:
        from ..engine import runs
        from .reading.queue_places import newest_runs

        all_runs = runs.all_runs()
        if all_runs:
            running = next((run for run in newest_runs(of=all_runs) if run.state in UNDER_WAY), all_runs[0])
            self.call_from_thread(self.open_run, running)
        else:
            message = f"No runs so far: {self.key('start')} starts one from the form."
            self.call_from_thread(self.notify, message, markup=False)

    @work(thread=True, group="offer")
    def _offer_running(self) -> None:
        """Name a running run in the form or, if there are no runs yet, show the purpose of gputui there."""
        from ..engine import runs
        from ..engine.runs.titles import with_name
        from .reading.queue_places import newest_runs

        all_runs = runs.all_runs()
        if not all_runs:
            self.call_from_thread(self.form.introduce)
        for run in newest_runs(of=all_runs):
            if run.state in UNDER_WAY:
                self.call_from_thread(self.form.offer, with_name(run))
                return

    @work(thread=True, group="sweeping")
    def _sweep(self) -> None:
        # Of earlier processes of gputui, which were killed before they could do so.
        from ..engine.runs import trash

        for parent in (runs_folder(), proofs_folder()):
            trash.sweep(parent)

    @work
    async def action_help(self) -> None:
        from .screens.help import HelpScreen

        if not isinstance(self.screen, HelpScreen):
            self.push_screen(HelpScreen(self.screen))

    @work(group="quit", exclusive=True)
    async def action_quit_asking(self) -> None:
        if await self.form_is_safe():
            self.exit()

    async def action_quit(self) -> None:
        self.action_quit_asking()

    def action_help_quit(self) -> None:
        self.notify(f"{self.key('quit')} quits gputui; runs and proofs go on without it", markup=False)

    @work(thread=True, exclusive=True, group="warm")
    def warm_up(self) -> None:
        if self.is_headless or os.environ.get("GPUTUI_WARM") == "0" or self.warm is not None:
            return
        if self.going_on() or self.measuring():
            return
        from ..engine import checks
        from ..engine.process.launch import Warm

        python = self.training_python
        # An interpreter that does not answer is not started: it would outlive this application.
        if not errors(checks.of_packages(python)) and self.is_running:
            self.warm = Warm(interpreter.chosen(python))

    def going_on(self) -> list[Run]:
        from .reading.queue_places import newest_runs

        return [run for run in newest_runs() if (now := run.liveness).engine and not now.host]

    def measuring(self) -> list[Proof]:
        """Return the running proofs. Nothing else on the machine should disturb their figures."""
        from ..engine.proof import folder
        from ..engine.runs.run import WAITING
        from .reading.queue_places import LOOKED_AT

        begun = (proof for proof in folder.proofs() if not (proof.queue_file.exists() and proof.state == WAITING))
        return [proof for proof in islice(begun, LOOKED_AT) if proof.state == "running"]

    # ---- commands -----------------------------------------------------------------------------

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        """Yield the commands of the palette: of the screen, all screens and themes, and the useful ones of Textual."""
        yield from catalogue.of_screen(screen)
        listed = {active.binding.description for active in screen.active_bindings.values() if active.enabled}
        for entry in catalogue.SCREENS:
            if entry.verb or not (entry.opened_with or entry.title in listed):
                key = f"  ({self.key(entry.verb)})" if entry.verb else ""
                yield SystemCommand(f"{entry.title}{key}", entry.shows, partial(self.action_show, entry.name))
        if "hosts" in self.opens[:1]:
            yield SystemCommand("Hosts", catalogue.entry("hosts").shows, partial(self._open, *self.opens))
        if self.settings.problems:
            yield SystemCommand("Faults in the settings", "what of the settings file is not used", self.action_faults)
        yield SystemCommand("Theme", "choose a theme from a list", self.action_change_theme)
        own = {theme.name for theme in THEMES}  # Textual's appear only if the user searches for them
        for name in sorted(self.available_themes, key=lambda name: name not in own):
            help_text = "the theme in use" if name == self.theme else "use this theme; it is kept in the settings"
            yield SystemCommand(f"Theme {name}", help_text, partial(setattr, self, "theme", name), name in own)
        yield SystemCommand("Screenshot", "save a picture of the screen in the current folder", self.picture)

    def picture(self) -> None:
        def take() -> None:
            path = Path.cwd() / time.strftime("gputui-%Y%m%d-%H%M%S.svg")
            try:
                path.write_text(self.export_screenshot(), encoding="utf-8")
            except OSError as fault:
                self.complain(f"{path} cannot be written: {fault.strerror or fault}")
            else:
                self.notify(str(path), title="Saved", markup=False)

        self.set_timer(PALETTE_SECONDS, take)


def _last_opened() -> FormState | None:
    for path in preset_files.recent()[:1]:
        if preset_files.is_there(path):
            return preset_files.answer(partial(FormState.open, path), preset_files.OPENING_SECONDS)
    return None
