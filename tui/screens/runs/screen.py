"""The screen of past and present runs in a table: sort, filter, open, compare, delete. It is updated every 2 s.
Deferred imports: dialogs are needed only when a key asks for them."""

from __future__ import annotations

import asyncio
import textwrap
import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Horizontal, Vertical
from textual.widgets import DataTable, Input

from ....engine.compare.comparison import line_up
from ....engine.files.writing import used_bytes
from ....engine.runs import Run
from ....engine.runs.run import WAITING
from ....engine.runs.trash import delete_all
from ....engine.units import counted, size
from ...base import keys
from ...base.base_app import Act
from ...base.errors import clean
from ...base.glyphs import Glyphs, glyphs_of
from ...drawing import sweep
from ...drawing.charts import plots
from ...drawing.live import head, phases
from ...drawing.live.phases import CATCHING_UP
from ...drawing.plot.cursor import named_last
from ...drawing.rows import Row, fitting, hanging, length, spread, wrapped
from ...reading import proofs
from ...reading.run.reader import Picture, RunReader
from ...reading.run.snapshot import Snapshot
from ...reading.run_columns import COLUMNS, ordered
from ...reading.run_list import Entry, RunList, folded
from ...reading.sweep_rows import MeasurementEntry, SweepEntry, of_measurements
from ...upstream.thread_imports import in_background
from ...widgets.charts import EMPTY as NO_PLOT
from ...widgets.charts import Chart
from ...widgets.key_footer import KeyFooter
from ...widgets.row_widgets import Panel
from ..base import FollowingScreen, Header
from ..dialogs import UNDO_BINDINGS, Ask
from ..help import LOSS, QUEUE
from . import actions
from .actions import RunActions
from .run_table import ColumnsScreen, Order, RunsTable

if TYPE_CHECKING:
    from ....engine.runs.trash import Deletable
    from ....engine.trials.record import Record
    from ...base.base_app import BaseApp
    from ...reading.queue_places import Waiting


OF_A_RUN = ("again", "change", "copy", "name", "note", "stop", "resume")  # actions that only a run has
FOR_GOOD = "Nothing can be kept to be brought back ({refusal}).\nDelete for good?"
NAMED = 8  # names in the question, at most
OF_RUNS = ("mark", "compare", "tags")  # also of the trials of a sweep
MOST_COMPARED = 12  # trials, the best first


REFRESH_SECONDS = 2.0
FILTERED_BY = "filter by words in title, state, day, id, #tag, note or description"
FIRST = 200  # of the newest runs: there may be thousands, and more are read when the cursor comes near the last of them


