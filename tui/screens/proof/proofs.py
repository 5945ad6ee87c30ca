"""All proofs in a table, the newest first. The table is read again every 2 s."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from ....engine.trials import proof_sentences
from ....engine.trials.record import search_of
from ....engine.trials.scaling_sentences import in_brief as scaled
from ....engine.tune.report.search_results import gain_so_far
from ....engine.tune.report.search_sentences import unproven
from ....engine.units import NONE, change, size, times
from ...base import keys
from ...base.errors import clean
from ...base.themes import painted_colour
from ...drawing.proof import STATES, conclusion
from ...drawing.rows import Row, fitting
from ...reading.proofs import ProofEntry, ProofList
from ...reading.run_list import when_text
from ...widgets.key_footer import KeyFooter
from ...widgets.row_widgets import Panel
from ...widgets.table import Column, OpeningTable
from ...wording.run import ending
from .. import undoing
from ..base import Header
from ..runs.actions import DeletingScreen, until_quitting

if TYPE_CHECKING:
    from ....engine.runs.trash import Trash
    from ...base.undo import Acts

REFRESH_SECONDS = 2.0
WIDTHS = {"preset": 18, "state": 13, "gain": 15, "size": 9, "when": 7, "kept": 0}
WIDE = 96  # from this width on sizes are shown
OPEN_STYLES = {"running": "curve1", "waiting": "label"}


class ProofsScreen(DeletingScreen[list[ProofEntry]]):
    """The table of proofs. Enter opens the proof under the cursor."""

    DEFAULT_CSS = """
    ProofsScreen { layout: vertical; background: $background; }
    ProofsScreen #said { padding: 0 1; }
    """
    AUTO_FOCUS = "DataTable"
    DELETES = "proofs"
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("delete", meaning="delete the proof under the cursor, with its trials"),
        *undoing.BINDINGS,
        *keys.back(),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._list = ProofList()

    @property
    def entries(self) -> list[ProofEntry]:
        return self.latest or []

    @property
    def trash(self) -> Trash:
        return self.app.proof_trash

    @property
    def acts_here(self) -> Acts:
        return self.app.acts["proofs"]

    def offers(self, action: str) -> bool:
        """True if the palette lists the action: those of undo only if there is a deleted proof."""
        return action not in ("take_back", "undo_list") or bool(self.acts_here.newest_first)

    @work
    async def action_delete(self) -> None:
        if (at := self.current) is None:
            return
        if at.is_active:
            self.notify("the proof goes on; stop it before deleting it", severity="error")
            return
        name, undo = at.proof.id, self.app.key("undo")
        question = f"Delete this proof with all its trials?\n  {name}\n"
        await self.ask_to_delete([at.proof], lambda used: question + until_quitting(1, used, undo))

    @property
    def table(self) -> OpeningTable:
        return self.query_one(OpeningTable)

    @property
    def current(self) -> ProofEntry | None:
        row = self.table.cursor_row
        return self.entries[row] if 0 <= row < len(self.entries) else None

    def compose(self) -> ComposeResult:
        yield Header()
        yield OpeningTable(cursor_type="row", cell_padding=0)
        yield Panel(self._status_line, id="said")
        yield KeyFooter()

    def readings(self, leaving: threading.Event) -> Iterator[list[ProofEntry]]:
        while not leaving.is_set():
            yield self._list.read()
            if not self._list.measure():
                leaving.wait(REFRESH_SECONDS)

    def show_latest(self) -> None:
        columns = [Column(name, _label(name), width or self._rest()) for name, width in self._widths.items()]
        self.table.fill(columns, {entry.proof.id: self._cells(entry) for entry in self.entries})
        self.query_one(Panel).repaint()

    def _rest(self) -> int:
        return max(10, self.size.width - sum(self._widths.values()) - 1)  # a scrollbar may come

    @property
    def _widths(self) -> dict[str, int]:
        return {name: width for name, width in WIDTHS.items() if name != "size" or self.size.width >= WIDE}

    def on_resize(self) -> None:
        if self.latest is not None:
            self.show_latest()

    def _cells(self, entry: ProofEntry) -> list[Text]:
        name = clean(entry.data.preset_name or entry.proof.id)
        is_open = entry.is_active or entry.state == "waiting"
        sign, style = (
            (self.glyphs.more, OPEN_STYLES.get(entry.state, "curve1")) if is_open else ending(entry.state, self.glyphs)
        )
        word = STATES.get(entry.state, clean(entry.state))
        cells = {
            "preset": Text(f" {fitting(name, WIDTHS['preset'] - 2, self.glyphs)}", no_wrap=True),
            "state": Text(f" {sign} {word}", style=painted_colour(self.app, style)),
            "gain": Text(_gain(entry), justify="right"),
            "size": Text("" if entry.size is None else size(entry.size), justify="right"),
            "when": Text(when_text(entry.when), justify="right"),
            "kept": Text(f"  {fitting(_kept(entry), self._rest() - 3, self.glyphs)}", no_wrap=True),
        }
        return [cells[name] for name in self._widths]

    def _status_line(self, width: int, _height: int) -> list[Row]:
        if not self.entries:
            tune, prove = self.app.key("tune"), self.app.key("prove")
            empty = f"no proofs so far: {tune} in the form starts a search, {prove} in a diagnosis a proof"
            return [[("reading ..." if self.latest is None else empty, "label")]]
        at = self.current
        text = "" if at is None else clean(at.data.doing if at.is_active else conclusion(at.data))
        return [[(fitting(text, width, self.glyphs), "label")]]

    def on_data_table_row_highlighted(self) -> None:
        self.query_one(Panel).repaint()

    def on_data_table_row_selected(self) -> None:
        if self.current is not None:
            self.app.open_proof(self.current.proof)


def _label(name: str) -> Text:
    return Text(f" {name}", justify="right" if name in ("gain", "size", "when") else "left")


def _gain(entry: ProofEntry) -> str:
    """The total gain, or a search's so far. Of a single comparison its gain, even if not kept, or "undecided"."""
    total = entry.data.gain_total
    if total is not None:
        return times(total)
    if entry.data.kind == "tune":
        so_far = gain_so_far(entry.data)
        if so_far is not None:
            return f"{change(so_far)} so far" if entry.is_active else unproven(entry.data).partition(" in")[0]
        return NONE
    listed = entry.data.comparisons
    comparison = listed[0] if listed and entry.data.kind == "ab" else None
    if comparison and comparison.decision == "undecided":
        return "undecided"
    return change(comparison.gain) if comparison else NONE


def _kept(entry: ProofEntry) -> str:
    """The kept changes or, for a search, the best so far; of two settings the compared change; of scaling the
    result."""
    kept = entry.data.changes_kept
    if entry.data.kind == "tune":
        best = kept or search_of(entry.data).best
        return f"search: {clean(proof_sentences.changes(best)) if best else 'nothing found so far'}"
    if entry.data.sweep is not None:
        leading = kept or entry.data.sweep.best
        return f"sweep: {clean(proof_sentences.changes(leading)) if leading else 'nothing found so far'}"
    if entry.data.kind == "scaling":
        return clean(scaled(entry.data))
    listed = entry.data.comparisons
    if not kept and entry.data.kind == "ab" and listed:
        return clean(proof_sentences.changes(listed[0].changes))
    return clean(proof_sentences.changes(kept)) if kept else "nothing kept"
