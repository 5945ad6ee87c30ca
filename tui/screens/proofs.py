"""All proofs in a table, the newest first; it refreshes itself while one goes on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer

from ...engine.proof import sentences
from ..base.errors import clean
from ..base.glyphs import Glyphs, glyphs_of
from ..drawing.proof import STATES, conclusion
from ..drawing.rows import Row, fitting
from ..reading.proof_list import ProofEntry, ProofList
from ..reading.run_list import when_text
from ..reading.store import mapping, number
from ..text.figures import NONE
from ..widgets.panel import Panel
from .common import OpeningTable, styled

if TYPE_CHECKING:
    from ..base.services import Host

REFRESH_SECONDS = 2.0
EMPTY = "no proofs so far: d, then p, in the live view of an ended run makes one"
WIDTHS = {"preset": 18, "state": 13, "gain": 14, "when": 8, "kept": 0}
_STYLES = {"running": "curve1", "done": "good", "stopped": "warn"}


class ProofsScreen(Screen[None]):
    """The table; Enter opens a proof."""

    DEFAULT_CSS = """
    ProofsScreen { layout: vertical; background: $background; }
    ProofsScreen #said { margin: 0 1; }
    """
    AUTO_FOCUS = "DataTable"
    app: Host
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "back", "Back")]

    def __init__(self) -> None:
        super().__init__()
        self._list = ProofList()
        self.entries: list[ProofEntry] = []
        self._shown: list[str] = []
        self._reading = False
        self._read = False

    @property
    def glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    @property
    def table(self) -> OpeningTable:
        return self.query_one(OpeningTable)

    @property
    def current(self) -> ProofEntry | None:
        row = self.table.cursor_row
        return self.entries[row] if 0 <= row < len(self.entries) else None

    def compose(self) -> ComposeResult:
        yield OpeningTable(cursor_type="row", cell_padding=0)
        yield Panel(self._said, id="said")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.refresh_proofs()
        self.set_interval(REFRESH_SECONDS, self._again)

    def _again(self) -> None:
        if self.is_current and not self._reading:
            self.refresh_proofs()

    @work(thread=True, group="reading")
    def refresh_proofs(self) -> None:
        self._reading = True
        try:
            entries = self._list.read()
        finally:
            self._reading = False
        self.app.call_from_thread(self.show, entries)

    def show(self, entries: list[ProofEntry]) -> None:
        """Only what differs is written, unless rows come or go."""
        before = {entry.proof.id: entry for entry in self.entries}
        self.entries, self._read = entries, True
        ids = [entry.proof.id for entry in entries]
        if ids != self._shown or not self.table.columns:
            self._fill()
        else:
            for entry in entries:
                if entry != before[entry.proof.id]:
                    for name, cell in zip(WIDTHS, self._cells(entry), strict=True):
                        self.table.update_cell(entry.proof.id, name, cell)
        self._shown = ids
        self.query_one(Panel).repaint()

    def _fill(self) -> None:
        at, table = self.current, self.table
        row = table.cursor_row
        table.clear(columns=True)
        for name, width in WIDTHS.items():
            label = Text(f" {name}", justify="right" if name in ("gain", "when") else "left")
            table.add_column(label, key=name, width=width or self._rest())
        for entry in self.entries:
            table.add_row(*self._cells(entry), key=entry.proof.id)
        if at is not None:
            table.move_cursor(row=row, animate=False)

    def _rest(self) -> int:
        return max(10, self.size.width - sum(WIDTHS.values()) - 2)

    def on_resize(self) -> None:
        if self._read:
            self._fill()

    def _cells(self, entry: ProofEntry) -> list[Text]:
        name = clean(entry.data.get("preset_name") or entry.proof.id)
        sign = self.glyphs.more if entry.goes_on else self.glyphs.ok if entry.state == "done" else self.glyphs.failed
        word = STATES.get(entry.state, clean(entry.state))
        return [
            Text(f" {fitting(name, WIDTHS['preset'] - 2, self.glyphs)}", no_wrap=True),
            Text(f" {sign} {word}", style=styled(self.app, _STYLES.get(entry.state, "bad"))),
            Text(_gain(entry), justify="right"),
            Text(when_text(entry.when), justify="right"),
            Text(f"  {fitting(_kept(entry), self._rest() - 3, self.glyphs)}", no_wrap=True),
        ]

    def _said(self, width: int, height: int) -> list[Row]:
        """What the proof under the cursor came to."""
        if not self.entries:
            return [[(EMPTY if self._read else "reading ...", "label")]]
        at = self.current
        said = "" if at is None else clean(at.data.get("doing") if at.goes_on else conclusion(at.data))
        return [[(fitting(said, width, self.glyphs), "label")]]

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self.query_one(Panel).repaint()

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        if self.current is not None:
            self.app.open_proof(self.current.proof)

    def action_back(self) -> None:
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()


def _gain(entry: ProofEntry) -> str:
    """How many times as fast; of one comparison, its own gain, kept or not."""
    total = number(entry.data.get("gain_total"))
    if total is not None:
        return sentences.times(total)
    listed = entry.data.get("comparisons")
    one = mapping(listed[0]) if isinstance(listed, list) and listed and entry.data.get("kind") == "ab" else {}
    if one.get("decision") == "undecided":
        return "undecided"
    return sentences.percent(number(one.get("gain"))) if one else NONE


def _kept(entry: ProofEntry) -> str:
    """The changes that were kept, or what was compared."""
    kept = mapping(entry.data.get("changes_kept"))
    listed = entry.data.get("comparisons")
    if not kept and entry.data.get("kind") == "ab" and isinstance(listed, list) and listed:
        return clean(sentences.changes(mapping(mapping(listed[0]).get("changes"))))
    return clean(sentences.changes(kept)) if kept else "nothing kept"