class RunsScreen(FollowingScreen[list[Entry]], RunActions):
    """The table of runs and measurements. Marks stay; columns, order and filter are kept in the settings."""

    CSS_PATH = "runs.tcss"
    KEPT, kept_as = 1, "runs"
    AUTO_FOCUS = "DataTable"
    HELP_SECTIONS = (QUEUE, LOSS)
    BINDINGS: ClassVar[list[BindingType]] = [
        *actions.BINDINGS,
        keys.bind("mark", meaning="mark or unmark the run"),
        keys.bind("prove", "sweep", "Sweep", meaning="the settings, curves and result of the sweep under the cursor"),
        keys.bind("stop", meaning="stop the run under the cursor"),
        keys.bind("resume", meaning="resume the run under the cursor from its last checkpoint"),
        keys.bind(
            "compare", meaning="compare the marked runs, one with that under the cursor, or that with the run before it"
        ),
        keys.bind("search", "filter", "Filter", meaning=FILTERED_BY),
        keys.bind("delete", meaning="delete the marked runs, or the one under the cursor"),
        keys.bind("note"),
        keys.bind("tags", show=False, meaning="give tags to the marked runs, or to the one under the cursor"),
        keys.bind("name", show=False),
        keys.bind("columns", show=False),
        keys.bind("side_view", show=False),
        keys.bind("sort_left", "sort(-1)", show=False),
        keys.bind("sort_right", "sort(1)", show=False),
        *UNDO_BINDINGS,
        keys.bind("invert", show=False),
        keys.bind("start", "again", "Run again", show=False, meaning="run the same preset again"),
        keys.bind("edit", "change", "Edit options", show=False, meaning="open the options of the run in the form"),
        keys.bind("copy", show=False, meaning="copy the run's id or folder"),
        keys.bind("unmark", "clear_marks", show=False),
        *keys.back(),
    ]

    def __init__(self) -> None:
        super().__init__()
        self._list = RunList()
        self._records: Mapping[str, Record] = {}  # of the measurements, by their ids
        self._most: int | None = None  # runs to read; None: all, as a filter or an order needs them
        self._rows = FIRST  # of the table, at most
        self.shown: dict[str, Entry] = {}  # the rows: runs that match the filter, and sweeps
        self.marked: dict[str, Run] = {}
        self._go_to = ""  # the run that gets the cursor once it is listed
        self._to_newest = False  # the cursor goes to the first row after the next reading

    def compose(self) -> ComposeResult:
        kept = self.app.settings.runs
        seen = "-shown" if kept.filter else ""
        yield Header()
        yield Input(kept.filter, placeholder=FILTERED_BY, id="filter", compact=True, classes=seen)
        chosen = [name for name in kept.columns if name in COLUMNS]
        with Horizontal(id="body"):
            yield RunsTable(chosen, Order(kept.sort, kept.descending) if kept.sort in COLUMNS else None)
            yield SideView()
        yield Panel(self._status_line, id="status")
        yield KeyFooter()

    def on_mount(self) -> None:
        kept = self.app.settings.runs
        if unknown := [name for name in (*kept.columns, kept.sort) if name not in COLUMNS]:
            self.app.complain(f"{self.app.settings.path}: there is no column {unknown[0]}; known: {', '.join(COLUMNS)}")
        self._most = None if self._needs_all else FIRST

    @property
    def table(self) -> RunsTable:
        return self.query_one(RunsTable)

    @property
    def entries(self) -> list[Entry]:
        return self.latest or []

    @property
    def waiting_now(self) -> Waiting | None:
        return self.current.waiting if self.current else None

    def acted(self, run: Run, resumed: bool = False) -> None:
        if resumed:
            self.app.open_run(run)
        else:
            self.read_again()

    @property
    def current(self) -> Entry | None:
        """The entry under the cursor. None before the table is built, as the footer may need it earlier."""
        return self.shown.get(self.table.current_key or "") if self.shown else None

    @property
    def current_sweep(self) -> SweepEntry | None:
        """The sweep whose row is under the cursor. None for a run, and for a measurement without runs."""
        at = self.current
        return at if isinstance(at, SweepEntry) else None

    @property
    def _under_cursor(self) -> list[Entry]:
        at = self.current
        return [] if at is None else list(at.trials) if at.group else [at]

    @property
    def runs_meant(self) -> list[Run]:
        """Return the marked runs or, if none are marked, the run under the cursor or the trials of the sweep there."""
        return list(self.marked.values()) or [entry.run for entry in self._under_cursor]

    @property
    def run_meant(self) -> Run | None:
        """The run under the cursor, also if other runs are marked. None if there is none, and for a sweep."""
        return self.current.run if self.current and not self.current.group else None

    def can(self, action: str) -> bool | str:
        at = self.current
        match action:
            case "clear_marks":
                return bool(self.marked)
            case "sweep":
                return self.current_sweep is not None
            case _ if action in OF_RUNS and at is not None and at.group and not at.trials:
                return False
            case "stop" | "resume" if at is None:
                return "no run is under the cursor"
            case "stop" | "resume" if at is not None and at.group:
                return f"{self.app.key('prove' if at.trials else 'open')} opens the {at.group}, which has this key"
            case "side_view" if self.size.width < FROM:
                return f"there is room for it from {FROM} columns on"
            case "stop" if at is not None and not (at.is_active or at.waiting):
                return f"{at.name} is not running (it is {at.state_word})"
            case "resume" if at is not None and not at.resumable:
                ended = not at.is_active and at.state not in ("ok", WAITING)
                return f"{at.name} has no checkpoint" if ended else f"{at.name} is {at.state_word}"
            case "move_waiting" | "hold_waiting" | "release_waiting" if at is not None and at.waiting is None:
                name = f"the {at.group}" if at.group else at.name
                return f"{name} does not wait in the queue (it is {at.state_word})"
        return not (at and at.group and action in OF_A_RUN) and super().can(action)

    # ---- the table ------------------------------------------------------------------------------

    def readings(self, leaving: threading.Event) -> Iterator[list[Entry]]:
        while not leaving.is_set():
            entries, measured = self._list.read(self._most), proofs.all_proofs()
            self._records = {each.proof.id: each.data for each in measured}
            yield [*entries, *of_measurements(measured, entries, self._list.queue)]
            if not self._list.measure() | proofs.measure():
                leaving.wait(REFRESH_SECONDS)

    def opened_again(self, _other: RunsScreen) -> None:
        self._to_newest = self.table.cursor_row == 0  # a cursor that was left there does not stay with its run

    def watch_latest(self) -> None:
        super().watch_latest()
        if self._to_newest:
            self._to_newest = False
            self.table.move_cursor(row=0, animate=False)

    def show_latest(self) -> None:
        if self.marked:
            self.marked = {entry.run.id: entry.run for entry in self.entries if entry.run.id in self.marked}
        has_side = self.app.settings.runs.side_view and self.size.width >= FROM
        side_width = max(LEAST_WIDTH, int(self.size.width * SHARE)) if has_side else 0
        self.query_one(SideView).place(side_width)
        words, room = self.query_one("#filter", Input).value, self.size.width - side_width
        show = partial(self.table.show, self.entries, self._records, words, self.marked, room)
        self.shown = show(self._rows)
        if self._go_to not in self.shown:  # a trial of a closed sweep
            self._go_to = next((entry.sweep for entry in self.entries if entry.run.id == self._go_to), self._go_to)
        if self._go_to in self.shown:
            at = list(self.shown).index(self._go_to)
            if at >= self._rows:
                self._rows = at + FIRST
                show(self._rows)
            self.table.move_cursor(row=at, animate=False)
            self._go_to = ""
        panel = self.query_one("#status", Panel)
        width = panel.content_size.width or self.size.width
        panel.styles.height = 1 + max((len(self._about_waiting(at, width)) for at in self.entries), default=0)
        self._show_current()

    def _show_current(self) -> None:
        """Show the text about the run under the cursor, its side view, and the keys that have an effect on it."""
        self.query_one("#status", Panel).repaint()
        self.query_one(SideView).show(self.current)
        now = self.waiting_now
        is_sweep = self.current is not None and bool(self.current.group)
        able = [self.can(action) for action in ("stop", "resume", "undo_list")]
        self.offer_by(now is not None, now is not None and now.held, is_sweep, bool(self.marked), *able)

    @property
    def _needs_all(self) -> bool:
        return bool(self.query_one("#filter", Input).value) or self.table.order != Order()

    @property
    def _unread(self) -> int:
        listed = sum(not entry.group for entry in self.entries)
        return max(0, self._list.total - listed) if self._most is not None else 0

    def _read_more(self, most: int | None) -> None:
        self._most = most
        self.read_again()

    def rearrange(self, go_to: str = "") -> None:
        """Show the table again after a change. The cursor goes to the row `go_to`, else it stays."""
        self._go_to = go_to or self._go_to
        if self._most is not None and self._needs_all:
            self._read_more(None)
        if self.latest is not None:
            self.show_latest()

    def show_again(self) -> None:
        self.rearrange()

    def _status_line(self, width: int, _height: int) -> list[Row]:
        """About the run under the cursor; the numbers of runs; for a waiting run its place, start and why it waits."""
        at = self.current
        hidden = f" ({len(self._hidden)} hidden)" if self._hidden else ""
        marked = f"{len(self.marked)} marked{hidden}, {self.app.key('unmark')} clears  " if self.marked else ""
        if self.latest is None:
            return [[("reading the runs ...", "label")]]
        total = self._list.total if self._unread else sum(not entry.group for entry in folded(self.entries))
        reading = f"{CATCHING_UP}  " if self.is_stale else ""
        count = f"{reading}{marked}{self.table.matching} of {counted(total, 'runs')}"
        count += f" ({self.table.in_closed})" if self.table.in_closed else ""
        if self._list.closed:
            count += f", {self._list.closed} not readable"
        start, form = self.app.key("start"), self.app.key("form")
        empty = "" if self.entries else f"no runs so far: {start} in the form ({form}) starts one"
        about = f"  {clean(_about(at))}" if at else ""
        left = [(clean(at.run.id) if at else empty, "value")]
        right: Row = [("  " + count, "label")]
        about = fitting(about, max(0, width - length([*left, *right])), self.glyphs)
        rows = [spread([*left, (about, "label")], right, width)]
        return [*rows, *([(line, "value")] for line in (self._about_waiting(at, width) if at else ()))]

    def _about_waiting(self, entry: Entry, width: int) -> list[str]:
        # In at most two lines.
        lines = textwrap.wrap(clean(str(entry.waiting)), max(1, width)) if entry.waiting is not None else []
        return [*lines[:1], fitting(" ".join(lines[1:]), width, self.glyphs)] if lines[1:] else lines

    # ---- keys -----------------------------------------------------------------------------------

    def on_runs_table_folded(self, event: RunsTable.Folded) -> None:
        self.rearrange(event.sweep)

    def action_open(self) -> None:
        """Open the run or measurement under the cursor. A sweep there shows its trials below it, or hides them."""
        if (at := self.current) is not None and at.trials:
            self.query_one(RunsTable).open_or_close(at.run.id)
        elif isinstance(at, MeasurementEntry):
            self.app.open_proof(at.proof)
        elif at is not None:
            self.app.open_run(at.run)

    def action_mark(self) -> None:
        """Mark the run under the cursor, or unmark it. For a sweep this marks or unmarks all of its trials."""
        runs = {entry.run.id: entry.run for entry in self._under_cursor}
        if all(name in self.marked for name in runs):
            self.marked = {name: run for name, run in self.marked.items() if name not in runs}
        else:
            self.marked |= runs
        self.rearrange()

    def action_sweep(self) -> None:
        if (sweep := self.current_sweep) is not None and sweep.record.is_read:
            self.app.open_proof(sweep.proof)
        else:
            self.say("this sweep was deleted; its trials are still here")

    def on_data_table_row_selected(self) -> None:
        self.action_open()

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        near = event.cursor_row + FIRST // 2
        if near >= self._rows and len(self.shown) > self._rows:
            self._rows *= 4
            self.call_after_refresh(self.rearrange)
        if self.entries and self._unread and near >= len(self.shown):  # a key may come before the first reading
            self._read_more(4 * len(self.entries))
        self._show_current()

    def on_data_table_header_selected(self, event: DataTable.HeaderSelected) -> None:
        self.sort_by(str(event.column_key.value))

    def sort_by(self, column: str) -> None:
        self._sort(self.table.order.by(column))

    def action_sort(self, by: int) -> None:
        """Sort by the next (1) or previous (-1) column, round the end."""
        names, column = self.table.names, self.table.order.column
        at = names.index(column) + by if column in names else 0
        if names:
            self._sort(Order("").by(names[at % len(names)]))

    def action_invert(self) -> None:
        self.sort_by(self.table.order.column)

    def _sort(self, order: Order) -> None:
        self.table.order = order
        self.app.settings.change("runs.sort", order.column)
        self.app.settings.change("runs.descending", order.descending)
        self.rearrange()

    @work(group="columns")
    async def action_columns(self) -> None:
        chosen = await self.app.push_screen_wait(ColumnsScreen(self.table.names))
        if chosen is not None:
            former = self.table.chosen
            self._choose_columns(tuple(chosen))
            if former != tuple(chosen):
                back = partial(self.app.call_from_thread, self._choose_columns, former)
                self.did("changed the columns", back)

    def _choose_columns(self, chosen: tuple[str, ...]) -> None:
        self.table.chosen = chosen
        self.app.settings.change("runs.columns", chosen)
        self.rearrange()

    def action_side_view(self) -> None:
        self.app.settings.change("runs.side_view", not self.app.settings.runs.side_view)
        self.rearrange()

    def on_chart_opened(self) -> None:
        self.action_open()

    def action_clear_marks(self) -> None:
        self.marked = {}
        self.rearrange()

    def action_compare(self) -> None:
        """Compare the marked runs; a single one with that under the cursor; else that with the baseline or the run
        before; of a sweep the best trials."""
        chosen = dict(self.marked)
        if not chosen and (sweep := self.current_sweep) is not None:
            self.app.open_compare(sweep.best_first[:MOST_COMPARED])
            return
        if len(chosen) < 2:
            chosen |= {entry.run.id: entry.run for entry in self._under_cursor}
        if not self.marked and self.current and len(line_up(chosen.values()).runs) < 2:
            older = [each.run for each in self.entries if not each.group and each.run.id < self.current.run.id]
            chosen |= {run.id: run for run in [max(older, key=lambda run: run.id)]} if older else {}
        if len(line_up(chosen.values()).runs) < 2:
            mark, compare = self.app.key("mark"), self.app.key("compare")
            self.notify(f"mark a run with {mark}, then press {compare} on another to compare them")
            return
        self.app.open_compare([entry.run for entry in ordered(self.entries, "when", False) if entry.run.id in chosen])

    @property
    def _hidden(self) -> list[str]:
        in_sweeps = {trial.run.id for entry in self.shown.values() for trial in entry.trials}
        return [name for name in self.marked if name not in self.shown and name not in in_sweeps]

    @work
    async def action_delete(self) -> None:
        if not self.marked and isinstance(at := self.current, MeasurementEntry) and not at.trials:
            if at.is_active or at.waiting is not None:
                self.say(f"the {at.noun} goes on; stop it before deleting it", "error")
            else:
                question = f"Delete this {at.noun} with all its trials?\n  {at.run.id}"
                await self._ask_to_delete([at.proof], question, "proofs")
            return
        if not (chosen := self.runs_meant):
            return
        meant = {run.id for run in chosen}
        waiting = [entry for entry in self.entries if entry.run.id in meant and entry.state == WAITING]
        if waiting:
            self.say(f"{waiting[0].named} waits in the queue; {self.app.key('stop')} takes it out")
            return
        entries = {entry.run.id: entry for entry in self.entries}
        workers = [name for run in chosen if run.id in entries for name in entries[run.id].workers]
        # The table does not show those of its other workers.
        others = {name: entries[name].run for name in workers if name in entries and entries[name].run not in chosen}
        chosen = [*chosen, *others.values()]
        names, hidden, of_workers = (
            [entries[id_].named if id_ in entries else id_ for id_ in ids]
            for ids in ([run.id for run in chosen], self._hidden, others)
        )
        about = dict.fromkeys(of_workers, " (its worker)") | dict.fromkeys(hidden, " (hidden)")
        unseen = f"\n{len(hidden)} of them {'are' if len(hidden) > 1 else 'is'} hidden by the filter." if hidden else ""
        head = (
            f"Delete {counted(len(names), 'runs')} with events, checkpoints and log?\n{_listed(names, about)}{unseen}"
        )
        await self._ask_to_delete(chosen, head)

    async def _ask_to_delete(self, chosen: Sequence[Deletable], question: str, place: str = "runs") -> None:
        """Ask, then delete; again if the items cannot be kept in the trash of `place`."""
        sizes = await asyncio.to_thread(lambda: {item.id: used_bytes(item.path) for item in chosen})
        until = f"Until you quit gputui, {self.app.key('undo')} brings {'them' if len(chosen) > 1 else 'it'} back."
        question += f"\n{until}\nQuitting frees {size(sum(sizes.values()))}."
        if await self.app.push_screen_wait(Ask(question, ("Delete", "Keep"))) != "Delete":
            return
        refusal = await asyncio.to_thread(self.app.trash(place).refusal, chosen[0].path.parent)
        for_good = Ask(FOR_GOOD.format(refusal=refusal), ("Delete for good", "Keep"))
        if not refusal or await self.app.push_screen_wait(for_good) == "Delete for good":
            self._delete(chosen, sizes, place, for_good=bool(refusal))

    @work(thread=True, group="deleting")
    def _delete(self, chosen: Sequence[Deletable], sizes: Mapping[str, int], place: str, for_good: bool) -> None:
        trash = self.app.trash(place)
        gone, refused = delete_all(chosen, trash.reserve) if for_good else trash.put(chosen)
        freed = size(sum(sizes[item.id] for item in gone))
        back = f"{self.app.key('undo')} brings {'them' if len(gone) > 1 else 'it'} back; quitting frees {freed}"
        what = f"deleted {counted(len(gone), place)}"
        message = f"{what} for good: {freed} are free" if for_good else f"{what}; {back}"
        if gone and not for_good:
            done = f"{counted(len(gone), place)} {'were' if len(gone) > 1 else 'was'} restored"
            named = f"{what}: {gone[0].id}{f' and {len(gone) - 1} more' if len(gone) > 1 else ''}"
            self.did(named, lambda: trash.bring_back(gone)[1], done, gone[0].id)
        if gone:
            self.app.call_from_thread(self.notify, message, markup=False)
        for reason in refused:
            self.app.call_from_thread(self.notify, clean(reason), severity="error", markup=False)
        self.app.call_from_thread(self.read_again)

    def taken_back(self, act: Act) -> None:
        self._go_to = act.key
        self.read_again()

    def action_filter(self) -> None:
        line = self.query_one("#filter", Input)
        line.add_class("-shown")
        line.focus()

    def on_input_changed(self) -> None:
        self._rows = FIRST
        self.table.filter_changed()
        self.rearrange()

    def on_input_submitted(self) -> None:
        self._filtered()
        self.table.focus()

    def _filtered(self) -> None:
        line = self.query_one("#filter", Input)
        line.set_class(bool(line.value), "-shown")
        self.app.settings.change("runs.filter", line.value)

    def action_back(self) -> None:
        line = self.query_one("#filter", Input)
        if line.has_class("-shown"):
            line.value = ""
            self._filtered()
            self.table.focus()
        else:
            super().action_back()


