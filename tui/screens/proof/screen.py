"""The screens of measurements: a proof, scaling, a sweep, a search. A thread reads
proof.json every 0.5 s, every 3 s after the end. A measurement is a process of its own, and goes on without a screen."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from ....engine import figures
from ....engine.files.places import TRIALS
from ....engine.files.writing import write_atomically
from ....engine.proof import folder as proof_folder
from ....engine.proof import improved_preset
from ....engine.runs import Run, runs_folder
from ....engine.runs.run import WAITING
from ....engine.text_table import Table as TextTable
from ....engine.trials import RESUMABLE, kinds, proof_sentences, report, search_results, sweep_record
from ....engine.trials.record import UNREAD, Point, Trial
from ....engine.trials.report import as_markdown
from ....engine.trials.search_results import Ranked, limit_seconds, more_minutes, nothing_to_measure, ranked
from ....engine.trials.sweep_record import PROOF, SweepTrial
from ....engine.trials.trial_preset import with_changes
from ...base import keys
from ...base.errors import clean
from ...base.settings import Charts
from ...drawing import interval_bar, rate, tune
from ...drawing import proof as comparisons
from ...drawing import sweep as drawing
from ...drawing.charts import AS_DECLARED, plots
from ...drawing.interval_bar import NARROW_BAR, WIDE_BAR, scale_of
from ...drawing.plot.curves import Plot
from ...drawing.rows import GAP, Piece, Row, TableLayout, fit
from ...reading.proofs import ProofReading, SearchReader
from ...reading.run.series import Line
from ...reading.sweep_rows import TrialCurves
from ...widgets.charts import Chart
from ...widgets.key_footer import KeyFooter
from ...widgets.row_widgets import Panel
from ...widgets.table import Table
from ...wording.run import doing
from .. import starting
from ..base import FollowingScreen, Header
from ..chart import ChartSource
from ..dialogs import Ask, AskText, complaining
from ..runs.actions import request_stop
from ..table import TableColumn, TableScreen

if TYPE_CHECKING:
    from ....engine.options import Options
    from ....engine.proof.folder import Proof


STOP = (
    "Stop the {what}? Its current trial is ended first; results so far and changes that were kept stay.\n"
    "Stop it a second time to end it at once."
)
IMPROVED = "improved.yaml"
MOST_MINUTES = 100_000
READ_SECONDS = 0.5
ENDED_READ_SECONDS = 3.0


class ProofView(TableScreen[Any], FollowingScreen[ProofReading]):
    """The base of the screens of proofs. `data` is the newest content of proof.json that could be read."""

    FOLLOWS_COVERED = True  # a trial of it is looked at over it
    LOW = 20  # below this height the large figures are one line
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

    def _head(self, width: int, _height: int) -> list[Row]:
        return comparisons.head(self.data, width, self.glyphs, low=self.size.height < self.LOW)

    def can(self, action: str) -> bool | str:
        able = self.can_now(action)
        if able is not True and not self.data.is_read:
            return "it cannot be read"
        if able is not True and self.data.state == WAITING:
            return f"it waits in the queue; gputui queue rm {self.proof.id} takes it out"
        return able

    def can_now(self, action: str) -> bool | str:
        """Return what `can` does, of a proof that has been read and has begun."""
        match action:
            case "stop":
                return self.is_measuring or self.ended
            case "resume" if not kinds.kind(self.data.kind).resumes:
                return False
            case "resume":
                return self.data.state in RESUMABLE or ("it goes on" if self.is_measuring else self.ended)
        return action not in ("save_report", "copy", "again") or self.data.is_read

    @property
    def ended(self) -> str:
        return "it has ended"

    def columns_of(self, table: TextTable) -> list[TableColumn[Any]]:
        """Return the columns of a table of the report, which has a row for each entry, with its bars if there is
        room. The decisions have the style of their rows."""
        entries, texts = [*self.entries.values()], [at for at in range(len(table.head)) if at not in table.right]
        room = self.size.width - 3 - GAP - len(texts)  # a scrollbar may come

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

    # ---- acting -----------------------------------------------------------------------------------

    @work(exclusive=True, group="stop")
    async def action_stop(self) -> None:
        what = kinds.kind(self.data.kind).noun
        if await self.app.push_screen_wait(Ask(STOP.format(what=what), ("Stop", "Go on"), "stop")) != "Stop":
            return
        with complaining(self.app):
            await asyncio.to_thread(request_stop, self.proof, proof_folder.request_stop)
            self.app.notify("stopping: the current trial is ended first")

    @work(exclusive=True, group="resume")
    async def action_resume(self) -> None:
        """Resume a measurement; a search whose time is used up with more minutes."""
        from ....engine.tune import tune_request  # only if one is gone on with

        proof, data = self.proof, self.data
        declared = kinds.kind(data.kind)
        what = declared.full_noun.removeprefix("a ")
        limit, more = limit_seconds(data), None
        if data.kind == "tune" and (data.state == "done" or (limit is not None and data.seconds >= limit)):
            asking = AskText("How many more minutes?", str(more_minutes(data)), _no_minutes)
            minutes = await self.app.push_screen_wait(asking)
            if minutes is None:
                return
            more = float(minutes)
        resumed = partial(tune_request.resumed, proof, data.kind, more)
        with complaining(self.app):
            start = starting.measurement(self.app, f"the {what} {proof.id}", resumed, proof, declared.learns)
            if await starting.ask_and_launch(self.app, start) is not None:
                self.app.notify(f"the {what} goes on")
        self.read_again()

    async def open_improved(self, preset_yaml: str) -> None:
        path = self.proof.path / IMPROVED
        try:
            await asyncio.to_thread(write_atomically, path, preset_yaml)
        except OSError as fault:
            self.app.complain(f"{path} cannot be written: {fault.strerror or fault}")
            return
        self.app.open_form(path)

    @work(exclusive=True, group="save")
    async def action_save_report(self) -> None:
        name = f"proof-{self.proof.id}.md"
        if (path := await self.path_to_save("Save the report as Markdown to this path", name)) is None:
            return
        try:
            await asyncio.to_thread(path.write_text, as_markdown(self.data), encoding="utf-8")
        except (OSError, KeyError, TypeError, ValueError) as fault:
            self.app.complain(f"{path} cannot be written: {getattr(fault, 'strerror', None) or fault}")
        else:
            self.app.notify(str(path), title="Saved", markup=False)

    async def path_to_save(self, question: str, name: str) -> Path | None:
        """Ask for a path, and again before an existing file is replaced. A relative path is in the current folder."""
        given = await self.app.push_screen_wait(AskText(question, name))
        if not given or not given.strip():
            return None
        path = Path.cwd() / os.path.expanduser(given.strip())  # noqa: ASYNC240 - asked once, of a file to be saved
        exists = path.exists()
        if exists and await self.app.push_screen_wait(Ask(f"{path} exists.", ("Overwrite", "Cancel"))) != "Overwrite":
            return None
        return path

    def action_copy(self) -> None:
        try:
            self.app.copy(as_markdown(self.data), "the report as Markdown")
        except (KeyError, TypeError, ValueError) as fault:
            self.app.complain(f"there is no report so far: {fault}")


def _no_minutes(text: str) -> str:
    try:
        return "" if 0.1 <= float(text) <= MOST_MINUTES else f"give minutes from 0.1 to {MOST_MINUTES:,}"
    except ValueError:
        return f"{text!r} is no number of minutes"


def latest_run(trials: Sequence[Trial]) -> str:
    return next((trial.run for trial in reversed(trials) if trial.run), "")


class _Changes(Table):
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", "select_cursor", "Trial", meaning="open the run of the trial")
    ]


class ProofScreen(ProofView):
    CSS_PATH = "proof.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("stop", meaning="stop the proof and its current trial"),
        keys.bind("resume", label="Go on", meaning="continue a measurement that was stopped or killed"),
        keys.bind("file", "open", "Improved preset", meaning="open the improved preset in the form"),
        keys.bind("save_as", "save_report", "Save report", meaning="save the report as Markdown"),
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
        if action == "open":
            return bool(self.data.preset_after) or f"there is no improved preset{self.no_preset}"
        return super().can_now(action)

    @property
    def no_preset(self) -> str:
        return " so far" if self.is_measuring else ": no change was kept"

    @work(exclusive=True, group="open")
    async def action_open(self) -> None:
        await self.open_improved(str(self.data.preset_after))

    def on_data_table_row_selected(self) -> None:  # Textual calls it in addition to the method of a derived class
        self.open_picked()

    def open_picked(self) -> None:
        self.open_trial(latest_run(self.current.trials if self.current else ()))


class ScalingScreen(ProofScreen):
    """Shows a measurement of scaling. Each row of its table is a number of replicas or copies, not a comparison."""

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("start", "again", "Measure again", meaning="measure the same once more")
    ]

    @property
    def entries(self) -> Mapping[str, Point]:
        return {str(number): point for number, point in enumerate(proof_sentences.scaling_of(self.data).points)}

    def columns(self) -> list[TableColumn[Any]]:
        return self.columns_of(report.scaling(self.data))

    def _detail(self, width: int, height: int) -> list[Row]:
        """The trials of the number under the cursor; first what limits the scaling, until the answer says it."""
        if not self.entries:
            return [[("nothing has been measured so far" if self.data.is_read else "reading ...", "label")]]
        remarks = proof_sentences.scaling_remarks(self.data) if self.is_measuring else ()
        texts = [*remarks, proof_sentences.scaling_about(self.data)]
        measured = self.current.trials if self.current else []
        names = [f"round {trial.repeat}" for trial in measured]
        return comparisons.trials([(text, "label") for text in texts], names, measured, width, height, self.glyphs)

    # ---- keys -------------------------------------------------------------------------------------

    def can_now(self, action: str) -> bool | str:
        return "it goes on" if action == "again" and self.is_measuring else super().can_now(action)

    @property
    def ended(self) -> str:
        return f"it has ended; {self.app.key('start')} measures the same once more"

    @property
    def no_preset(self) -> str:
        of_copies = proof_sentences.scaling_of(self.data).is_of_copies
        return f": {kinds.kind('scaling').nothing if of_copies else 'more replicas change no preset'}"

    @work(exclusive=True, group="start")
    async def action_again(self) -> None:
        await starting.measure(self.app, lambda: self.proof.request)


MOST_COMPARED = 12  # runs, the best first
WIDE, MOST_CURVES = 120, 48  # columns from which on there are curves, and trials that they are read of
SPELT_FROM = 160  # columns from which on each setting names its options


class SweepScreen(ProofScreen):
    """Shows a sweep. Each row of its table is a setting with all of its trials, the best setting first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("compare", label="Curves", meaning="compare the runs of the best settings, with their curves")
    ]

    AT_NEW = 0  # the best setting
    _curves: TrialCurves | None = None
    _drawn: Mapping[str, Line] = {}  # the curves as they are shown

    def read(self) -> ProofReading:
        """Also read the curves of the best trials."""
        reading = super().read()
        if (sweep := reading.data.sweep) is not None and self.size.width >= WIDE:
            self._curves = self._curves or TrialCurves(sweep.settings.metric)
            groups = sweep_record.in_order(sweep.trials, sweep.settings.higher)
            self._curves.read([trial for group in groups for trial in group][:MOST_CURVES])
        return reading

    def show_latest(self) -> None:
        super().show_latest()
        if self._curves is not None and self._curves.lines is not self._drawn:
            self._drawn = self._curves.lines
            self.query_one("#detail", Panel).repaint()

    @property
    def entries(self) -> Mapping[str, list[SweepTrial]]:
        if (sweep := self.data.sweep) is None:
            return {}
        groups = sweep_record.in_order(sweep.trials, sweep.settings.higher)
        return {str(number): group for number, group in enumerate(groups)}

    def _fresh(self, group: list[SweepTrial]) -> list[SweepTrial]:
        trials = self.data.sweep.trials if self.data.sweep is not None else []
        return sweep_record.groups(trials, PROOF).get(sweep_record.key_of(group[0].changes), [])

    def columns(self) -> list[TableColumn[Any]]:
        brief = self.size.width < SPELT_FROM
        return self.columns_of(report.groups(self.data.sweep, brief=brief)) if self.data.sweep is not None else []

    def _detail(self, width: int, height: int) -> list[Row]:
        sweep, picked = self.data.sweep, self.current
        if sweep is None or not picked:
            return [[("nothing has been trained so far" if self.data.is_read else "reading ...", "label")]]
        half, trials = width // 2, [*picked, *self._fresh(picked)]
        wide = self.size.width >= WIDE
        curves = drawing.curves(sweep, self._drawn, width - half, height, self.glyphs) if wide else []
        rows = drawing.detail(sweep, trials, half - 2 if curves else width, height, self.glyphs)
        if not curves:
            return rows
        none: Row = []
        return [[*fit(row, half), *curve] for row, curve in zip_longest(rows, curves, fillvalue=none)]

    # ---- keys -------------------------------------------------------------------------------------

    def can_now(self, action: str) -> bool | str:
        if action == "compare":
            return len(self._runs()) > 1 or "there are no two runs to compare"
        return super().can_now(action)

    def run_of(self, name: str) -> Run:
        return Run(runs_folder() / name)

    def open_picked(self) -> None:
        started = [trial for trial in (self.current or ()) if Run(runs_folder() / trial.run).path.is_dir()]
        self.open_trial(started[-1].run if started else "")

    def _runs(self) -> list[Run]:
        runs = [Run(runs_folder() / trial.run) for group in self.entries.values() for trial in group]
        return [run for run in runs if run.path.is_dir()][:MOST_COMPARED]

    def action_compare(self) -> None:
        self.app.open_compare(self._runs())


