"""The screen of a sweep: a row for each setting with its mean and spread, its trials, the metric over each option."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import work
from textual.binding import BindingType

from ....engine.runs import Run, runs_folder
from ....engine.trials import RESUMABLE, sweep_record, sweep_sentences
from ....engine.trials.sweep_record import PROOF, SweepTrial
from ....engine.units import amount
from ...base import keys
from ...base.errors import clean
from ...drawing import sweep as drawing
from ...drawing.interval_bar import Scale, bar, scale_of
from ...drawing.rows import Row, fit, fitting
from ...drawing.sweep import fits, parallel
from ...reading.run.series import Line
from ...reading.trial_curves import TrialCurves
from ...widgets.row_widgets import Panel
from ...widgets.table import Column
from . import actions
from .screen import BAR, LEAST_BAR, ProofScreen

if TYPE_CHECKING:
    from ....engine.trials.record import Record

FIGURE = 11  # cells of a column with a figure
LEAST_NAME, LEAST_SEEDS, MIDDLE_BAR, WIDE_BAR = 24, 16, 30, 60
SCROLLBAR = 3  # cells, with those at the sides
MOST_COMPARED = 12  # runs, the best first
WIDE, MOST_CURVES = 120, 48  # columns from which on there are curves, and trials that they are read of


class SweepScreen(ProofScreen):
    """Shows a sweep. Each row of its table is a setting with all of its trials, the best setting first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("resume", label="Go on", meaning="continue a sweep that was stopped or killed"),
        keys.bind("compare", label="Curves", meaning="compare the runs of the best settings, with their curves"),
        keys.bind(
            "page_on", "picture", "Other picture", meaning="a line through the options of each setting, or curves"
        ),
        keys.bind("page_back", "picture", show=False, meaning="the other picture"),
    ]

    _curves: TrialCurves | None = None
    _drawn: Mapping[str, Line] = {}  # the curves as they are shown
    _shows_curves = False  # also if parallel coordinates could be shown

    def readings(self, leaving: threading.Event) -> Iterator[Record]:
        """Yield the newest record after the curves of its best trials have been read. This runs in a thread."""
        for data in super().readings(leaving):
            if data.sweep is not None and self.size.width >= WIDE:
                self._curves = self._curves or TrialCurves(data.sweep.settings.metric)
                groups = sweep_record.in_order(data.sweep.trials, data.sweep.settings.higher)
                self._curves.read([trial for group in groups for trial in group][:MOST_CURVES])
            yield data

    def show_latest(self) -> None:
        super().show_latest()
        if self._curves is not None and self._curves.lines is not self._drawn:
            self._drawn = self._curves.lines
            self.query_one("#detail", Panel).repaint()

    @property
    def compared(self) -> list[Any]:
        sweep = self.data.sweep
        return sweep_record.in_order(sweep.trials, sweep.settings.higher) if sweep is not None else []

    def _fresh(self, group: list[SweepTrial]) -> list[SweepTrial]:
        trials = self.data.sweep.trials if self.data.sweep is not None else []
        return sweep_record.groups(trials, PROOF).get(sweep_record.key_of(group[0].changes), [])

    def _fill(self) -> None:
        # If the number of rows has changed, move the cursor to the best setting.
        count = self.table.row_count
        super()._fill()
        if self.table.row_count != count:
            self.table.move_cursor(row=0, animate=False)

    def _widths(self) -> dict[str, int]:
        """What names a setting, then figures, then, if there is room, bars and each seed's value."""
        sweep = self.data.sweep
        metric = sweep.settings.metric if sweep is not None else "metric"
        means = max((len(sweep_sentences.mean_or_state(group)[0]) for group in self.compared), default=0)
        figures = {clean(metric)[: FIGURE - 1]: max(FIGURE, means + 1), "spread": FIGURE, "fresh seeds": FIGURE + 2}
        room = self.size.width - SCROLLBAR - sum(figures.values())
        heading, of_settings = self._names(room - LEAST_SEEDS)
        longest = max(map(len, (heading, *of_settings)))
        name = max(LEAST_NAME, min(room - LEAST_SEEDS, longest + 1))
        left = room - name
        seeds = 0
        if left >= LEAST_SEEDS and any(len(group) > 1 for group in self.compared):
            seeds = min(left, max(LEAST_SEEDS, 3 + max(len(_seeds(group)) for group in self.compared)))
        bar = min(MIDDLE_BAR if seeds else WIDE_BAR, left - seeds)
        bars = {BAR: bar} if bar >= LEAST_BAR else {}
        seeds = left - sum(bars.values()) if seeds else 0
        columns = {"setting": name, **figures, **bars}
        return columns | ({"  each seed": seeds} if seeds else {})

    def _names(self, width: int) -> tuple[str, list[str]]:
        sweep = self.data.sweep
        return drawing.names(sweep, self.compared, width - 1) if sweep is not None else ("setting", [])

    @property
    def _scale(self) -> Scale | None:
        # Its zero is the metric of the preset, or else of the best setting.
        return scale_of(map(drawing.interval, self.compared), drawing.reference(self.compared), amount)

    def _column(self, name: str, width: int) -> Column:
        if name == BAR:
            return super()._column(name, width)
        is_figure = name not in ("setting", "  each seed")
        if name == "setting":
            return Column(name, Text(fitting(self._names(width)[0], width - 1, self.glyphs)), width)
        return Column(name, Text(name, justify="right" if is_figure else "left"), width)

    def _row(self, group: list[SweepTrial]) -> list[Text]:
        widths = self._widths()
        names = self._names(widths["setting"])[1]
        mean, spread = sweep_sentences.mean_or_state(group)
        fresh, _ = sweep_sentences.mean_and_spread(self._fresh(group))
        cells = [
            Text(fitting(names[self.compared.index(group)], widths["setting"] - 1, self.glyphs), no_wrap=True),
            *(Text(figure, justify="right") for figure in (mean, spread, fresh)),
        ]
        if BAR in widths:
            row = bar(drawing.interval(group), self._scale, widths[BAR] - 2, self.glyphs, "value")
            cells.append(self.cell([("  ", ""), *row]))
        if "  each seed" in widths:
            room = widths["  each seed"] - 2
            cells.append(Text(f"  {fitting(_seeds(group), room, self.glyphs)}", no_wrap=True))
        return cells

    def _detail(self, width: int, height: int) -> list[Row]:
        sweep, picked = self.data.sweep, self.picked
        if sweep is None or not picked:
            return [[("nothing has been trained so far" if self.data.is_read else "reading ...", "label")]]
        half, trials = width // 2, [*picked, *self._fresh(picked)]
        if self._has_lines and not self._shows_curves:
            rows = drawing.about(sweep, trials, width, self.glyphs)[: height // 3]
            picture = parallel(sweep, picked, width, height - len(rows) - 1, self.glyphs)
            return [*rows, [], *picture]
        wide = self.size.width >= WIDE
        curves = drawing.curves(sweep, self._drawn, width - half, height, self.glyphs) if wide else []
        rows = drawing.detail(sweep, trials, half - 2 if curves else width, height, self.glyphs)
        if not curves:
            return rows
        none: Row = []
        return [[*fit(row, half), *curve] for row, curve in zip_longest(rows, curves, fillvalue=none)]

    @property
    def _has_lines(self) -> bool:
        sweep, size = self.data.sweep, self.query_one("#detail").content_size
        return sweep is not None and fits(sweep, size.width, size.height - size.height // 3 - 1)

    # ---- keys -------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "resume":
            return self.data.state in RESUMABLE
        if action == "picture":
            return self._has_lines
        if action == "compare":
            return len(self._runs()) > 1
        return super().check_action(action, parameters)

    def why_not(self, verb: str) -> str:
        if verb == "resume":
            return "it goes on" if self.is_measuring else "it has ended"
        return "there are no two runs to compare" if verb == "compare" else super().why_not(verb)

    def run_of(self, name: str) -> Run:
        return Run(runs_folder() / name)

    def open_picked(self) -> None:
        started = [trial for trial in (self.picked or ()) if Run(runs_folder() / trial.run).path.is_dir()]
        self.open_trial(started[-1].run if started else "")

    def _runs(self) -> list[Run]:
        runs = [Run(runs_folder() / trial.run) for group in self.compared for trial in group]
        return [run for run in runs if run.path.is_dir()][:MOST_COMPARED]

    def action_picture(self) -> None:
        self._shows_curves = not self._shows_curves
        self.query_one("#detail", Panel).repaint()

    def action_compare(self) -> None:
        self.app.open_compare(self._runs())

    @work(exclusive=True, group="resume")
    async def action_resume(self) -> None:
        await actions.go_on_with_sweep(self.app, self.proof)
        self.read_again()


def _seeds(group: list[SweepTrial]) -> str:
    return clean("  ".join(map(sweep_sentences.seed, group)))
