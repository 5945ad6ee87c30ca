"""Past and present runs in a table: sort, filter, open, compare, delete. It refreshes itself while runs go on."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer, Input

from ...engine.runs import Run, baseline
from ..base.errors import clean
from ..base.glyphs import Glyphs, glyphs_of
from ..drawing.rows import Row, spread
from ..reading.run_list import COLUMNS, Entry, RunList, ordered, when_text
from ..text.figures import amount, share, size
from ..widgets.panel import Panel

if TYPE_CHECKING:
    from ..base.services import Host
from .common import LOSS, OpeningTable, colour
from .live_actions import name_of
from .questions import Ask

REFRESH_SECONDS = 2.0
WIDTHS = {
    "run": 17, "state": 10, "samples/s": 10, "step ms": 8, "wait": 6,
    "memory": 9, "loss": 8, "when": 7, "description": 0,
}
FIGURES = ("samples/s", "step ms", "wait", "memory", "loss", "when")  # at the right of their columns
NAMED = 8  # of the runs to be deleted
FULL_ID = 100  # from this width on the whole id is shown, with its date


class RunsScreen(Screen[None]):
    """The table; marks and sorting stay through its refreshing."""

    CSS_PATH = "runs.tcss"
    AUTO_FOCUS = "DataTable"
    HELP_SECTIONS = (LOSS,)
    app: Host
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "mark", "Mark"),
        Binding("c", "compare", "Compare"),
        Binding("d,delete", "delete", "Delete", key_display="d"),
        Binding("s", "sort", "Sort by the next column", show=False),
        Binding("S", "reverse", "Reverse", show=False),
        Binding("u", "bring_back", "Undo deleting", show=False),
        Binding("m", "clear_marks", "Clear all marks", show=False),
        Binding("slash", "filter", "Filter", key_display="/"),
        Binding("p", "proofs", "Proofs"),
        Binding("f3,2", "app.live", "Live", show=False),  # Enter opens one
        Binding("f4,3", "app.runs", "Runs", show=False),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._list = RunList()
        self.entries: list[Entry] = []
        self.shown: dict[str, Entry] = {}
        self.marked: dict[str, Run] = {}
        self.column, self.descending = "when", True
        self._reading = False
        self._wide = False

    def compose(self) -> ComposeResult:
        yield Input(placeholder="filter by words in id, description or state", id="filter", compact=True)
        yield OpeningTable(cursor_type="row", cell_padding=0)
        yield Panel(self._said, id="said")
        yield Footer(show_command_palette=False, compact=True)

    @property
    def table(self) -> OpeningTable:
        return self.query_one(OpeningTable)

    @property
    def glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    def on_mount(self) -> None:
        self.refresh_runs()
        self.set_interval(REFRESH_SECONDS, self._again)

    def _again(self) -> None:
        if self.is_current and not self._reading:
            self.refresh_runs()

    def on_screen_resume(self) -> None:
        if self.entries:
            self.refresh_runs()

    @work(thread=True, group="reading")
    def refresh_runs(self) -> None:
        self._reading = True
        try:
            entries = self._list.read()
        finally:
            self._reading = False
        self.app.call_from_thread(self.show, entries)

    # ---- the table ------------------------------------------------------------------------------

    def show(self, entries: list[Entry]) -> None:
        """Only what differs is written, unless rows come, go or change places."""
        self.entries = entries
        words = self.query_one("#filter", Input).value
        now = {entry.run.id: entry for entry in ordered(entries, self.column, self.descending) if entry.matches(words)}
        self.marked = {entry.run.id: entry.run for entry in entries if entry.run.id in self.marked}
        if list(now) != list(self.shown) or not self.table.columns:  # also the first time
            self._fill(now)
        else:
            for name, entry in now.items():
                if entry != self.shown[name]:
                    self._rewrite(entry)
        self.shown = now
        self.query_one(Panel).repaint()

    def _fill(self, now: dict[str, Entry]) -> None:
        table, at = self.table, self.current
        table.clear(columns=True)
        for name in self._columns():
            table.add_column(self._label(name), key=name, width=self._width(name))
        for entry in now.values():
            table.add_row(*self._cells(entry).values(), key=entry.run.id)
        if at is not None and at.run.id in now:
            table.move_cursor(row=list(now).index(at.run.id), animate=False)

    def _columns(self) -> list[str]:
        """The description has a column where there is room; the line below the table shows it anyway."""
        return [name for name in WIDTHS if name != "description" or self._width(name) >= 12]

    def _width(self, name: str) -> int:
        """The run's grows with its ids, the description takes what is left."""
        longest = max((len(entry.run.id) + 3 for entry in self.entries), default=0)
        run = max(WIDTHS["run"], min(longest, self.size.width // 3)) if self._wide else WIDTHS["run"]
        if name == "description":
            rest = sum(WIDTHS.values()) - WIDTHS["run"] + run
            return max(0, self.size.width - rest - 2)
        return run if name == "run" else WIDTHS[name]

    def _label(self, name: str) -> Text:
        arrow = (self.glyphs.down if self.descending else self.glyphs.up) if name == self.column else ""
        text = f"  {name}{arrow}" if name == "run" else f"{name}{arrow}"
        return Text(f"{text:>{WIDTHS[name] - 1}} " if name in FIGURES else f" {text}" if name != "run" else text)

    def _rewrite(self, entry: Entry) -> None:
        for name, cell in self._cells(entry).items():
            self.table.update_cell(entry.run.id, name, cell)

    def _cells(self, entry: Entry) -> dict[str, Text]:
        figures = (
            amount(entry.samples_per_second), amount(entry.step_ms), share(entry.input_wait),
            size(entry.peak_memory_bytes), amount(entry.loss), when_text(entry.when),
        )
        mark = "*" if entry.run.id in self.marked else " "
        name = clean(entry.run.id if self._wide else name_of(entry.run))
        cells = {
            "run": Text(f"{mark} {name}", style="bold" if mark == "*" else "", no_wrap=True),
            "state": Text(f" {self._sign(entry)} {entry.state_word}", style=colour(self.app, _kind(entry))),
        }
        for column, text in zip(FIGURES, figures, strict=True):
            cells[column] = Text(f"{text:>{WIDTHS[column] - 1}} ")
        cells["description"] = Text(f" {clean(entry.description)}".replace("\n", " "), no_wrap=True)
        return {column: cells[column] for column in self._columns()}

    def _sign(self, entry: Entry) -> str:
        if entry.goes_on:
            return self.glyphs.more
        return self.glyphs.ok if entry.state == "ok" else self.glyphs.failed[:1]

    def _said(self, width: int, height: int) -> list[Row]:
        """The whole id of the run under the cursor, and how many there are."""
        at = self.current
        hidden = f" ({len(self._hidden)} hidden)" if self._hidden else ""
        marked = f"{len(self.marked)} marked{hidden}, m clears  " if self.marked else ""
        count = f"{marked}{len(self.shown)} of {len(self.entries)} runs"
        if self._list.closed:
            count += f", {self._list.closed} not readable"
        empty = "no runs so far: gputui --preset quickstart starts one" if not self.entries else ""
        about = f"  {clean(at.damage or at.description)}" if at else ""
        left = [(clean(at.run.id) if at else empty, "value"), (about, "label")]
        return [spread(left, [("  " + count, "label")], width)]

    @property
    def current(self) -> Entry | None:
        """The run under the cursor."""
        names, row = list(self.shown), self.table.cursor_row
        return self.shown[names[row]] if 0 <= row < len(names) else None

    def on_resize(self) -> None:
        self._wide = self.size.width >= FULL_ID
        self.rearrange()

    def rearrange(self) -> None:
        """Everything anew: another order, another filter, another width."""
        if not self.table.columns:
            return
        at = self.current
        self.shown = {}
        self.show(self.entries)
        if at is not None and at.run.id in self.shown:
            self.table.move_cursor(row=list(self.shown).index(at.run.id), animate=False)

    # ---- keys -----------------------------------------------------------------------------------

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self.action_open()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self.query_one(Panel).repaint()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        self.sort_by(str(event.column_key.value))

    def sort_by(self, column: str) -> None:
        """The same column again turns the order round."""
        self.descending = not self.descending if column == self.column else column not in ("run", "description")
        self.column = column
        self.rearrange()

    def action_sort(self) -> None:
        names = [name for name in COLUMNS if name in self._columns()]
        self.column = self.column if self.column in names else names[0]
        self.sort_by(names[(names.index(self.column) + 1) % len(names)])

    def action_reverse(self) -> None:
        self.sort_by(self.column)

    def action_open(self) -> None:
        if self.current is not None:
            self.app.open_run(self.current.run)

    def action_mark(self) -> None:
        if (at := self.current) is None:
            return
        if self.marked.pop(at.run.id, None) is None:
            self.marked[at.run.id] = at.run
        self._rewrite(at)
        self.table.action_cursor_down()
        self.query_one(Panel).repaint()

    def action_clear_marks(self) -> None:
        self.marked = {}
        self.rearrange()

    def action_compare(self) -> None:
        if len(baseline.line_up(self.marked.values()).runs) < 2:
            self.notify("mark two or more runs with space, then press c to compare them")
            return
        oldest_first = [entry.run for entry in ordered(self.entries, "when", False) if entry.run.id in self.marked]
        self.app.open_compare(oldest_first)

    @property
    def _hidden(self) -> list[str]:
        """The marked runs that the filter hides."""
        return [name for name in self.marked if name not in self.shown]

    @work
    async def action_delete(self) -> None:
        chosen = list(self.marked.values()) or [at.run for at in (self.current,) if at]
        if not chosen:
            return
        question = _deletion([run.id for run in chosen], self._hidden if self.marked else [])
        if await self.app.push_screen_wait(Ask(question, ("Delete", "Keep"))) == "Delete":
            self._delete(chosen)

    @work(thread=True, group="deleting")
    def _delete(self, chosen: list[Run]) -> None:
        gone, refused = self.app.trash.put(chosen)
        said = f"deleted {_counted(len(gone))}; u brings {'them' if len(gone) > 1 else 'it'} back" if gone else ""
        self._changed(said, refused)

    @work(thread=True, group="deleting")
    def action_bring_back(self) -> None:
        back, refused = self.app.trash.bring_back()
        said = f"{_counted(len(back))} {'are' if len(back) > 1 else 'is'} there again" if back else ""
        self._changed(said if back or refused else "there is no deleted run to bring back", refused)

    def _changed(self, said: str, refused: list[str]) -> None:
        """From the threads that delete: say it, and read the table anew."""
        if said:
            self.app.call_from_thread(self.notify, said, markup=False)
        for reason in refused:
            self.app.call_from_thread(self.notify, clean(reason), severity="error", markup=False)
        self.app.call_from_thread(self.refresh_runs)

    def action_proofs(self) -> None:
        self.app.open_proofs()

    def action_filter(self) -> None:
        line = self.query_one("#filter", Input)
        line.add_class("-shown")
        line.focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        self.rearrange()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        self.table.focus()

    def action_back(self) -> None:
        """Out of the filter, then out of the screen."""
        line = self.query_one("#filter", Input)
        if line.has_class("-shown"):
            line.value = ""
            line.remove_class("-shown")
            self.table.focus()
        elif len(self.app.screen_stack) > 1:
            self.app.pop_screen()


def _counted(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _deletion(names: list[str], hidden: list[str]) -> str:
    """What is deleted, by name, as far as there is room; and what of it is not seen."""
    listed = "\n".join(f"  {name}{' (hidden)' if name in hidden else ''}" for name in names[:NAMED])
    more = f"\n  and {len(names) - NAMED} more" if len(names) > NAMED else ""
    unseen = f"\n{len(hidden)} of them {'are' if len(hidden) > 1 else 'is'} hidden by the filter." if hidden else ""
    head = f"Delete {_counted(len(names))} with events, checkpoints and log?\n{listed}{more}{unseen}"
    return f"{head}\nUntil you quit gputui, u brings {'them' if len(names) > 1 else 'it'} back."


def _kind(entry: Entry) -> str:
    if entry.goes_on:
        return "primary"
    return "success" if entry.state == "ok" else "warning" if entry.state == "stopped" else "error"
