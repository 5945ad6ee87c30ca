"""The screen of a sweep: a row for each setting with its mean and spread, its trials, the metric over each option."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import Any, ClassVar

from textual.binding import BindingType

from ....engine.runs import Run, runs_folder
from ....engine.trials import RESUMABLE, report, sweep_record
from ....engine.trials.sweep_record import PROOF, SweepTrial
from ...base import keys
from ...drawing import sweep as drawing
from ...drawing.rows import Row, fit
from ...drawing.sweep import fits, parallel
from ...reading.proofs import ProofReading
from ...reading.run.series import Line
from ...reading.sweep_rows import TrialCurves
from ...widgets.row_widgets import Panel
from ..table import TableColumn
from .screen import ProofScreen

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

    AT_NEW = 0  # the best setting
    _curves: TrialCurves | None = None
    _drawn: Mapping[str, Line] = {}  # the curves as they are shown
    _shows_curves = False  # also if parallel coordinates could be shown

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
        return self.columns_of(report.groups(self.data.sweep)) if self.data.sweep is not None else []

    def _detail(self, width: int, height: int) -> list[Row]:
        sweep, picked = self.data.sweep, self.current
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

    def can_now(self, action: str) -> bool | str:
        match action:
            case "resume":
                return self.data.state in RESUMABLE or ("it goes on" if self.is_measuring else "it has ended")
            case "picture":
                return self._has_lines
            case "compare":
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

    def action_picture(self) -> None:
        self._shows_curves = not self._shows_curves
        self.query_one("#detail", Panel).repaint()

    def action_compare(self) -> None:
        self.app.open_compare(self._runs())
