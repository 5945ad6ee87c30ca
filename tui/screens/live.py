"""The live view of a run and its actions: stop the run, run it again, change its options, look closer.

Deferred imports: starting a run and other screens are needed only when a key asks for them.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType
from textual.widgets import Input

from ...engine import runs
from ...engine.presets import PresetError
from ...engine.runs import Run, RunError
from ..base.errors import clean
from ..widgets.gpu_cards import GpuCards
from ..widgets.log_view import LogLines, LogPanel
from . import catalogue
from .help import LOSS
from .live_view import LiveView
from .questions import Ask

STOP_NOW = (
    "This run has been asked to stop and finishes its step.\n"
    "Stop it now? Everything after the last checkpoint is lost."
)


class LiveScreen(LiveView):
    """The live view of a run, running or finished, with its keys. Whatever touches the disk runs in a thread."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "stop", "Stop"),
        Binding("r", "again", "Run again"),
        Binding("e", "change", "Change", show=False),
        Binding("d", "diagnosis", "Diagnosis"),
        Binding("g", "zoom('gpus')", "GPUs"),
        Binding("c", "zoom('charts')", "Charts", show=False),
        Binding("l", "zoom('log')", "Log"),
        Binding("w", "zoom('messages')", "Warnings"),
        Binding("left_square_bracket,right_square_bracket", "page", "More charts", key_display="]", show=False),
        Binding("slash", "search", "Search in the log", key_display="/", show=False),
        Binding("n", "found(1)", "Next found", show=False),
        Binding("N", "found(-1)", "Previous found", show=False),
        Binding("down,j", "pick(1)", "Next GPU", key_display="down", show=False),
        Binding("up,k", "pick(-1)", "Previous GPU", key_display="up", show=False),
        catalogue.left_out("live"),  # the live view is open already
        Binding("escape", "back", "Back"),
    ]

    HELP_SECTIONS = (("Marks", (("•", "a GPU that this run uses"), ("!", "throttled, and by what"))), LOSS)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Only what makes sense now stands in the footer."""
        running = self.now.outcome is None and not self.replay_speed
        if action == "stop":
            return running
        if action in ("again", "change"):
            return not running
        if action == "zoom" and parameters == ("messages",):
            return bool(self.now.warnings or self.now.error)
        if action == "pick":
            return self.zoom == "gpus"
        return action != "page" or self.pages > 1

    # ---- stop and start -------------------------------------------------------------------------

    @work(thread=True, group="stop")
    def action_stop(self) -> None:
        """Whoever asks second, from this viewer or another, is asked whether it shall be at once."""
        if self.stopping or self.run_folder.status.get("stop_requests"):
            self.app.call_from_thread(self._ask_stop_now)
        else:
            self.stopping = True
            self._stop("stopping after this step; press s again to stop at once")

    @work
    async def _ask_stop_now(self) -> None:
        if await self.app.push_screen_wait(Ask(STOP_NOW, ("Stop now", "Keep waiting"))) == "Stop now":
            self._stop_now()

    @work(thread=True, group="stop")
    def _stop_now(self) -> None:
        self._stop("stopping at once")

    def _stop(self, said: str) -> None:
        try:
            runs.request_stop(self.run_folder)
        except (RunError, OSError) as reason:
            self.stopping = False
            said = str(reason)
        self.app.call_from_thread(self.say, said)

    def say(self, text: str, severity: Any = "information") -> None:
        self.notify(clean(text), severity=severity, markup=False)

    @work(thread=True, group="again", exclusive=True)
    def action_again(self) -> None:
        """The same preset, in a run of its own."""
        from ...engine import checks, presets
        from ...engine.process import launch
        from ...engine.telemetry import machine

        try:
            preset = presets.resolve(str(self.run_folder.file("preset.yaml")))
            findings = checks.of_preset(preset, machine.read())
            if errors := [finding for finding in findings if finding.level == "error"]:
                raise RunError(str(errors[0]))
            run, engine = launch.start(replace(preset, name=name_of(self.run_folder)))
        except (PresetError, RunError, OSError) as reason:
            self.app.call_from_thread(self.say, f"cannot run it again: {reason}", "error")
            return
        # Whoever started a child has to wait for it when it has ended.
        self.app.engines.append(engine)
        self.app.call_from_thread(self.app.open_run, run)

    def action_change(self) -> None:
        self.app.open_form(self.run_folder.file("preset.yaml"))

    # ---- look closer ----------------------------------------------------------------------------

    def action_zoom(self, part: str) -> None:
        self.zoom = "" if self.zoom == part else part
        self.show_now()
        if self.zoom == "log":
            self.query_one(LogLines).focus()

    def action_pick(self, by: int) -> None:
        self.query_one(GpuCards).pick(by)

    def action_diagnosis(self) -> None:
        from .diagnosis import DiagnosisScreen

        self.app.push_screen(DiagnosisScreen(self))

    def action_page(self) -> None:
        self.page += 1
        self.show_now()

    def action_search(self) -> None:
        self.query_one(LogPanel).open_search()

    def action_found(self, by: int) -> None:
        self.query_one(LogPanel).step(by)

    def action_back(self) -> None:
        """Out of the search, out of the zoom, out of the screen."""
        if self.query_one(LogPanel).close_search():
            return
        if self.zoom:
            self.action_zoom(self.zoom)
        else:
            super().action_back()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()


def name_of(run: Run) -> str:
    """What the preset was called: the id without its time and number."""
    return re.sub(r"^\d{8}-\d{6}-|-\d{1,3}$", "", run.id) or "run"
