"""The screen of a proof: before and after, every change with its gain, the trials of one change. A thread reads
proof.json every 0.5 s, and every 3 s after the end. Leaving the screen does not end the proof, which is a process of
its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType

from ....engine.files.places import TRIALS
from ....engine.runs import Run
from ....engine.runs.run import WAITING
from ....engine.text_table import Table as TextTable
from ....engine.trials import RESUMABLE, report, scaling_sentences
from ....engine.trials.record import UNREAD, Point, Trial
from ...base import keys
from ...base.errors import clean
from ...drawing import interval_bar, rate
from ...drawing import proof as comparisons
from ...drawing.interval_bar import NARROW_BAR, WIDE_BAR, scale_of
from ...drawing.rows import GAP, Piece, Row, TableLayout
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

    def columns_of(self, table: TextTable) -> list[TableColumn[Any]]:
        """Return the columns of a table of the report, which has a row for each entry, with its bars if there is
        room. The decisions have the style of their rows."""
        entries, texts = [*self.entries.values()], [at for at in range(len(table.head)) if at not in table.right]
        room = self.size.width - 2 - GAP - len(texts)

        def column(at: int, width: int) -> TableColumn[Any]:
            side: Literal["left", "right"] = "left" if at in texts else "right"
            lead = " " * (GAP if at in texts and at else 0)
            decides = table.head[at] in ("decision", "outcome")

            def cell(of: Any) -> Piece:
                text = clean(table.rows[entries.index(of)][at]).replace("\n", " ")
                return f"{lead}{text}", self.style_of(of) if decides else ""

            return TableColumn(f"{lead}{table.head[at]}", width + GAP + (at in texts), cell, side)

        layout, bars = TableLayout(table, folds=False), table.bars
        bar = 0 if bars is None else min(WIDE_BAR, room - layout.total(layout.least))
        widths = layout.within(room - bar if bar >= NARROW_BAR else room)
        columns = {at: column(at, width) for at, width in widths.items()}
        shown, bar = list(columns.values()), min(WIDE_BAR, room - layout.total(widths.values()))
        if bars is not None and bar >= NARROW_BAR:
            scale = scale_of(bars.intervals, bars.zero, bars.label)

            def drawn(of: Any) -> Row:
                interval, style = bars.intervals[entries.index(of)], self.style_of(of)
                return [("  ", ""), *interval_bar.bar(interval, scale, bar - 2, self.glyphs, style)]

            column_of_bars = TableColumn[Any](interval_bar.head(scale, bar), bar, drawn)
            shown.insert(sum(at <= bars.after for at in columns), column_of_bars)
        return shown

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


class _Changes(Table):
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", "select_cursor", "Trial", meaning="open the run of the trial")
    ]


class ProofScreen(ProofView):
    """Shows one proof."""

    CSS_PATH = "proof.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("stop", meaning="stop the proof and its current trial"),
        keys.bind("file", "open", "Improved preset", meaning="open the improved preset in the form"),
        keys.bind("save_as", "save_report", "Save report", meaning="save the report as Markdown"),
        catalogue.left_out("live"),  # room for the keys of this screen
    ]

    AT_NEW = -1  # the row that gets the cursor if their number has changed

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
            row = 0 if self.data.rate is not None else self.AT_NEW  # the trainings of a range test stand still
            self.table.move_cursor(row=row % max(1, len(entries)), animate=False)
        self.refresh_bindings()

    def _head(self, width: int, _height: int) -> list[Row]:
        return comparisons.head(self.data, width, self.glyphs, low=self.size.height < LOW)

    def _detail(self, width: int, height: int) -> list[Row]:
        if self.data.rate is not None:
            return rate.detail(self.data.rate, width, height, self.glyphs)
        if self.current is None and self.data.sections:
            return comparisons.sections(self.data, width, height, self.glyphs)
        if self.current is None:
            nothing = "nothing has been compared so far" if self.data.is_read else "reading the proof ..."
            return [[(nothing, "label")]]
        return comparisons.pairs(self.current, width, height, self.glyphs)

    def columns(self) -> list[TableColumn[Any]]:
        if self.data.rate is not None:
            return self.columns_of(report.trials(report.titled(self.data)))
        table, entries = report.comparisons([*self.entries.values()]), self.entries.values()
        rows = [[comparisons.changes(entry), *row[1:]] for entry, row in zip(entries, table.rows, strict=True)]
        return self.columns_of(replace(table, rows=rows, spare=(5, 3)))

    def style_of(self, entry: Any) -> str:
        return comparisons.DECISIONS.get(getattr(entry, "decision", ""), "value")

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


class ScalingScreen(ProofScreen):
    """Shows a measurement of scaling. Each row of its table is a number of replicas or copies, not a comparison."""

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("resume", label="Go on", meaning="continue a measurement that was stopped or killed"),
        keys.bind("start", "again", "Measure again", meaning="measure the same once more"),
    ]

    @property
    def entries(self) -> Mapping[str, Point]:
        return {str(number): point for number, point in enumerate(scaling_sentences.scaling_of(self.data).points)}

    def columns(self) -> list[TableColumn[Any]]:
        return self.columns_of(report.scaling(self.data))

    def _detail(self, width: int, height: int) -> list[Row]:
        """What limits the scaling, then the trials of the number under the cursor."""
        if not self.entries:
            return [[("nothing has been measured so far" if self.data.is_read else "reading ...", "label")]]
        texts = [*scaling_sentences.remarks(self.data), scaling_sentences.about(self.data)]
        measured = self.current.trials if self.current else []
        names = [f"round {trial.repeat}" for trial in measured]
        return comparisons.trials([(text, "label") for text in texts], names, measured, width, height, self.glyphs)

    # ---- keys -------------------------------------------------------------------------------------

    def can_now(self, action: str) -> bool | str:
        match action:
            case "open":
                no_gain, of_replicas = (
                    "no number of runs on one GPU was proved to pay",
                    "more replicas change no preset",
                )
                why = no_gain if scaling_sentences.scaling_of(self.data).is_of_copies else of_replicas
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
