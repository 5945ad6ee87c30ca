"""The table of runs: its columns, the order of its rows, and the cells of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from ....engine.runs.run import WAITING
from ....engine.units import counted
from ...base import keys
from ...base.errors import clean
from ...base.glyphs import Glyphs, glyphs_of
from ...base.themes import colour, mark_cell, painted_colour
from ...drawing.plot.curves import style_of
from ...drawing.rows import fitting
from ...reading.run_columns import COLUMNS, RunColumn, matching, ordered, usual
from ...reading.run_list import Entry, folded, queue_first
from ...widgets.key_footer import KeyHints
from ...widgets.table import Column, OpeningTable
from ...word_search import Hit, best_first
from ...wording.run import ASKED_FOR
from ..dialogs import ListDialog

if TYPE_CHECKING:
    from ....engine.trials.record import Record

NAME_WIDTH = max(map(len, COLUMNS))
KEYS = (
    ("mark", "shows or hides"), ("sort_left", ""), ("sort_right", "move"), ("delete", "is the usual choice"),
    ("open", "takes it"), ("back", "leaves"),
)  # fmt: skip


class ColumnsScreen(ListDialog[list[str]]):
    """Lets the user choose columns. The result is their names in order, an empty list for the usual columns, or None
    for no change. What a column shows is cut in the list, and stands whole below it."""

    DEFAULT_CSS = """
    ColumnsScreen > Vertical { #about { height: 3; } OptionList, OptionList:focus { max-height: 60vh; } }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("mark", "show_or_hide", "Show or hide", meaning="show or hide the column"),
        keys.bind("sort_left", "carry(-1)", "Further left", meaning="move the column to the left"),
        keys.bind("sort_right", "carry(1)", "Further right", meaning="move the column to the right"),
        keys.bind("delete", "dismiss([])", "The usual columns", meaning="back to the usual columns"),
        keys.bind("open", "take", "Take", meaning="take these columns"),
        *keys.back("dismiss(None)"),
    ]

    def __init__(self, shown: Sequence[str]) -> None:
        super().__init__()
        self.order = [*shown, *(name for name in COLUMNS if name not in shown)]
        self.chosen = set(shown)

    def compose(self) -> ComposeResult:
        with Vertical():
            yield _Names(compact=True, markup=False)
            yield Static(id="about", markup=False)
            yield KeyHints(KEYS)

    def on_mount(self) -> None:
        self._fill(0)

    def _fill(self, at: int) -> None:
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([Option(self._prompt(name), id=name) for name in self.order])
        listed.highlighted = at

    def _prompt(self, name: str) -> Content:
        mark = glyphs_of(self.app).ok if name in self.chosen else " "
        look = "bold" if name in self.chosen else ""
        return Content.assemble((f"{mark} {name:<{NAME_WIDTH}} ", look), (COLUMNS[name].about, "$foreground-muted"))

    @property
    def _at(self) -> int:
        return self.query_one(OptionList).highlighted or 0

    def action_show_or_hide(self) -> None:
        self.chosen ^= {self.order[self._at]}
        self._fill(self._at)

    def action_carry(self, by: int) -> None:
        at, to = self._at, self._at + by
        if 0 <= to < len(self.order):
            self.order[at], self.order[to] = self.order[to], self.order[at]
            self._fill(to)

    def action_take(self) -> None:
        self.dismiss([name for name in self.order if name in self.chosen])

    def on_option_list_option_highlighted(self, event: OptionList.OptionHighlighted) -> None:
        self.query_one("#about", Static).update(COLUMNS[event.option.id or ""].about)

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.action_show_or_hide()


class _Names(OptionList, inherit_bindings=False):
    """The list of columns, in which Enter is a key of the screen."""

    BINDINGS = keys.moves()


MARK = 2  # cells of the mark before the first column
LEAST = 17  # cells of a column whose width is not fixed
MOST_CHOSEN = 48  # if columns were chosen, the table may scroll
SEARCHED = ("run", "id", "state", "tags", "note", "description")
ASCENDING = SEARCHED  # words begin with A


class Order(NamedTuple):
    """The column by whose values the table is sorted; `descending`: the greatest or latest first."""

    column: str = "when"
    descending: bool = True

    def by(self, column: str) -> Order:
        """Return the usual order by `column`, or the reverse if the table is already sorted by it."""
        return Order(column, not self.descending if column == self.column else column not in ASCENDING)


class _Row(NamedTuple):
    made_of: tuple[object, ...]
    cells: list[Text]


