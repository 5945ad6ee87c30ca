"""The screen of a proof: before and after, every change with its gain, the trials of one change. A thread reads
proof.json every 0.5 s, and every 3 s after the end. Leaving the screen does not end the proof, which is a process of
its own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
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
from ...base.themes import painted_colour
from ...drawing import interval_bar, rate
from ...drawing import proof as comparisons
from ...drawing import proof as drawing
from ...drawing.interval_bar import Interval, Scale, scale_of
from ...drawing.rows import Row, fitting, wrapped
from ...widgets.key_footer import KeyFooter
from ...widgets.row_widgets import Panel
from ...widgets.table import Column, Table
from .. import catalogue
from ..base import FollowingScreen, Header, Reading
from . import actions

if TYPE_CHECKING:
    from ....engine.proof.folder import Proof
    from ....engine.trials.record import Record


READ_SECONDS = 0.5
ENDED_READ_SECONDS = 3.0


class ProofView(FollowingScreen[Reading]):
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

    def why_without_effect(self, verb: str) -> str:
        if not self.data.is_read:
            return ": it cannot be read"
        if self.data.state == WAITING:
            return f": it waits in the queue; gputui queue rm {self.proof.id} takes it out"
        return f": {clean(why)}" if (why := self.why_not(verb)) else ""

    def why_not(self, verb: str) -> str:  # noqa: ARG002 - of those that override it
        """Return the reason why a verb's key has no effect now, as a message; empty if none is needed."""
        return ""

    def cell(self, row: Row) -> Text:
        return Text.assemble(*((text, painted_colour(self.app, style)) for text, style in row), no_wrap=True)

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
WIDTHS = {"at most": 10, "measured": 18, "decision": 16}
BAR = "bar"  # the column of the bars, whose head is their scale
LEAST_BAR, WIDE_BAR, LEAST_NAME = 11, 32, 12  # widths of the bars, and of the changes next to them


class _Changes(Table):
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", "select_cursor", "Trial", meaning="open the run of the trial")
    ]


