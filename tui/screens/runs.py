"""Past and present runs in a table: sort, filter, open, compare, delete. It refreshes itself while runs go on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import DataTable, Input

from ...engine.runs import Run, baseline
from ..base.errors import clean
from ..drawing.rows import Row, spread
from ..reading.run_list import Entry, RunList, ordered
from ..widgets.key_footer import KeyFooter
from ..widgets.panel import Panel
from . import catalogue
from .base import FollowingScreen
from .help import LOSS
from .questions import Ask
from .runs_table import RunsTable

REFRESH_SECONDS = 2.0
NAMED = 8  # of the runs to be deleted


class RunsScreen(FollowingScreen[list[Entry]]):
    """The table; marks and sorting stay through its refreshing."""

    CSS_PATH = "runs.tcss"
    AUTO_FOCUS = "DataTable"
    HELP_SECTIONS = (LOSS,)
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
        catalogue.left_out("live"),  # Enter opens one
        catalogue.left_out("runs"),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._list = RunList()
        self.shown: dict[str, Entry] = {}
        self.marked: dict[str, Run] = {}

    def compose(self) -> ComposeResult:
        yield Input(placeholder="filter by words in id, description or state", id="filter", compact=True)
        yield RunsTable()
        yield Panel(self._status_line, id="said")
        yield KeyFooter()

    @property
    def table(self) -> RunsTable:
        return self.query_one(RunsTable)

    @property
    def entries(self) -> list[Entry]:
        return self.latest or []

    @property
    def current(self) -> Entry | None:
        """The run under the cursor."""
        return self.shown.get(self.table.current_key or "")

    # ---- the table ------------------------------------------------------------------------------

    def readings(self, leaving: threading.Event) -> Iterator[list[Entry]]:
        while not leaving.is_set():
            yield self._list.read()
            leaving.wait(REFRESH_SECONDS)

    def show_latest(self) -> None:
        self.marked = {entry.run.id: entry.run for entry in self.entries if entry.run.id in self.marked}
        self.shown = self.table.show(self.entries, self.query_one("#filter", Input).value, self.marked)
        self.query_one(Panel).repaint()

    def rearrange(self) -> None:
        """Another order, another filter, another width, other marks."""
        if self.latest is not None:
            self.show_latest()

    def on_resize(self) -> None:
        self.rearrange()

    def _status_line(self, width: int, height: int) -> list[Row]:
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

    # ---- keys -----------------------------------------------------------------------------------

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        self.action_open()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self.query_one(Panel).repaint()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        self.sort_by(str(event.column_key.value))

    def sort_by(self, column: str) -> None:
        """The same column again turns the order round."""
        self.table.sort_by(column)
        self.rearrange()

    def action_sort(self) -> None:
        self.table.sort_by_next()
        self.rearrange()

    def action_reverse(self) -> None:
        self.sort_by(self.table.order.column)

    def action_open(self) -> None:
        if self.current is not None:
            self.app.open_run(self.current.run)

    def action_mark(self) -> None:
        if (at := self.current) is None:
            return
        if self.marked.pop(at.run.id, None) is None:
            self.marked[at.run.id] = at.run
        self.rearrange()
        self.table.action_cursor_down()

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
        said = f"{_counted(len(back))} {'were' if len(back) > 1 else 'was'} restored" if back else ""
        self._changed(said if back or refused else "there is no deleted run to bring back", refused)

    def _changed(self, said: str, refused: list[str]) -> None:
        """From the threads that delete: say it, and read the table anew."""
        if said:
            self.app.call_from_thread(self.notify, said, markup=False)
        for reason in refused:
            self.app.call_from_thread(self.notify, clean(reason), severity="error", markup=False)
        self.app.call_from_thread(self.read_again)

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
        else:
            super().action_back()


def _counted(count: int) -> str:
    return f"{count} run" if count == 1 else f"{count} runs"


def _deletion(names: list[str], hidden: list[str]) -> str:
    """What is deleted, by name, as far as there is room; and what of it is not seen."""
    listed = "\n".join(f"  {name}{' (hidden)' if name in hidden else ''}" for name in names[:NAMED])
    more = f"\n  and {len(names) - NAMED} more" if len(names) > NAMED else ""
    unseen = f"\n{len(hidden)} of them {'are' if len(hidden) > 1 else 'is'} hidden by the filter." if hidden else ""
    head = f"Delete {_counted(len(names))} with events, checkpoints and log?\n{listed}{more}{unseen}"
    return f"{head}\nUntil you quit gputui, u brings {'them' if len(names) > 1 else 'it'} back."
