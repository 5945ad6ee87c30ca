"""The screen of a search for the fastest settings. A thread reads proof.json and the running trial's events every 0.5
s, and every 3 s after the end. Leaving the screen does not end the search, which is a process of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container

from ...engine import figures
from ...engine.trials import RESUMABLE, proof_sentences, search_results
from ...engine.trials.search_results import Ranked, nothing_to_measure, ranked
from ..base import keys
from ..base.settings import Charts
from ..drawing import tune
from ..drawing.charts import AS_DECLARED, plots
from ..drawing.plot.curves import Plot
from ..drawing.proof import conclusion, head
from ..drawing.rows import Row
from ..drawing.tune import SearchLayout, share_out
from ..reading.proofs import ProofReading, SearchReader
from ..widgets.charts import Chart
from ..widgets.key_footer import KeyFooter
from ..widgets.row_widgets import Panel
from ..widgets.table import Table
from ..wording.run import doing
from . import catalogue
from .base import Header
from .chart import ChartSource
from .proof import actions
from .proof.screen import ProofView, latest_run
from .table import TableColumn

if TYPE_CHECKING:
    from ...engine.proof.folder import Proof


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


class TuneScreen(ProofView, ChartSource):
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
    def _layout(self) -> SearchLayout:
        width, height = self.size.width - 2, self.size.height - 2
        return share_out(width, height, len(self._head(max(1, width), height)), len(self.entries))

    def _show_charts(self) -> None:
        if self.query_one("#charts").display:
            shown = {plot.key: plot for plot in self.charts(self.app.settings.charts)}
            for name, key in (("speed", SPEED), ("loss", LOSS), ("memory", tune.KEY)):
                self.query_one(f"#{name}", Chart).show(shown.get(key, Plot(key, "", ())))

    def _head(self, width: int, _height: int) -> list[Row]:
        return head(self.data, width, self.glyphs, low=self.size.height < LOW)

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
            case "stop":
                return self.is_measuring or "the search has ended"
            case "resume" if self.is_measuring:
                return "the search goes on"
            case "resume":
                why = nothing_to_measure(self.data)
                return self.data.state in RESUMABLE or (self.data.state == "done" and not why) or why or False
            case "apply" | "save":
                ended = f"no settings to take: {conclusion(self.data)}"
                why = "the search has not ended: nothing can be taken yet" if self.is_measuring else ended
                return bool(proof_sentences.to_take(self.data)) or why
        return super().can_now(action)

    @work(exclusive=True, group="apply")
    async def action_apply(self) -> None:
        await actions.apply_kept(self.app, self.proof, self.data)

    @work(exclusive=True, group="save")
    async def action_save(self) -> None:
        name = f"{Path(str(self.data.preset_name or 'preset')).stem}-fast.yaml"
        await actions.save_kept(self.app, self.proof, name, Path.cwd())
