"""The Textual application: its stack of screens, the keys that work everywhere, themes and the command palette.

The form lies at the bottom of the stack and keeps its content; runs, live views and comparisons open above it. A run is
an engine process of its own and never belongs to the application, which only follows its folder.

Deferred imports: the first paint needs the form only; a screen or a reader is imported when it is asked for.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.text import Text
from textual import work
from textual.app import SystemCommand
from textual.binding import Binding
from textual.screen import Screen

from ..engine import presets
from ..engine.presets import Preset, PresetError
from .base.services import Host
from .base.themes import THEMES
from .form.state import FormState
from .reading import LOOKED_AT
from .screens import catalogue
from .screens.form import FormScreen

if TYPE_CHECKING:
    from ..engine.proof.folder import Proof
    from ..engine.runs import Run

FIRST_PRESET = presets.SHIPPED / "quickstart.yaml"
WARM_AFTER_SECONDS = 1.0  # by then the user has first looked at the form
UNDER_WAY = ("running", "starting")  # a run that is stopping is not offered


class GputuiApp(Host):
    """`preset` fills the form; `watch` opens a run at once, at `replay_speed` as if it happened again."""

    TITLE = "gputui"
    # Of the screen at the bottom, whose own no push would load.
    CSS_PATH = Path(__file__).with_name("screens") / "form.tcss"
    BINDINGS = [
        Binding("f1,question_mark", "help", "Help", key_display="?"),
        *catalogue.key_bindings(),
        Binding("ctrl+q", "quit", "Quit", show=False, priority=True),
    ]

    def __init__(
        self, preset: Preset | None = None, watch: Run | None = None, replay_speed: float | None = None
    ) -> None:
        super().__init__()
        state = FormState(None, preset) if preset else FormState.open(FIRST_PRESET)
        self.form = FormScreen(state, waits=watch is not None)
        self.watched, self.replay_speed = watch, replay_speed
        self.engines = []
        for theme in THEMES:
            self.register_theme(theme)
        self.animation_level = "none"  # over SSH a jump is calmer than a slide, and far fewer bytes
        # Sixteen colours have no shades: only the theme without any stays readable.
        plain = self.console.color_system in (None, "standard") or self.no_color
        self.theme = "high-contrast" if plain else "gputui"

    def get_default_screen(self) -> Screen[None]:
        return self.form

    def on_mount(self) -> None:
        self._sweep()
        if self.watched is not None:
            self.open_run(self.watched)
        else:
            self.call_after_refresh(self._offer_running)
            self.set_timer(WARM_AFTER_SECONDS, self.warm_up)

    def on_unmount(self) -> None:
        if self.warm is not None:
            self.warm.close()

    # ---- what other screens call ----------------------------------------------------------------

    def open_run(self, run: Run) -> None:
        """Look at a run, running or finished."""
        speed, self.replay_speed = self.replay_speed, None
        self._open("live", run, speed)

    def open_compare(self, runs: list[Run]) -> None:
        """Runs side by side."""
        self._open("compare", runs)

    def open_proof(self, proof: Proof) -> None:
        """Look at a proof, as it is made or as it ended."""
        self._open("proof", proof)

    def open_proofs(self) -> None:
        """All proofs."""
        self.action_show("proofs")

    @work
    async def open_form(self, preset_yaml_path: Path) -> None:
        """Fill the form with the preset of a file, once what stands there is safe."""
        if not await self.form_is_safe():
            return
        try:
            state = FormState.open(preset_yaml_path)
        except (PresetError, OSError) as fault:
            self.complain(str(fault))
            return
        self.action_show("form")
        self.form.load(state)

    @property
    def form_state(self) -> FormState:
        return self.form.state

    async def form_is_safe(self) -> bool:
        """Whether the form may be filled anew or left: asks where something would be lost."""
        from .screens.saving import save_first

        return not self.form.state.at_risk or await save_first(self, self.form.state)

    # ---- one screen over another ----------------------------------------------------------------

    def _open(self, name: str, *opened_with: Any) -> None:
        """Over what is seen, or in the place of one of its kind."""
        screen_class = catalogue.entry(name).screen_class
        screen = screen_class(*opened_with)
        if isinstance(self.screen, screen_class):
            self.switch_screen(screen)
        else:
            self.push_screen(screen)

    def action_show(self, name: str) -> None:
        """Uncover a screen that is open; else open it, the live view with the run that goes on or the latest."""
        entry = catalogue.entry(name)
        if self._uncover(entry.screen_class):
            return
        if name == "live":
            self._open_latest()
        else:
            self.push_screen(entry.screen_class())

    def _uncover(self, screen_class: type[Screen[Any]]) -> bool:
        """Take away the screens over the one of a kind; whether there is such a one."""
        stack = list(self.screen_stack)
        at = next((i for i, screen in enumerate(stack) if isinstance(screen, screen_class)), None)
        if at is None:
            return False
        for _ in stack[at + 1 :]:
            self.pop_screen()
        return True

    @work(thread=True, exclusive=True, group="latest")
    def _open_latest(self) -> None:
        from ..engine import runs

        found = runs.all_runs()
        if found:
            running = next((run for run in found[:LOOKED_AT] if run.state in UNDER_WAY), found[0])
            self.call_from_thread(self.open_run, running)
        else:
            self.call_from_thread(self.notify, "No runs so far: r starts one from the form.")

    @work(thread=True, group="offer")
    def _offer_running(self) -> None:
        from ..engine import runs

        for run in runs.all_runs()[:LOOKED_AT]:
            if run.state in UNDER_WAY:
                self.call_from_thread(self.form.offer, run)
                return

    @work(thread=True, group="sweeping")
    def _sweep(self) -> None:
        """Remove the deleted runs of a screen that was killed."""
        from ..engine.runs import trash

        trash.sweep()

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

    @work(thread=True, exclusive=True, group="warm")
    def warm_up(self) -> None:
        """Import TensorFlow in a waiting engine while the form is filled in, unless a run needs the machine."""
        unwanted = self.is_headless or os.environ.get("GPUTUI_WARM") == "0"
        if unwanted or self.warm is not None or self.going_on() or self.measuring():
            return
        from ..engine.process.launch import Warm

        self.warm = Warm()

    def _fatal_error(self) -> None:
        """Of an error nobody expected: one line on the terminal, where Textual would print the traceback."""
        from ..engine import runs

        log = runs.home() / "tui.log"
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(traceback.format_exc(), encoding="utf-8")
        self.panic(Text(f"gputui ended by an unexpected {type(sys.exception()).__name__}; please report {log}"))

    def going_on(self) -> list[Run]:
        """The runs that go on on this machine without this application."""
        from ..engine import runs

        return [run for run in runs.all_runs()[:LOOKED_AT] if (now := run.life).engine and not now.host]

    def measuring(self) -> bool:
        """Whether a proof is being made, into whose figures nothing must fall."""
        from ..engine.proof import folder

        return any(proof.state == "running" for proof in folder.proofs()[:LOOKED_AT])

    # ---- commands -----------------------------------------------------------------------------

    def get_system_commands(self, screen: Screen[Any]) -> Iterable[SystemCommand]:
        for entry in catalogue.SCREENS:
            if entry.keys or not entry.opened_with:
                yield SystemCommand(entry.title, entry.shows, partial(self.action_show, entry.name))
        if screen is self.form:
            yield from self.form.commands()
        yield from super().get_system_commands(screen)