class ProofScreen(ProofView["Record"]):
    """Shows one proof. `clock` returns the present Unix time and is replaced in tests."""

    CSS_PATH = "proof.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("stop", meaning="stop the proof and its current trial"),
        keys.bind("file", "open", "Improved preset", meaning="open the improved preset in the form"),
        keys.bind("save_as", "save_report", "Save report", meaning="save the report as Markdown"),
        catalogue.left_out("live"),  # room for the keys of this screen
    ]

    def __init__(self, proof: Proof, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(proof)
        self._clock = clock

    @property
    def table(self) -> Table:
        return self.query_one(Table)

    @property
    def compared(self) -> list[Any]:
        """The comparisons, one for each row of the table. A subclass may return other objects that have `trials`."""
        return comparisons.compared(self.data)

    @property
    def picked(self) -> Any | None:
        listed, row = self.compared, self.table.cursor_row
        return listed[row] if 0 <= row < len(listed) else None

    def compose(self) -> ComposeResult:
        yield Header()
        yield Panel(self._head, id="head")
        yield _Changes(cursor_type="row", cell_padding=0)
        yield Panel(self._detail, id="detail")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.table.focus()

    def readings(self, leaving: threading.Event) -> Iterator[Record]:
        while not leaving.is_set():
            data = self.proof.record
            yield data
            leaving.wait(READ_SECONDS if data.state == "running" else ENDED_READ_SECONDS)

    def show_latest(self) -> None:
        """Paint the screen if proof.json has changed, else only the head of a running proof, which shows the time."""
        is_read = self.latest is not None and self.latest.is_read
        fresh = self.latest if self.latest and is_read else self.data  # else the file may have been read before
        if fresh != self.data:
            self.data = fresh
            self.show_now()
        elif self.is_measuring:
            self.query_one("#head", Panel).repaint()

    def on_resize(self) -> None:
        self.show_now()

    # ---- what is seen -----------------------------------------------------------------------------

    def theme_changed(self) -> None:
        self.show_now()

    def show_now(self) -> None:
        head = self._head(max(1, self.size.width - 2), 0)
        self.query_one("#head").styles.height = len(head)
        room = self.size.height - len(head) - 3  # the header, the footer and a blank row
        changes = min(len(self.compared) + 1, max(3, room // 2))
        self.query_one("#detail").styles.height = max(3, room - max(4, changes))
        self._fill()
        for panel in self.query(Panel):
            panel.repaint()
        self.refresh_bindings()

    def _head(self, width: int, _height: int) -> list[Row]:
        return drawing.head(self.data, self._clock(), width, self.glyphs, low=self.size.height < LOW)

    def _detail(self, width: int, height: int) -> list[Row]:
        picked = self.picked
        if self.data.rate is not None:
            return rate.detail(self.data.rate, width, height, self.glyphs)
        if picked is None:
            nothing = "nothing has been compared so far" if self.data.is_read else "reading the proof ..."
            return [[(nothing, "label")]]
        return comparisons.detail(picked, width, height, self.glyphs)

    def _fill(self) -> None:
        # If the number of rows has changed, move the cursor to the last row.
        count = self.table.row_count
        rows = {str(number): self._row(comparison) for number, comparison in enumerate(self.compared)}
        self.table.fill([self._column(name, width) for name, width in self._widths().items()], rows)
        if len(rows) != count:
            self.table.move_cursor(row=max(0, len(rows) - 1), animate=False)

    def _widths(self) -> dict[str, int]:
        room = self.size.width - 2 - sum(WIDTHS.values())
        longest = max((len(comparisons.changes(comparison)) for comparison in self.compared), default=0)
        bar = max(LEAST_BAR, min(WIDE_BAR, room - longest - 1)) if room >= LEAST_NAME + LEAST_BAR else 0
        change = max(LEAST_NAME, min(room - bar, max(longest + 1, LEAST_CHANGE)))
        return {
            "change": change,
            "at most": WIDTHS["at most"],
            "measured": WIDTHS["measured"],
            **({BAR: bar} if bar else {}),
            "  decision": WIDTHS["decision"],
        }

    def _column(self, name: str, width: int) -> Column:
        if name == BAR:
            return Column(name, Text(interval_bar.head(self._scale, width)), width)
        return Column(name, Text(name, justify="right" if name in ("at most", "measured") else "left"), width)

    @property
    def _scale(self) -> Scale | None:
        return interval_bar.scale_of(comparisons.interval(comparison) for comparison in self.compared)

    def _row(self, comparison: Any) -> list[Text]:
        widths = self._widths()
        word, style = comparisons.decision(comparison, self.glyphs)
        cells = [
            Text(fitting(comparisons.changes(comparison), widths["change"] - 1, self.glyphs), no_wrap=True),
            Text(comparisons.most(comparison), justify="right"),
            Text(comparisons.measured(comparison, self.glyphs), justify="right"),
            Text(f"  {word}", style=painted_colour(self.app, style)),
        ]
        if BAR in widths:
            interval, room = comparisons.interval(comparison), widths[BAR] - 2
            bar = interval_bar.bar(interval, self._scale, room, self.glyphs, style)
            cells.insert(3, self.cell([("  ", ""), *bar]))
        return cells

    def on_data_table_row_highlighted(self) -> None:
        self.query_one("#detail", Panel).repaint()

    # ---- keys -------------------------------------------------------------------------------------

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool | None:
        if action == "stop":
            return self.is_measuring
        if action == "open":
            return bool(self.data.preset_after)
        return action not in ("save_report", "copy") or self.data.is_read

    def why_not(self, verb: str) -> str:
        if verb == "stop":
            return "it has ended"
        return "there is no improved preset" + (" so far" if self.is_measuring else ": no change was kept")

    @work(exclusive=True, group="open")
    async def action_open(self) -> None:
        await actions.open_improved(self.app, self.proof, str(self.data.preset_after))

    def on_data_table_row_selected(self) -> None:  # Textual calls it in addition to the method of a derived class
        self.open_picked()

    def open_picked(self) -> None:
        self.open_trial(latest_run(self.picked.trials if self.picked else ()))


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
    def compared(self) -> list[Any]:
        return scaling_sentences.points(self.data)

    def _widths(self) -> dict[str, int]:
        """If there is little room, the last column and the bars are left out, and the others are as narrow as their
        texts."""
        heads = scaling_sentences.head(self.data)
        widths = list(zip(heads, SCALING_WIDTHS, strict=True))
        room = self.size.width - 3 - sum(SCALING_WIDTHS)
        if room < 0:
            rows = [heads, *(scaling_sentences.row(point) for point in self.compared)]
            longest = [max(map(len, texts)) for texts in zip(*rows, strict=True)]
            widths = [(head, 1 + cells) for head, cells in zip(heads[:-1], longest, strict=False)]
            room = self.size.width - 3 - sum(width for _, width in widths)
        if room >= NARROW_BAR:
            widths.insert(scaling_sentences.HEAD.index("spread") + 1, (BAR, min(WIDE_BAR, room)))
        return dict(widths)

    def _column(self, name: str, width: int) -> Column:
        if name == BAR:
            return super()._column(name, width)
        return Column(name, Text(name, justify="right"), width)

    @property
    def _scale(self) -> Scale | None:
        # Its zero is a speed in proportion to the replicas.
        return scale_of(map(_interval, self.compared), zero=1.0, label=share)

    def _row(self, point: Point) -> list[Text]:
        cells = dict(zip(scaling_sentences.head(self.data), scaling_sentences.row(point), strict=True))
        widths = self._widths()
        row = {name: Text(cells.get(name, ""), justify="right", no_wrap=True) for name in widths}
        if BAR in widths:
            bar = interval_bar.bar(_interval(point), self._scale, widths[BAR] - 2, self.glyphs, "value")
            row[BAR] = self.cell([("  ", ""), *bar])
        return list(row.values())

    def _detail(self, width: int, height: int) -> list[Row]:
        """What limits the scaling, then the trials of the number under the cursor, which are shortened first."""
        remarks = [*scaling_sentences.remarks(self.data), scaling_sentences.about(self.data)] if self.compared else []
        trials = [scaling_sentences.trial(trial) for trial in (self.picked.trials if self.picked else ())]
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

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "resume":
            return self.data.state in RESUMABLE
        if action == "again":
            return self.data.is_read and not self.is_measuring
        return super().check_action(action, parameters)

    def why_not(self, verb: str) -> str:
        if verb == "file":
            of_copies = scaling_sentences.is_of_copies(self.data)
            why = "no number of runs on one GPU was proved to pay" if of_copies else "more replicas change no preset"
            return f"there is no improved preset: {why}"
        return (
            "it goes on" if self.is_measuring else f"it has ended; {self.app.key('start')} measures the same once more"
        )

    @work(exclusive=True, group="resume")
    async def action_resume(self) -> None:
        await actions.go_on_with_scaling(self.app, self.proof)
        self.read_again()

    @work(exclusive=True, group="start")
    async def action_again(self) -> None:
        await actions.measure_again(self.app, self.proof)


def _interval(point: Point) -> Interval | None:
    return interval_bar.around(point.efficiency, point.spread)
