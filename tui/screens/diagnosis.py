"""The screen of a run's diagnosis: verdict, evidence, input stages and remedies; `p` starts a proof of the remedies.

The diagnosis comes from the live view while the run goes on. For a run that has left none it is made from the run
folder, in a thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import Footer

from ...engine.files.values import EMPTY
from ...engine.runs import Run
from ..base.errors import clean
from ..base.glyphs import Glyphs, glyphs_of
from ..drawing.diagnosis import rows
from ..drawing.rows import Row, spread
from ..drawing.verdict import MEASURING, is_due
from ..reading.store import Snapshot
from ..widgets.page import Page
from ..widgets.panel import Panel
from . import proving

if TYPE_CHECKING:
    from ..base.services import Host

LOOK_SECONDS = 0.5
NOT_BEGUN = "training has not begun: there is nothing to diagnose yet"
READING = "reading the run folder ..."


class DiagnosisScreen(Screen[None]):
    """`snapshot` gives what is known of the run now."""

    CSS_PATH = "diagnosis.tcss"
    app: Host
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("p", "prove", "Prove"),
        Binding("escape,d", "back", "Back", key_display="esc"),
    ]

    def __init__(self, run: Run, snapshot: Callable[[], Snapshot]) -> None:
        super().__init__()
        self.run_folder, self._snapshot = run, snapshot
        self._read: Mapping[str, Any] = EMPTY  # from the folder of a run that has ended
        self._looked = False
        self._shown: tuple[object, ...] = ()

    @property
    def diagnosis(self) -> Mapping[str, Any]:
        return self._snapshot().diagnosis or self._read

    @property
    def glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    def compose(self) -> ComposeResult:
        yield Panel(self._title, id="title")
        yield Page(self._rows)
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(Page).focus()
        self._look()
        self.set_interval(LOOK_SECONDS, self._look)

    def _look(self) -> None:
        """Show what is new; a run that has ended without a diagnosis gets one from its folder."""
        now = self._snapshot()
        if now.outcome is not None and not now.diagnosis and not self._looked:
            self._looked = True
            self._read_folder()
        shown = (self.diagnosis, now.input_stages, now.outcome, is_due(now))
        if any(new is not old for new, old in zip(shown, self._shown, strict=False)) or not self._shown:
            self._shown = shown
            self.query_one(Page).repaint()
            self.query_one(Panel).repaint()

    @work(thread=True, group="reading")
    def _read_folder(self) -> None:
        from ...engine.diagnosis import of_run

        found = asdict(of_run(self.run_folder))
        self.app.call_from_thread(self._take, found)

    def _take(self, found: Mapping[str, Any]) -> None:
        self._read = found
        self._look()

    # ---- what is seen -----------------------------------------------------------------------------

    def _title(self, width: int, height: int) -> list[Row]:
        left: Row = [("diagnosis", "title"), (f"  {clean(self.run_folder.id)}", "label")]
        right: Row = [] if self._snapshot().outcome else [("updated while the run goes on", "label")]
        return [spread(left, right, width)]

    def _rows(self, width: int) -> list[Row]:
        now = self._snapshot()
        if self.diagnosis:
            return rows(self.diagnosis, now.input_stages, width, self.glyphs)
        said = MEASURING if is_due(now) else READING if now.outcome else NOT_BEGUN
        stages = rows(EMPTY, now.input_stages, width, self.glyphs)[2:] if now.input_stages else []
        return [[(said, "label")], *stages]

    # ---- keys -------------------------------------------------------------------------------------

    @work(exclusive=True, group="prove")
    async def action_prove(self) -> None:
        await proving.prove(self.app, self.run_folder, self.diagnosis)

    def action_back(self) -> None:
        self.app.pop_screen()