class RunsTable(OpeningTable):
    """Shows runs in an order, with the chosen columns or as many usual ones as fit."""

    @dataclass
    class Folded(Message):
        """The sweep with the id `sweep` was opened or closed."""

        sweep: str

    def __init__(self, columns: Sequence[str] = (), order: Order | None = None) -> None:
        super().__init__(cursor_type="row", cell_padding=0)
        self.chosen = tuple(columns)
        self.order = order or Order()
        self.names: list[str] = []
        self._rows: dict[str, _Row] = {}
        self._sorted: Sequence[Entry] = ()  # `_sorted_of` in the order `_sorted_by`
        self._sorted_of: Sequence[Entry] = ()
        self._sorted_by: Order | None = None
        self._flipped: dict[bool, set[str]] = {False: set(), True: set()}  # sweeps, by whether there is a filter
        self._filters = False
        self._all_trials: Mapping[str, int] = {}  # by sweep: how many of the runs are its trials
        self._entries: Mapping[str, Entry] = {}  # the rows
        self.matching = 0  # runs that match the filter
        self.in_closed = ""  # how many of them are in closed sweeps, in words; empty for none
        self._one_preset = False  # of all shown runs: titles that are too long leave it out
        self._alike = Counter[tuple[str, str]]()  # in how many rows of a preset a change is

    def show(
        self,
        entries: Sequence[Entry],
        sweeps: Mapping[str, Record],
        words: str,
        marked: Mapping[str, object],
        columns: int,
        most: int,
    ) -> dict[str, Entry]:
        """Show the runs that match the filter, at most the first `most` rows, and return their entries by id, in this
        order. A closed sweep is one row for all of its trials that match. `columns` is the table's width in columns of
        the terminal."""
        if self._sorted_of is not entries or self._sorted_by != self.order:
            self._sorted_of, self._sorted_by = entries, self.order
            self._sorted = queue_first(ordered(entries, *self.order), self.order == Order())
            self._all_trials = Counter(entry.sweep for entry in entries if entry.sweep)
        hits = matching(self._sorted, words)
        if self.order == Order():  # nobody has asked for another order
            hits = best_first(hits)
        self._filters = bool(words.split())
        in_rows = folded(hit.item for hit in hits)
        self.matching = sum(not entry.group for entry in in_rows)
        if self._all_trials:
            from ...reading.sweep_rows import in_sweeps  # only if there is a sweep

            in_rows = in_sweeps(in_rows, sweeps, self._is_open)
        self._entries = shown = {entry.run.id: entry for entry in in_rows}
        closed = sum(bool(entry.trials) and not entry.is_open for entry in in_rows)
        in_closed = self.matching - sum(not entry.group for entry in in_rows)
        self.in_closed = f"{in_closed} in {counted(closed, 'closed sweeps')}" if closed else ""
        rows = dict(islice(shown.items(), most))  # thousands of rows take a second
        by_id = {hit.item.run.id: hit for hit in hits if hit.item.run.id in rows}
        searched = hits[0].words if hits else ()
        titles = [entry.title for entry in rows.values()]
        self._one_preset = len({title.preset for title in titles}) == 1
        self._alike = Counter((title.preset, change) for title in titles for change in title.changes)
        scrolls = len(shown) > self.size.height - self.header_height
        bar = self.styles.scrollbar_size_vertical
        width = columns - MARK - scrolls * bar
        self.names = list(self.chosen) or usual(entries, columns - MARK - bar)
        widths = _widths([COLUMNS[name] for name in self.names], list(rows.values()), width, bool(self.chosen))
        heads, arrow = [], self._glyphs.down if self.order.descending else self._glyphs.up
        for at, name in enumerate(self.names):
            lead = " " * MARK if at == 0 else ""  # the first column has additional room for the marks
            head = COLUMNS[name].head + (arrow if name == self.order.column else "")
            label = f"{head:>{widths[name]}}" if COLUMNS[name].right else head
            heads.append(Column(name, Text(lead + label), len(lead) + widths[name] + 1))
        made_of = tuple(widths.items())
        self._rows = {
            key: self._row(by_id[key]._replace(item=row) if key in by_id else Hit(row, searched), marked, made_of)
            for key, row in rows.items()
        }
        self.fill(heads, {key: row.cells for key, row in self._rows.items()})
        return shown

    def _is_open(self, sweep: str, trials: int) -> bool:
        # Opened by the user, or by a filter that selects some of its trials, and not closed.
        return (sweep in self._flipped[self._filters]) != (self._filters and trials < self._all_trials[sweep])

    def open_or_close(self, sweep: str) -> None:
        self._flipped[self._filters] ^= {sweep}
        self.post_message(self.Folded(sweep))

    def action_cursor_right(self) -> None:
        """Open the closed sweep under the cursor, else scroll."""
        at = self._entries.get(self.current_key or "")
        if at is not None and at.trials and not at.is_open:
            self.open_or_close(at.run.id)
        else:
            super().action_cursor_right()

    def action_cursor_left(self) -> None:
        """Close the open sweep, also from one of its trials, or scroll back."""
        at = self._entries.get(self.current_key or "")
        sweep = self._entries.get(at.run.id if at.trials else at.sweep) if at is not None else None
        if sweep is not None and sweep.is_open and not self.scroll_x:
            self.open_or_close(sweep.run.id)
        else:
            super().action_cursor_left()

    def filter_changed(self) -> None:
        """Forget which sweeps were opened and closed under the former filter."""
        self._flipped[True].clear()

    @property
    def _glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    def _row(self, hit: Hit[Entry], all_marked: Mapping[str, object], widths: tuple[tuple[str, int], ...]) -> _Row:
        """The former row is returned if nothing in it has changed, as there may be thousands of runs."""
        entry = hit.item
        runs = [trial.run for trial in entry.trials] if entry.group else [entry.run]
        marked = bool(runs) and all(run.id in all_marked for run in runs)
        title = entry.title
        if entry.number and len(title.changes) > 1:  # what distinguishes it from its neighbours comes first
            changes = sorted(title.changes, key=lambda change: self._alike[title.preset, change])
            entry = replace(entry, title=replace(title, changes=tuple(changes)))
        made_of = (entry, marked, widths, self._one_preset, hit.words, self.app.theme)
        former = self._rows.get(entry.run.id)
        if former is not None and former.made_of == made_of:
            return former
        cells = [self._cell(name, entry, width) for name, width in widths]
        for (name, _), cell in zip(widths, cells, strict=True):
            if hit.words and name in SEARCHED:
                mark_cell(cell, hit, colour(self.app, "warning"))
        cells[0] = Text.assemble(f"{'*' if marked else ' '} ", cells[0], no_wrap=True)
        if marked:
            cells[0].stylize("bold")
        return _Row(made_of, cells)

    def _cell(self, name: str, entry: Entry, width: int) -> Text:
        column = COLUMNS[name]
        if name == "name":
            style = painted_colour(self.app, style_of(entry.number)) if entry.number else ""
            return Text(column.show(entry), style=style, no_wrap=True)
        if name == "run":
            name = f"{entry.name} " if entry.number and "name" not in self.names else ""
            colour_of_run = painted_colour(self.app, "label" if entry.group else style_of(entry.number))
            if entry.trials:
                name = f"{self._glyphs.unfolded if entry.is_open else self._glyphs.folded} "
            elif entry.sweep:
                name = f"  {name}"
            room = width - len(name)
            title = fitting(entry.title.within(room), room, self._glyphs)
            vague = title.endswith(" changes")
            if entry.number and (vague or self._one_preset or entry.sweep) and len(entry.title.whole) > room:
                first = fitting(entry.title.changes[0], room, self._glyphs) if vague else title
                title = entry.title.changes_within(room) or first
            return Text.assemble((name, colour_of_run), clean(title), no_wrap=True)
        if name == "state":
            sign, style = _state(entry, self._glyphs)
            text = fitting(f"{sign} {entry.reached or entry.state_word}", width, self._glyphs)
            return Text(text, style=colour(self.app, style), no_wrap=True)
        text = fitting(clean(column.show(entry)), width, self._glyphs)
        return Text(f"{text:>{width}}" if column.right else text, no_wrap=True)


