"""The screen of a run's diagnosis: verdict, evidence, input stages and remedies. It comes from the live view while the
run is running, else, if it ended without one, from the run folder, in a thread."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from ....engine.files.values import EMPTY, mapping, number
from ...base import keys
from ...base.errors import clean
from ...drawing.diagnosis import changing, rows
from ...drawing.live.head import MEASURING, is_due
from ...drawing.rows import Row, length, spread
from ...reading.run.snapshot import Snapshot
from ...widgets.key_footer import KeyFooter
from ...widgets.row_widgets import Page, Panel
from ..base import AppScreen, Header
from ..runs.actions import put_into_form

if TYPE_CHECKING:
    from .view import LiveView

NOT_BEGUN = "training has not begun: there is nothing to diagnose yet"
READING = "reading the run folder ..."


class DiagnosisScreen(AppScreen):
    """Shows the diagnosis of a run from the readings of the live view, which is the screen below it."""

    CSS_PATH = "diagnosis.tcss"
    KEPT = 3
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("prove", meaning="measure whether the remedies help"),
        *keys.numbered("remedy"),
        *keys.back(),
        keys.bind("why", "back", "Back", show=False, meaning="back to the live view"),
    ]

    def __init__(self, live: LiveView) -> None:
        super().__init__()
        self.source, self.run_folder = live, live.run_folder
        self.kept_as, self._run_name = live.kept_as, clean(live.run_folder.name)
        self._of_folder: Mapping[str, Any] = EMPTY  # of a run that has ended
        self._folder_read = False
        self._shown: tuple[object, ...] = ()

    @property
    def now(self) -> Snapshot:
        return self.source.now

    @property
    def diagnosis(self) -> Mapping[str, Any]:
        return self.now.diagnosis or (self._of_folder if self.now.outcome is not None else EMPTY)

    @property
    def keys_without_use(self) -> tuple[str, ...]:
        """Return the verbs that the footer leaves out: to prove or apply remedies, unless one changes options."""
        return () if changing(self.diagnosis) else ("prove", "remedy")

    def compose(self) -> ComposeResult:
        yield Header(Panel(self._title, id="title"))
        yield Page(self._rows)
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(Page).focus()
        self.watch(self.source, "latest", self._show_new)

    def _show_new(self) -> None:
        """Show the newest reading. If the run has ended without a diagnosis, make one from its folder, in a thread."""
        now = self.now
        if now.outcome is not None and not now.diagnosis and not self._folder_read:
            self._folder_read = True
            self._read_folder()
        shown = (self.diagnosis, now.input_stages, now.outcome, is_due(now))
        if any(new is not old for new, old in zip(shown, self._shown, strict=False)) or not self._shown:
            self._shown = shown
            self.query_one(Page).repaint()
            self.query_one(Panel).repaint()
            self.refresh_bindings()

    @work(thread=True, group="reading")
    def _read_folder(self) -> None:
        from ....engine.diagnosis import of_run  # only for a run that left no diagnosis

        diagnosis = asdict(of_run(self.run_folder))
        self.app.call_from_thread(self._take, diagnosis)

    def _take(self, diagnosis: Mapping[str, Any]) -> None:
        self._of_folder = diagnosis
        self._show_new()

    # ---- drawing ----------------------------------------------------------------------------------

    def _title(self, width: int, _height: int) -> list[Row]:
        left: Row = [("diagnosis", "title"), (f"  {self._run_name}", "label")]
        right: Row = [] if self.now.outcome else [("updated while the run goes on", "label")]
        fits = length(left) + 2 + length(right) <= width
        return [spread(left, right if fits else [], width)]

    def _rows(self, width: int) -> list[Row]:
        now = self.now
        if self.diagnosis:
            return rows(self.diagnosis, now.input_stages, width, self.glyphs, _step_ms(now))
        text = MEASURING if is_due(now) else READING if now.outcome else NOT_BEGUN
        stages = rows(EMPTY, now.input_stages, width, self.glyphs, _step_ms(now))[2:] if now.input_stages else []
        return [[(text, "label")], *stages]

    @work(exclusive=True, group="prove")
    async def action_prove(self) -> None:
        from ..proof import actions  # proofs are needed only for this

        await actions.prove(self.app, self.run_folder, self.diagnosis)

    # ---- remedies into the form -------------------------------------------------------------------

    @work(exclusive=True, group="apply")
    async def action_remedy(self, number: int) -> None:
        """Put a remedy's changes into the form; `number` counts from 1 those that change options."""
        remedies = changing(self.diagnosis)
        if number > len(remedies):
            self.app.notify(_no_such(number, len(remedies)))
        else:
            await put_into_form(self.app, self.run_folder, mapping(remedies[number - 1].get("changes")))


def _step_ms(now: Snapshot) -> float | None:
    whole = mapping(now.summary.get("step_ms")).get("p50")
    return number(now.progress.get("step_ms_p50") if now.outcome is None else whole)


def _no_such(number: int, count: int) -> str:
    if not count:
        return "there is no remedy that changes options"
    numbers = f"1 to {min(count, 9)}" if count > 1 else "1"
    return f"there is no remedy {number}, only {numbers}"
