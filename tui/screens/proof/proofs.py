"""All proofs in a table, the newest first. The table is read again every 2 s."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from ....engine.units import size, times
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
            TableColumn(" kind", 10, lambda entry: f" {clean(entry.data.kind)}"),
            TableColumn(" gain", 12, lambda entry: times(entry.data.gain_total), "right"),
            TableColumn(" size", 9, lambda entry: "" if entry.size is None else size(entry.size), "right", least=WIDE),
            TableColumn(" when", 7, lambda entry: when_text(entry.when), "right"),
            TableColumn(" result", 0, lambda entry: f"  {_result(entry)}"),
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
        text = "" if at is None else _result(at)
        return [[(fitting(text, width, self.glyphs), "label")]]

    def on_data_table_row_selected(self) -> None:
        if self.current is not None:
            self.app.open_proof(self.current.proof)


def _result(entry: ProofEntry) -> str:
    return clean(entry.data.doing if entry.is_active else conclusion(entry.data))
