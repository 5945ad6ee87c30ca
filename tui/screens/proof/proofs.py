"""All proofs in a table, the newest first. The table is read again every 2 s."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import ClassVar

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
from ...drawing.proof import STATES, conclusion
from ...drawing.rows import Piece, Row, fitting
from ...reading.proofs import ProofEntry, ProofList
from ...reading.run_list import when_text
from ...widgets.key_footer import KeyFooter
from ...widgets.row_widgets import Panel
from ...widgets.table import OpeningTable
from ...wording.run import ending
from .. import undoing
from ..base import Header
from ..runs.actions import DeletingScreen, until_quitting
from ..table import TableColumn, TableScreen

REFRESH_SECONDS = 2.0
WIDE = 96  # from this width on sizes are shown
OPEN_STYLES = {"running": "curve1", "waiting": "label"}


class ProofsScreen(TableScreen[ProofEntry], DeletingScreen[list[ProofEntry]]):
    """The table of proofs. Enter opens the proof under the cursor."""

    DEFAULT_CSS = """
    ProofsScreen { layout: vertical; background: $background; }
    ProofsScreen #detail { padding: 0 1; }
    """
    PLACE = "proofs"
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("delete", meaning="delete the proof under the cursor, with its trials"),
        *undoing.BINDINGS,
        *keys.back(),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._list = ProofList()

    @property
    def entries(self) -> Mapping[str, ProofEntry]:
        return {entry.proof.id: entry for entry in self.latest or ()}

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

    def compose(self) -> ComposeResult:
        yield Header()
        yield OpeningTable(cursor_type="row", cell_padding=0)
        yield Panel(self._status_line, id="detail")
        yield KeyFooter()

    def readings(self, leaving: threading.Event) -> Iterator[list[ProofEntry]]:
        while not leaving.is_set():
            yield self._list.read()
            if not self._list.measure():
                leaving.wait(REFRESH_SECONDS)

    def columns(self) -> list[TableColumn[ProofEntry]]:
        return [
            TableColumn(" preset", 18, lambda entry: f" {clean(entry.data.preset_name or entry.proof.id)}"),
            TableColumn(" state", 13, self._state),
            TableColumn(" gain", 15, _gain, "right"),
            TableColumn(" size", 9, lambda entry: "" if entry.size is None else size(entry.size), "right", least=WIDE),
            TableColumn(" when", 7, lambda entry: when_text(entry.when), "right"),
            TableColumn(" kept", 0, lambda entry: f"  {_kept(entry)}"),
        ]

    def _state(self, entry: ProofEntry) -> Piece:
        is_open = entry.is_active or entry.state == "waiting"
        opened = self.glyphs.more, OPEN_STYLES.get(entry.state, "curve1")
        sign, style = opened if is_open else ending(entry.state, self.glyphs)
        return f" {sign} {STATES.get(entry.state, clean(entry.state))}", style

    def _status_line(self, width: int, _height: int) -> list[Row]:
        if not self.entries:
            tune, prove = self.app.key("tune"), self.app.key("prove")
            empty = f"no proofs so far: {tune} in the form starts a search, {prove} in a diagnosis a proof"
            return [[("reading ..." if self.latest is None else empty, "label")]]
        at = self.current
        text = "" if at is None else clean(at.data.doing if at.is_active else conclusion(at.data))
        return [[(fitting(text, width, self.glyphs), "label")]]

    def on_data_table_row_selected(self) -> None:
        if self.current is not None:
            self.app.open_proof(self.current.proof)


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
    if entry.data.answer:
        return clean(entry.data.answer)
    if entry.data.kind == "scaling":
        return clean(scaled(entry.data))
    listed = entry.data.comparisons
    if not kept and entry.data.kind == "ab" and listed:
        return clean(proof_sentences.changes(listed[0].changes))
    return clean(proof_sentences.changes(kept)) if kept else "nothing kept"