def _widths(columns: Sequence[RunColumn], entries: Sequence[Entry], width: int, scrolls: bool) -> dict[str, int]:
    """Columns without a width share the rest, as much as their texts need; there is more if it `scrolls`."""
    widths = {column.key: column.width for column in columns}
    room = width - sum(width + 1 for width in widths.values())
    open_ones = [column for column in columns if not column.width]
    for left, column in zip(range(len(open_ones), 0, -1), open_ones, strict=True):
        longest = max((len(column.show(entry)) for entry in entries), default=0)
        most = MOST_CHOSEN if scrolls else room - (left - 1) * LEAST
        widths[column.key] = min(longest, most) if left > 1 else most
        widths[column.key] = max(LEAST, widths[column.key])
        room -= widths[column.key]
    return widths


def _state(entry: Entry, glyphs: Glyphs) -> tuple[str, str]:
    if entry.is_active:
        return glyphs.running, "primary"
    if entry.state == WAITING:
        if entry.waiting is not None and entry.waiting.held:
            return glyphs.held, "secondary"
        return str((entry.waiting and entry.waiting.place) or glyphs.more), "secondary"
    if entry.state in ASKED_FOR:
        return glyphs.stopped, "secondary"
    if entry.state != "ok":
        return glyphs.failed[:1], "error"
    return (glyphs.warn, "warning") if entry.learnt_badly else (glyphs.ok, "success")