SPEED, LOSS = figures.of_run("samples_per_second").label, figures.metric("loss").label
MARKS = (
    ("*", "measured without its input, on one repeated batch"),
    ("~", "memory that is predicted, and not yet measured"),
    ("▲", "the best settings so far"),
)


class _Candidates(Table):
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", "select_cursor", "Open run", meaning="open the run of the latest trial of these settings")
    ]


class TuneScreen(ProofView, ChartSource):
    CSS_PATH = "tune.tcss"
    LOW = 30
    HELP_SECTIONS = (("Marks", MARKS),)
    EXPLAINED = ("prove",)
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("stop", meaning="stop the search and its current trial"),
        keys.bind("resume", label="Go on", meaning="continue a stopped search, or give an ended one more minutes"),
        keys.bind("apply", meaning="put the best settings into the form, as changes that are not saved"),
        keys.bind("save", label="Save preset", meaning="save the preset with the best settings"),
        keys.bind("save_as", "save_report", "Save report", meaning="save the report as Markdown", show=False),
        keys.bind("zoom", "chart", "Chart", meaning="a chart alone, with a cursor", show=False),
    ]

    def __init__(self, proof: Proof) -> None:
        super().__init__(proof)
        self._reader = SearchReader(proof)
        self._memory = tune.plot(self.data)

    @property
    def entries(self) -> Mapping[str, Ranked]:
        return {str(candidate.number): candidate for candidate in ranked(self.data)}

    def read(self) -> ProofReading:
        return self._reader.read()

    @property
    def reading(self) -> ProofReading:
        return self.latest or ProofReading()

    def compose(self) -> ComposeResult:
        yield Header()
        yield Panel(self._head, id="head")
        yield _Candidates(cursor_type="row", cell_padding=0)
        yield Panel(self._detail, id="detail")
        yield Panel(self._lines, id="lines")
        with Container(id="charts"):
            yield Chart(id="speed")
            yield Panel(lambda width, height: tune.pairs(self.data, width, height, self.glyphs), id="pairs")
            yield Chart(id="loss")
            yield Chart(id="memory")
            yield Panel(lambda width, height: tune.options(self.data, width, height, self.glyphs), id="options")
        yield KeyFooter()

    def show_progress(self) -> None:
        for name in ("#head", "#lines"):
            self.query_one(name, Panel).repaint()
        self._show_charts()

    # ---- what is seen -----------------------------------------------------------------------------

    def show_table(self) -> None:
        """The cursor stays on its candidate, or in the first row."""
        self._memory = tune.plot(self.data)
        at_top, layout = self.table.cursor_row == 0, self._layout
        for name in ("head", "detail", "lines", "charts"):
            part, rows = self.query_one(f"#{name}"), getattr(layout, name)
            part.display = rows > 0
            part.styles.height = rows
        grid = self.query_one("#charts")
        grid.styles.grid_size_columns = max(1, layout.chart_columns)
        grid.set_class(layout.edges, "-edges")
        for chart in (*grid.query(Chart), *grid.query(Panel)):
            chart.has_edge = layout.edges
        # Pairs are in place of the loss while they are measured, and at the end of the speed and the loss.
        ended, deciding = self.data.is_read and not self.is_measuring, tune.is_deciding(self.data)
        pairs = self.query_one("#pairs")
        pairs.styles.column_span = 2 if ended else 1
        pairs.display = ended or deciding
        self.query_one("#speed").display, self.query_one("#loss").display = not ended, not (ended or deciding)
        super().show_table()
        if at_top and self.table.row_count:
            self.table.move_cursor(row=0, animate=False)
        self._show_charts()
        self.refresh_bindings()

    @property
    def _layout(self) -> tune.SearchLayout:
        width, height = self.size.width - 2, self.size.height - 2
        return tune.share_out(width, height, len(self._head(max(1, width), height)), len(self.entries))

    def _show_charts(self) -> None:
        if self.query_one("#charts").display:
            shown = {plot.key: plot for plot in self.charts(self.app.settings.charts)}
            for name, key in (("speed", SPEED), ("loss", LOSS), ("memory", tune.KEY)):
                self.query_one(f"#{name}", Chart).show(shown.get(key, Plot(key, "", ())))

    def _detail(self, width: int, height: int) -> list[Row]:
        if (candidate := self.current) is None:
            return [[("nothing has been measured so far" if self.data.is_read else "reading the proof ...", "label")]]
        return tune.detail(candidate, width, height, self.glyphs)

    def _lines(self, width: int, _height: int) -> list[Row]:
        now, data, glyphs = self.reading, self.data, self.glyphs
        trial = tune.trial_line(now.run.id if now.run else "", now.trial, width)
        memory, pairs = tune.memory_line(data, width, glyphs), tune.pairs_line(data, width, glyphs)
        middle = pairs if tune.is_deciding(data) else memory
        return [tune.options_line(data, width, glyphs), middle, trial if self.is_measuring else pairs]

    # ---- the candidates ---------------------------------------------------------------------------

    def columns(self) -> list[TableColumn[Any]]:
        data, glyphs, entries = self.data, self.glyphs, [*self.entries.values()]
        _, *columns = self.columns_of(search_results.leaderboard(data))
        place = TableColumn[Any]("", 5, lambda of: f"{entries.index(of) + 1:>2}{tune.mark(of, data, glyphs)}")
        return [place, *columns]

    def style_of(self, entry: Ranked) -> str:
        return tune.style_of(entry, self.data)

    def on_data_table_row_selected(self) -> None:
        """Open the candidate's latest or running trial."""
        picked, run = self.current, self.reading.run
        if picked is not None:
            is_measured = picked.decision == "running"
            self.open_trial(run.id if run is not None and is_measured else latest_run(picked.trials))

    # ---- its charts -------------------------------------------------------------------------------

    @property
    def about(self) -> str:
        return self.proof.id

    def charts(self, drawn: Charts = AS_DECLARED) -> list[Plot]:
        """Return the charts of the running trial, if any, and of memory over batch size, if it has values."""
        now, run = self.reading.trial, self.reading.run
        memory = [self._memory] if self._memory.curves else []
        if now is None or run is None or not self.is_measuring:
            return memory
        note = "" if now.progress else doing(now.phase, now.phase_detail)
        of_trial = [replace(plot, title=f"{plot.title}, trial {run.id}", note=plot.note or note)
                    for plot in plots(now, drawn)]  # fmt: skip
        return [*of_trial, *memory]

    def axes(self) -> tuple[str, ...]:
        return self.reading.trial.pace.axes() if self.reading.trial is not None else ()

    def foot(self, width: int) -> Row:
        return tune.memory_line(self.data, width, self.glyphs)

    def action_chart(self) -> None:
        self.open_chart(self.charts()[0].key)

    # ---- keys -------------------------------------------------------------------------------------

    def can_now(self, action: str) -> bool | str:
        match action:
            case "prove":
                return f"a search proves its best settings by itself; {self.app.key('resume')} gives it more minutes"
            case "chart":
                return bool(self.charts()) or "there is no chart now"
            case "resume" if not self.is_measuring:
                why = nothing_to_measure(self.data)
                return self.data.state in RESUMABLE or (self.data.state == "done" and not why) or why or False
            case "apply" | "save":
                ended = f"no settings to take: {comparisons.conclusion(self.data)}"
                why = "the search has not ended: nothing can be taken yet" if self.is_measuring else ended
                return bool(proof_sentences.to_take(self.data)) or why
        return super().can_now(action)

    @work(exclusive=True, group="apply")
    async def action_apply(self) -> None:
        """Put the kept changes into the form with the preset's file, or else the improved preset."""
        proof, kept = self.proof, proof_sentences.to_take(self.data)
        mark = " (not proved)" if proof_sentences.unproved(self.data) else ""

        def settings() -> tuple[Path, Options] | str:
            request = proof.request
            options = with_changes(request.baseline(), kept).options
            if request.source and (source := Path(request.source)).is_file():
                return source, options
            return improved_preset.preset(proof).to_yaml()

        with complaining(self.app):
            source = await asyncio.to_thread(settings)
            if isinstance(source, str):
                await self.open_improved(source)
                return
            changes = proof_sentences.changes(kept)
            self.app.apply(source[0], kept, changes + mark, source[1])
            if mark:
                text = clean(f"{changes}: {proof_sentences.not_proved(self.data)}")
                self.app.notify(text, markup=False)

    @work(exclusive=True, group="save")
    async def action_save(self) -> None:
        name = f"{Path(str(self.data.preset_name or 'preset')).stem}-fast.yaml"
        path = await self.path_to_save("Save the preset with the best settings to this path", name)
        if path is not None:
            with complaining(self.app):
                await asyncio.to_thread(improved_preset.save, self.proof, path)
                self.app.notify(str(path), title="Saved", markup=False)