def _listed(names: Sequence[str], about: Mapping[str, str]) -> str:
    """Return at most NAMED names, one per line with its remark in `about`, then the number of the others."""
    lines = "\n".join(f"  {name}{about.get(name, '')}" for name in names[:NAMED])
    return lines + (f"\n  and {len(names) - NAMED} more" if len(names) > NAMED else "")


def _about(entry: Entry) -> str:
    # Its damage, else its fault, its changes, note and description. Of a sweep, options and result.
    if entry.group:
        return f"{entry.title.changes[-1]}  {entry.description}" if entry.trials else entry.description
    words = (entry.fault, *entry.title.changes, *entry.workers, entry.notes.words, entry.description)
    return " ".join((entry.damage or "  ".join(filter(None, words))).split())


FROM = 120  # columns of the terminal, from which on there is room for it
LEAST_WIDTH, SHARE = 54, 0.4  # columns; of the terminal's columns
KEPT_READERS = 8
MOST_CHARTS, CHART_ROWS = 4, 7
NOT_READ = Picture(Snapshot(phase=phases.READING))


class SideView(Vertical):
    """Shows one run. `show` sets the run, which is then read in a thread."""

    app: BaseApp
    DEFAULT_CSS = """
    SideView {
        height: 1fr; border-left: solid $border; padding: 0 1; display: none;
        & > Panel { height: 1; }
        & > Chart { height: 1fr; margin: 1 0 0 0; }
        & > #side-foot { margin: 1 0 0 0; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="side")
        self.entry: Entry | None = None
        self.picture = NOT_READ
        self._readers: dict[str, RunReader] = {}  # by the run's id, the one used last at the end
        self._reads = False  # a thread is reading now

    def compose(self) -> ComposeResult:
        yield Panel(lambda width, _height: self._head(width), id="side-head")
        for _ in range(MOST_CHARTS):
            yield Chart()
        yield Panel(lambda width, _height: self._foot(width), id="side-foot")

    @property
    def now(self) -> Snapshot:
        return self.picture.snapshot

    def place(self, width: int) -> None:
        self.display = width > 0
        self.styles.width = width

    def show(self, entry: Entry | None) -> None:
        """Show the row's run. Curves follow when they have been read, at once if they were read before."""
        if entry is None or self.entry is None or entry.run.id != self.entry.run.id:
            reader = self._readers.get(entry.run.id) if entry is not None else None
            self.picture = reader.picture if reader is not None else NOT_READ
        self.entry = entry
        if self.display:
            self._paint()
            self._read()

    def on_resize(self) -> None:
        self._paint()

    async def on_click(self) -> None:
        await self.run_action("screen.open")

    # ---- reading ----------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read the run in a thread, unless one is reading: then its end begins the next reading."""
        if self._reads or self.entry is None or self.entry.state == WAITING or self.entry.group:
            return
        self._reads = True
        run = self.entry.run
        reader = self._readers.pop(run.id, None) or RunReader(run)
        self._readers[run.id] = reader
        while len(self._readers) > KEPT_READERS:
            del self._readers[next(iter(self._readers))]

        def read() -> Picture:
            while reader.poll():
                pass
            return reader.picture

        def take(picture: Picture) -> None:
            self._reads = False
            if self.entry is None or self.entry.run.id != run.id:
                self._read()
            elif picture is not self.picture:
                self.picture = picture
                self._paint()

        in_background(self, read, take)

    # ---- painting ---------------------------------------------------------------------------------

    @property
    def _glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    def _paint(self) -> None:
        width, height = self.content_size
        if not width or not height:
            return
        panels = self.query_one("#side-head", Panel), self.query_one("#side-foot", Panel)
        heights = [len(rows) for rows in (self._head(width), self._foot(width))]
        heights[1] = min(heights[1], height // 3)
        for panel, rows in zip(panels, heights, strict=True):
            panel.styles.height, panel.display = rows, rows > 0
            panel.repaint()
        # The loss, then by importance. Speeds and shares are called the last ones, as the figures below are means.
        shown = [plot for plot in plots(self.now, self.app.settings.charts) if not plot.empty] if self.now.lines else []
        shown.sort(key=lambda plot: plot.title != "loss")
        drawn = [named_last(plot) if plot.unit or plot.bounds != "free" else plot for plot in shown]
        room = max(0, (height - sum(heights) - 1) // CHART_ROWS)
        for chart, plot in zip(self.query(Chart), [*drawn[:room], *[NO_PLOT] * MOST_CHARTS], strict=False):
            chart.display = plot is not NO_PLOT
            chart.show(plot)

    def _head(self, width: int) -> list[Row]:
        """Title and state, progress, the facts of the training, its verdict, and the error that ended it."""
        if (entry := self.entry) is None:
            return []
        named = head.RunName(entry.title.preset, entry.run.id, "", entry.number)
        if entry.group:
            rows: list[Row] = [[(line, "value")] for line in wrapped(clean(entry.description), width, self._glyphs, 8)]
            if isinstance(entry, SweepEntry):
                record, room = entry.record.sweep, self.content_size.height - 2
                rows = [[("this sweep was deleted; its trials are still here", "label")]]
                if record is not None:
                    rows = sweep.in_brief(record, entry.description, width, room, self._glyphs)
            return [named.row(width, self._glyphs), [], *rows]
        if entry.state == WAITING:
            waiting = wrapped(clean(str(entry.waiting or "")), width, self._glyphs, 4)
            return [named.row(width, self._glyphs), *([(line, "value")] for line in waiting)]
        rows = head.rows(named, "", self.now, width, self._glyphs)[:3]
        rows += head.learning_rows(self.now, width, self._glyphs)
        if head.is_due(self.now) and self.now.diagnosis:
            sign = head.mark(self.now.diagnosis, self._glyphs)
            lines = wrapped(head.sentence(self.now.diagnosis), width - 2, self._glyphs, 3)
            rows += hanging(lines, "value", [sign, (" ", "")])
        return [*rows, *head.error(self.now, width, self._glyphs)[:4]]

    def _foot(self, width: int) -> list[Row]:
        """The changed options, tags, note and description, and the figures of the result."""
        if (entry := self.entry) is None or entry.group:
            return []
        tags = " ".join(f"#{tag}" for tag in entry.notes.tags)
        texts = {
            "changed": "  ".join(entry.title.changes),
            "tags": tags,
            "note": entry.notes.note,
            "": entry.description,
        }
        rows: list[Row] = []
        for name, text in texts.items():
            lead = f"{name:<9}" if name else ""
            lines = wrapped(clean(text), width - len(lead), self._glyphs, 3) if text.strip() else []
            rows += hanging(lines, "value", [(lead, "label")])
        return [*rows, *(head.result_rows(self.now, width) if self.now.summary else [])]
