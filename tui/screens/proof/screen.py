"""The screen of a proof: before and after, every change with its gain, the trials of one change. A thread reads
proof.json every 0.5 s, and every 3 s after the end. Leaving the screen does not end the proof, which is a process of
its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from ....engine.files.places import TRIALS
from ....engine.runs import Run
from ....engine.runs.run import WAITING
from ....engine.trials import RESUMABLE, scaling_sentences
from ....engine.trials.record import UNREAD, Point, Trial
from ....engine.units import share
from ...base import keys
from ...base.errors import clean
from ...drawing import interval_bar, rate
from ...drawing import proof as comparisons
from ...drawing.interval_bar import Interval, Scale, scale_of
from ...drawing.rows import Piece, Row, wrapped
from ...reading.proofs import ProofReading
from ...widgets.key_footer import KeyFooter
from ...widgets.row_widgets import Panel
from ...widgets.table import Table
from .. import catalogue
from ..base import FollowingScreen, Header
from ..table import TableColumn, TableScreen
from . import actions

if TYPE_CHECKING:
    from ....engine.proof.folder import Proof


READ_SECONDS = 0.5
ENDED_READ_SECONDS = 3.0


class ProofView(TableScreen[Any], FollowingScreen[ProofReading]):
    """The base of the screens of proofs. `data` is the newest content of proof.json that could be read. The proof is a
    process of its own, which continues without the screen."""

    FOLLOWS_COVERED = True  # a trial of it is looked at over it
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("copy", label="Copy report", meaning="copy the report as Markdown", show=False),
        *keys.back(),
    ]

    def __init__(self, proof: Proof) -> None:
        super().__init__()
        self.proof = proof
        self.data = UNREAD

    @property
    def is_measuring(self) -> bool:
        return self.data.state == "running"

    def read(self) -> ProofReading:
        """Read the proof, in a thread."""
        return ProofReading(self.proof.record)

    def readings(self, leaving: threading.Event) -> Iterator[ProofReading]:
        while not leaving.is_set():
            yield (now := self.read())
            leaving.wait(READ_SECONDS if now.data.state == "running" else ENDED_READ_SECONDS)

    def show_latest(self) -> None:
        """Paint the screen if proof.json has changed, else of a running proof only what shows its progress."""
        now = self.latest.data if self.latest is not None else UNREAD
        if now.is_read and now != self.data:  # else it may have been read before
            self.data = now
            self.show_table()
        elif self.is_measuring:
            self.show_progress()

    def show_progress(self) -> None:
        self.query_one("#head", Panel).repaint()

    def can(self, action: str) -> bool | str:
        able = self.can_now(action)
        if able is not True and not self.data.is_read:
            return "it cannot be read"
        if able is not True and self.data.state == WAITING:
            return f"it waits in the queue; gputui queue rm {self.proof.id} takes it out"
        return able

    def can_now(self, action: str) -> bool | str:
        """Return what `can` does, of a proof that has been read and has begun."""
        return action not in ("save_report", "copy", "again") or self.data.is_read

    def bars(
        self, width: int, scale: Scale | None, bar: Callable[[Any], tuple[Interval | None, str]]
    ) -> TableColumn[Any]:
        """Return the column of the bars, whose head is their scale. `bar` returns an entry's interval and style."""

        def cell(entry: Any) -> Row:
            interval, style = bar(entry)
            return [("  ", ""), *interval_bar.bar(interval, scale, width - 2, self.glyphs, style)]

        return TableColumn(interval_bar.head(scale, width), width, cell)

    def run_of(self, name: str) -> Run:
        return Run(self.proof.path / TRIALS / Path(name).name)

    def open_trial(self, name: str) -> None:
        if name and self.run_of(name).path.is_dir():
            self.app.open_run(self.run_of(name))
        else:
            self.notify("no run of this row is here: none has begun, or they were deleted")

    @work(exclusive=True, group="stop")
    async def action_stop(self) -> None:
        await actions.stop(self.app, self.proof, self.data.kind)

    @work(exclusive=True, group="resume")
    async def action_resume(self) -> None:
        await actions.go_on(self.app, self.proof, self.data)
        self.read_again()

    @work(exclusive=True, group="save")
    async def action_save_report(self) -> None:
        await actions.save_report(self.app, self.proof, self.data, Path.cwd())

    @work(exclusive=True, group="save")
    async def action_copy(self) -> None:
        await actions.copy_report(self.app, self.data)


