"""The Textual application: its stack of screens, the keys that work everywhere, themes and the command palette.

The form lies at the bottom of the stack and keeps its content; runs, live views and comparisons open above it. A run is
an engine process of its own and never belongs to the application, which only follows its folder.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterable
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
from .screens.form import FormScreen

if TYPE_CHECKING:
    from ..engine.proof.folder import Proof
    from ..engine.runs import Run

FIRST_PRESET = presets.SHIPPED / "quickstart.yaml"
WARM_AFTER_SECONDS = 1.0  # by then the user has first looked at the form
LOOKED_AT = 50  # how many of the newest runs are searched for a running one


class GputuiApp(Host):
    """`preset` fills the form; `watch` opens a run at once, at `replay_speed` as if it happened again."""

    TITLE = "gputui"
    # Of the screen at the bottom, whose own no push would load.
    CSS_PATH = Path(__file__).with_name("screens") / "form.tcss"
    BINDINGS = [
        Binding("f1,question_mark", "help", "Help", key_display="?"),
        Binding("f2,1", "form", "Form", key_display="F2"),
        Binding("f3,2", "live", "Live", key_display="F3"),
        Binding("f4,3", "runs", "Runs", key_display="F4"),
        Binding("f5,5", "gpus", "GPUs", key_display="F5", show=False),
        Binding("f6,4", "doctor", "Doctor", key_display="F6", show=False),
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
        from .screens.live import LiveScreen

        speed, self.replay_speed = self.replay_speed, None
        self._put(LiveScreen(run, speed), LiveScreen)

    def open_compare(self, runs: list[Run]) -> None:
        """Runs side by side."""
        from .screens.compare import CompareScreen

        self._put(CompareScreen(runs), CompareScreen)

    def open_proof(self, proof: Proof) -> None:
        """Look at a proof, as it is made or as it ended."""
        from .screens.proof import ProofScreen

        self._put(ProofScreen(proof), ProofScreen)

    def open_proofs(self) -> None:
        """All proofs."""
        from .screens.proofs import ProofsScreen

        if not self._uncover(lambda screen: isinstance(screen, ProofsScreen)):
            self.push_screen(ProofsScreen())

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
        self.action_form()
        self.form.load(state)

    @property
    def form_state(self) -> FormState:
        return self.form.state

    async def form_is_safe(self) -> bool:
        """Whether the form may be filled anew or left: asks where something would be lost."""
        from .screens.saving import save_first

        return not self.form.state.at_risk or await save_first(self, self.form.state)

    # ---- one screen over another ----------------------------------------------------------------

    def _put(self, screen: Screen[Any], kind: type[Screen[Any]]) -> None:
        """Over what is seen, or in the place of one of its kind."""
        if isinstance(self.screen, kind):
            self.switch_screen(screen)
        else:
            self.push_screen(screen)

    def _uncover(self, wanted: Callable[[Screen[Any]], bool]) -> bool:
        """Take away the screens over the wanted one; whether there is such a one."""
        stack = list(self.screen_stack)
        at = next((i for i, screen in enumerate(stack) if wanted(screen)), None)
        if at is None:
            return False
        for _ in stack[at + 1 :]:
            self.pop_screen()
        return True

    def action_form(self) -> None:
        self._uncover(lambda screen: screen is self.form)

    def action_runs(self) -> None:
        from .screens.runs import RunsScreen

        if not self._uncover(lambda screen: isinstance(screen, RunsScreen)):
            self.push_screen(RunsScreen())

    def action_gpus(self) -> None:
        from .screens.gpus import GpusScreen

        if not self._uncover(lambda screen: isinstance(screen, GpusScreen)):
            self.push_screen(GpusScreen())

    def action_doctor(self) -> None:
        from .screens.doctor import DoctorScreen

        if not self._uncover(lambda screen: isinstance(screen, DoctorScreen)):
            self.push_screen(DoctorScreen())

    def action_live(self) -> None:
        from .screens.live import LiveScreen

        if not self._uncover(lambda screen: isinstance(screen, LiveScreen)):
            self._open_latest()

    @work(thread=True, exclusive=True, group="latest")
    def _open_latest(self) -> None:
        from ..engine import runs

        found = runs.all_runs()
        if found:
            running = next((run for run in found[:LOOKED_AT] if run.state in ("running", "starting")), found[0])
            self.call_from_thread(self.open_run, running)
        else:
            self.call_from_thread(self.notify, "No runs so far: r starts one from the form.")

    @work(thread=True, group="offer")
    def _offer_running(self) -> None:
        from ..engine import runs

        for run in runs.all_runs()[:LOOKED_AT]:
            if run.state in ("running", "starting"):
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
        yield SystemCommand("Form", "The options of the preset", self.action_form)
        yield SystemCommand("Live view", "The running run, or the latest", self.action_live)
        yield SystemCommand("Runs", "Past and present runs", self.action_runs)
        yield SystemCommand("Proofs", "Changes that were measured, and their gains", self.open_proofs)
        yield SystemCommand("GPUs", "All GPUs and the host as they are now", self.action_gpus)
        yield SystemCommand("Doctor", "Checks GPUs, driver, TensorFlow and host for problems", self.action_doctor)
        if screen is self.form:
            yield from self.form.commands()
        yield from super().get_system_commands(screen)
