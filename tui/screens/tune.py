"""The screen of a search for the fastest settings. A thread reads proof.json and the running trial's events every 0.5
s, and every 3 s after the end. Leaving the screen does not end the search, which is a process of its own."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.text import Text
from textual import on, work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from ...engine import figures
from ...engine.trials import RESUMABLE, proof_sentences
from ...engine.trials.record import elapsed_of
from ...engine.tune.report.search_results import WITHOUT_INPUT, Ranked, ranked
from ...engine.tune.report.search_sentences import nothing_to_measure
from ..base import keys
from ..base.settings import Charts
from ..base.themes import painted_colour
from ..drawing import interval_bar, tune
from ..drawing import tune as drawing
from ..drawing.charts import AS_DECLARED, plots
from ..drawing.interval_bar import Scale
from ..drawing.plot.curves import Plot
from ..drawing.proof import conclusion
from ..drawing.rows import Row
from ..drawing.tune import HEADS, WIDTHS, SearchLayout, share_out
from ..reading.proofs import SearchReader, SearchReading
from ..widgets.charts import Chart
from ..widgets.key_footer import KeyFooter
from ..widgets.row_widgets import Panel
from ..widgets.table import Column, Table
from ..wording.run import doing
from . import catalogue
from .base import Header
from .proof import actions
from .proof.screen import ENDED_READ_SECONDS, READ_SECONDS, ProofView, latest_run

if TYPE_CHECKING:
    from ...engine.proof.folder import Proof


ABOUT_MARK = f"{WITHOUT_INPUT} no input"
LOW = 30  # below this height the large figures are one line
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


class TuneScreen(ProofView[SearchReading]):
    """Shows one search for the fastest settings."""

    CSS_PATH = "tune.tcss"
    HELP_SECTIONS = (("Marks", MARKS),)
    EXPLAINED = ("prove",)
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("stop", meaning="stop the search and its current trial"),
        keys.bind("resume", label="Go on", meaning="continue a stopped search, or give an ended one more minutes"),
        keys.bind("apply", meaning="put the best settings into the form, as changes that are not saved"),
        keys.bind("save", label="Save preset", meaning="save the preset with the best settings"),
        keys.bind("save_as", "save_report", "Save report", meaning="save the report as Markdown", show=False),
        keys.bind("zoom", "chart", "Chart", meaning="a chart alone, with a cursor", show=False),
        catalogue.left_out("live"),  # room for the keys of this screen
    ]

    def __init__(self, proof: Proof) -> None:
        super().__init__(proof)
        self._ranked: list[Ranked] = []
        self._memory = tune.plot(self.data)

    @property
    def table(self) -> Table:
        return self.query_one(Table)

    @property
    def reading(self) -> SearchReading:
        return self.latest or SearchReading()

    @property
    def picked(self) -> Ranked | None:
        row = self.table.cursor_row
        return self._ranked[row] if 0 <= row < len(self._ranked) else None

    def compose(self) -> ComposeResult:
        yield Header()
        yield Panel(self._head, id="head")
        yield _Candidates(cursor_type="row", cell_padding=0)
        yield Panel(self._detail, id="detail")
        yield Panel(self._lines, id="lines")
        with Container(id="charts"):
            yield Chart(id="speed")
            yield Panel(self._pairs, id="pairs")
            yield Chart(id="loss")
            yield Chart(id="memory")
            yield Panel(self._options, id="options")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.table.focus()

    def readings(self, leaving: threading.Event) -> Iterator[SearchReading]:
        reader = SearchReader(self.proof)
        while not leaving.is_set():
            now = reader.read()
            yield now
            leaving.wait(READ_SECONDS if now.data.state == "running" else ENDED_READ_SECONDS)

    def show_latest(self) -> None:
        """Paint if proof.json has changed, else only the head and the trial of a running search."""
        now = self.reading.data
        fresh = now if now.is_read else self.data  # a file that cannot be read now may have been read before
        if fresh != self.data:
            self.data = fresh
            self._ranked, self._memory = ranked(fresh), tune.plot(fresh)
            self.show_now()
        elif self.is_measuring:
            for name in ("#head", "#lines"):
                self.query_one(name, Panel).repaint()
            self._show_charts()

    def on_resize(self) -> None:
        self.show_now()

    # ---- what is seen -----------------------------------------------------------------------------

    def theme_changed(self) -> None:
        self.show_now()

    def show_now(self) -> None:
        width, height = self.size.width - 2, self.size.height - 2
        layout = share_out(width, height, len(self._head(max(1, width), height)), len(self._ranked))
        self._lay_out(layout)
        self._fill(width - (len(self._ranked) >= layout.table))  # a scrollbar takes one column
        self._show_charts()
        for panel in self.query(Panel):
            panel.repaint()
        self.refresh_bindings()

    def _lay_out(self, layout: SearchLayout) -> None:
        for name in ("head", "detail", "lines", "charts"):
            part, rows = self.query_one(f"#{name}"), getattr(layout, name)
            part.display = rows > 0
            part.styles.height = rows
        grid = self.query_one("#charts")
        grid.styles.grid_size_columns = max(1, layout.chart_columns)
        grid.set_class(layout.edges, "-edges")
        for chart in (*grid.query(Chart), *grid.query(Panel)):
            chart.has_edge = layout.edges
        self._lay_out_pairs()

    def _lay_out_pairs(self) -> None:
        # In place of the loss while pairs are measured, and at the end of the speed and the loss.
        ended, deciding = self.data.is_read and not self.is_measuring, drawing.is_deciding(self.data)
        pairs = self.query_one("#pairs")
        pairs.styles.column_span = 2 if ended else 1
        pairs.display = ended or deciding
        self.query_one("#speed").display, self.query_one("#loss").display = not ended, not (ended or deciding)

    def _show_charts(self) -> None:
        if self.query_one("#charts").display:
            shown = {plot.key: plot for plot in self.charts(self.app.settings.charts)}
            for name, key in (("speed", SPEED), ("loss", LOSS), ("memory", tune.KEY)):
                self.query_one(f"#{name}", Chart).show(shown.get(key, Plot(key, "", ())))

    def _head(self, width: int, _height: int) -> list[Row]:
        elapsed = elapsed_of(self.data) if self.is_measuring else self.data.seconds
        return drawing.head(self.data, elapsed, width, self.glyphs, low=self.size.height < LOW)

    def _detail(self, width: int, height: int) -> list[Row]:
        if self.picked is None:
            return [[("nothing has been measured so far" if self.data.is_read else "reading the search ...", "label")]]
        return tune.detail(self.picked, width, height, self.glyphs)

    def _lines(self, width: int, _height: int) -> list[Row]:
        now, data, glyphs = self.reading, self.data, self.glyphs
        trial = drawing.trial_line(now.run.id if now.run else "", now.trial, width)
        memory, pairs = drawing.memory_line(data, width, glyphs), drawing.pairs_line(data, width, glyphs)
        middle = pairs if drawing.is_deciding(data) else memory
        return [drawing.options_line(data, width, glyphs), middle, trial if self.is_measuring else pairs]

    def _pairs(self, width: int, height: int) -> list[Row]:
        return drawing.pairs(self.data, width, height, self.glyphs)

    def _options(self, width: int, height: int) -> list[Row]:
        return drawing.options(self.data, width, height, self.glyphs)

    # ---- the candidates ---------------------------------------------------------------------------

    def _fill(self, width: int) -> None:
        """The cursor stays on its candidate, or in the first row."""
        at_top = self.table.cursor_row == 0
        widths = tune.widths(width)
        rows = {str(candidate.number): self._row(candidate, widths) for candidate in self._ranked}
        marked = any(candidate.without_input for candidate in self._ranked)
        columns = [_column(name, width, marked) for name, width in widths.items() if name != "bar"]
        if "bar" in widths:
            bars = Column("bar", Text(interval_bar.head(self._scale, widths["bar"])), widths["bar"])
            columns.insert(list(widths).index("bar"), bars)
        self.table.fill(columns, rows)
        if at_top and rows:
            self.table.move_cursor(row=0, animate=False)

    def _row(self, candidate: Ranked, widths: Mapping[str, int]) -> list[Text]:
        cells = tune.cells(candidate, self.data, widths, self.glyphs, self._scale)
        return [self.cell(cell.row) if cell.row else
                Text(cell.text, style=painted_colour(self.app, cell.style), no_wrap=True,
                     justify="right" if cell.right else "left") for cell in cells]  # fmt: skip

    @property
    def _scale(self) -> Scale | None:
        return interval_bar.scale_of(map(tune.candidate_interval, self._ranked))

    def on_data_table_row_highlighted(self) -> None:
        self.query_one("#detail", Panel).repaint()

    def on_data_table_row_selected(self) -> None:
        """Open the candidate's latest or running trial."""
        picked, run = self.picked, self.reading.run
        if picked is not None:
            is_measured = picked.decision == "running"
            self.open_trial(run.id if run is not None and is_measured else latest_run(picked.trials))

    # ---- its charts -------------------------------------------------------------------------------

    @property
    def about(self) -> str:
        return self.proof.id

    def charts(self, drawn: Charts = AS_DECLARED) -> list[Plot]:
        """Return the charts of the running trial, if there is one, and the chart of memory over batch size, if it has
        values."""
        now, run = self.reading.trial, self.reading.run
        memory = [self._memory] if self._memory.curves else []
        if now is None or run is None or not self.is_measuring:
            return memory
        note = "" if now.progress else doing(now.phase, now.phase_detail)
        of_trial = [replace(plot, title=f"{plot.title} of {run.id}", note=plot.note or note)
                    for plot in plots(now, drawn)]  # fmt: skip
        return [*of_trial, *memory]

    def axes(self) -> tuple[str, ...]:
        return self.reading.trial.pace.axes() if self.reading.trial is not None else ()

    def foot(self, width: int) -> Row:
        return drawing.memory_line(self.data, width, self.glyphs)

    @on(Chart.Opened)
    def _chart_clicked(self, event: Chart.Opened) -> None:
        event.stop()
        self._open_chart(event.key)

    def action_chart(self) -> None:
        self._open_chart(self.charts()[0].key)

    def _open_chart(self, key: str) -> None:
        from .chart import ChartScreen  # only when it is asked for

        self.app.push_screen(ChartScreen(self, key))

    # ---- keys -------------------------------------------------------------------------------------

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool | None:
        if action == "stop":
            return self.is_measuring
        if action == "resume":
            ended = self.data.state == "done" and not nothing_to_measure(self.data)
            return ended or self.data.state in RESUMABLE
        if action in ("apply", "save"):
            return bool(proof_sentences.to_take(self.data))
        if action == "chart":
            return bool(self.charts())
        return action not in ("save_report", "copy") or self.data.is_read

    def why_not(self, verb: str) -> str:
        if verb == "prove":
            return f"a search proves its best settings by itself; {self.app.key('resume')} gives it more minutes"
        if verb == "zoom":
            return "there is no chart now"
        if self.is_measuring:
            return "the search goes on" if verb == "resume" else "the search has not ended: nothing can be taken yet"
        if verb == "stop":
            return "the search has ended"
        if verb == "resume":
            return nothing_to_measure(self.data)
        return f"no settings to take: {conclusion(self.data)}"

    @work(exclusive=True, group="resume")
    async def action_resume(self) -> None:
        await actions.go_on(self.app, self.proof, self.data)
        self.read_again()

    @work(exclusive=True, group="apply")
    async def action_apply(self) -> None:
        await actions.apply_kept(self.app, self.proof, self.data)

    @work(exclusive=True, group="save")
    async def action_save(self) -> None:
        name = f"{Path(str(self.data.preset_name or 'preset')).stem}-fast.yaml"
        await actions.save_kept(self.app, self.proof, name, Path.cwd())


def _column(name: str, width: int, marked: bool) -> Column:
    # With `marked`, some speeds have a mark, which the heading of the settings explains.
    right = name in WIDTHS and name != "outcome"
    head = HEADS.get(name, "  settings")
    if marked and name == "settings":
        whole = f"{head} ({ABOUT_MARK})"
        head = whole if len(whole) <= width else f"  {ABOUT_MARK}"
    return Column(name, Text(head, justify="right" if right else "left"), width)