def latest_run(trials: Sequence[Trial]) -> str:
    return next((trial.run for trial in reversed(trials) if trial.run), "")


LOW = 20  # below this height the large figures are one line
LEAST_CHANGE = 48  # cells; if there is more room, the figures stay near what they are of
FIGURES = 44  # cells of the columns at the right of the changes, without the bars
LEAST_BAR, WIDE_BAR, LEAST_NAME = 11, 32, 12  # widths of the bars, and of the changes next to them


class _Changes(Table):
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", "select_cursor", "Trial", meaning="open the run of the trial")
    ]


class ProofScreen(ProofView):
    """Shows one proof. `clock` returns the present Unix time and is replaced in tests."""

    CSS_PATH = "proof.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("stop", meaning="stop the proof and its current trial"),
        keys.bind("file", "open", "Improved preset", meaning="open the improved preset in the form"),
        keys.bind("save_as", "save_report", "Save report", meaning="save the report as Markdown"),
        catalogue.left_out("live"),  # room for the keys of this screen
    ]

    AT_NEW = -1  # the row that gets the cursor if their number has changed

    def __init__(self, proof: Proof, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(proof)
        self._clock = clock

    @property
    def entries(self) -> Mapping[str, Any]:
        return {str(number): row for number, row in enumerate(comparisons.compared(self.data))}

    def compose(self) -> ComposeResult:
        yield Header()
        yield Panel(self._head, id="head")
        yield _Changes(cursor_type="row", cell_padding=0)
        yield Panel(self._detail, id="detail")
        yield KeyFooter()

    # ---- what is seen -----------------------------------------------------------------------------

    def show_table(self) -> None:
        entries, count = self.entries, self.table.row_count
        head = self._head(max(1, self.size.width - 2), 0)
        self.query_one("#head").styles.height = len(head)
        room = self.size.height - len(head) - 3  # the header, the footer and a blank row
        changes = min(len(entries) + 1, max(3, room // 2))
        self.table.display = bool(entries) or not self.data.sections
        self.query_one("#detail").styles.height = max(3, room - max(4, changes) * self.table.display)
        super().show_table()
        if len(entries) != count:
            self.table.move_cursor(row=self.AT_NEW % max(1, len(entries)), animate=False)
        self.refresh_bindings()

    def _head(self, width: int, _height: int) -> list[Row]:
        return comparisons.head(self.data, self._clock(), width, self.glyphs, low=self.size.height < LOW)

    def _detail(self, width: int, height: int) -> list[Row]:
        if self.data.rate is not None:
            return rate.detail(self.data.rate, width, height, self.glyphs)
        if self.current is None and self.data.sections:
            return comparisons.sections(self.data, width, height, self.glyphs)
        if self.current is None:
            nothing = "nothing has been compared so far" if self.data.is_read else "reading the proof ..."
            return [[(nothing, "label")]]
        return comparisons.detail(self.current, width, height, self.glyphs)

    def columns(self) -> list[TableColumn[Any]]:
        entries = self.entries.values()
        room = self.size.width - 2 - FIGURES
        longest = max(map(len, map(comparisons.changes, entries)), default=0)
        bar = max(LEAST_BAR, min(WIDE_BAR, room - longest - 1)) if room >= LEAST_NAME + LEAST_BAR else 0
        change = max(LEAST_NAME, min(room - bar, max(longest + 1, LEAST_CHANGE)))
        scale = interval_bar.scale_of(map(comparisons.interval, entries))

        def decision(entry: Any) -> Piece:
            word, style = comparisons.decision(entry, self.glyphs)
            return f"  {word}", style

        bars = self.bars(bar, scale, lambda entry: (comparisons.interval(entry), decision(entry)[1]))
        return [
            TableColumn("change", change, comparisons.changes),
            TableColumn("at most", 10, comparisons.most, "right"),
            TableColumn("measured", 18, lambda entry: comparisons.measured(entry, self.glyphs), "right"),
            *([bars] if bar else ()),
            TableColumn("  decision", 16, decision),
        ]

    # ---- keys -------------------------------------------------------------------------------------

    def can_now(self, action: str) -> bool | str:
        match action:
            case "stop":
                return self.is_measuring or "it has ended"
            case "open":
                why = " so far" if self.is_measuring else ": no change was kept"
                return bool(self.data.preset_after) or f"there is no improved preset{why}"
        return super().can_now(action)

    @work(exclusive=True, group="open")
    async def action_open(self) -> None:
        await actions.open_improved(self.app, self.proof, str(self.data.preset_after))

    def on_data_table_row_selected(self) -> None:  # Textual calls it in addition to the method of a derived class
        self.open_picked()

    def open_picked(self) -> None:
        self.open_trial(latest_run(self.current.trials if self.current else ()))


SCALING_WIDTHS = (10, 14, 12, 10, 12, 9, 10, 12)  # of the columns, in cells
NARROW_BAR = 9  # cells, with the two blanks before it
LINES = ((9, 9), (9, 1), (2, 1))  # that a remark and a trial may take, from the most to the fewest


class ScalingScreen(ProofScreen):
    """Shows a measurement of scaling. Each row of its table is a number of replicas or copies, not a comparison."""

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("resume", label="Go on", meaning="continue a measurement that was stopped or killed"),
        keys.bind("start", "again", "Measure again", meaning="measure the same once more"),
    ]

    @property
    def entries(self) -> Mapping[str, Point]:
        return {str(number): point for number, point in enumerate(scaling_sentences.points(self.data))}

    def columns(self) -> list[TableColumn[Point]]:
        """If there is little room, the last column and the bars are left out, and the others are as narrow as their
        texts."""
        heads, points = scaling_sentences.head(self.data), self.entries.values()
        widths: Sequence[int] = SCALING_WIDTHS
        if self.size.width - 3 < sum(widths):
            rows = [heads, *map(scaling_sentences.row, points)]
            widths = [1 + max(map(len, texts)) for texts in list(zip(*rows, strict=True))[:-1]]
        columns = [
            TableColumn(head, width, lambda point, at=at: scaling_sentences.row(point)[at], "right")  # type: ignore[misc]
            for at, (head, width) in enumerate(zip(heads, widths, strict=False))
        ]
        room = self.size.width - 3 - sum(widths)
        if room >= NARROW_BAR:
            # Its zero is a speed in proportion to the replicas.
            scale = scale_of(map(_interval, points), zero=1.0, label=share)
            bars = self.bars(min(WIDE_BAR, room), scale, lambda point: (_interval(point), "value"))
            columns.insert(scaling_sentences.HEAD.index("spread") + 1, bars)
        return columns

    def _detail(self, width: int, height: int) -> list[Row]:
        """What limits the scaling, then the trials of the number under the cursor, which are shortened first."""
        remarks = [*scaling_sentences.remarks(self.data), scaling_sentences.about(self.data)] if self.entries else []
        trials = [scaling_sentences.trial(trial) for trial in (self.current.trials if self.current else ())]
        rows: list[Row] = []
        for most, of_a_trial in LINES:
            rows = [*self._rows(remarks, "label", width, most), *self._rows(trials, "value", width, of_a_trial)]
            if len(rows) <= height:
                break
        nothing: list[Row] = [[("nothing has been measured so far" if self.data.is_read else "reading ...", "label")]]
        return (rows or nothing)[:height]

    def _rows(self, texts: Iterable[str], style: str, width: int, most: int) -> Iterator[Row]:
        for text in texts:
            yield from ([(line, style)] for line in wrapped(clean(text), width, self.glyphs, most))

    # ---- keys -------------------------------------------------------------------------------------

    def can_now(self, action: str) -> bool | str:
        match action:
            case "open":
                no_gain, of_replicas = (
                    "no number of runs on one GPU was proved to pay",
                    "more replicas change no preset",
                )
                why = no_gain if scaling_sentences.is_of_copies(self.data) else of_replicas
                return bool(self.data.preset_after) or f"there is no improved preset: {why}"
            case "again" if self.is_measuring:
                return "it goes on"
            case "stop" | "resume":
                ended = f"it has ended; {self.app.key('start')} measures the same once more"
                able = self.data.state in RESUMABLE if action == "resume" else self.is_measuring
                return able or ("it goes on" if self.is_measuring else ended)
        return super().can_now(action)

    @work(exclusive=True, group="start")
    async def action_again(self) -> None:
        await actions.start_scaling(self.app, lambda: self.proof.request)


def _interval(point: Point) -> Interval | None:
    return interval_bar.around(point.efficiency, point.spread)
