"""The screen of a sweep: a row for each setting with its mean and spread, its trials, the metric over each option."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import zip_longest
from typing import ClassVar

from textual.binding import BindingType

from ....engine.runs import Run, runs_folder
from ....engine.trials import RESUMABLE, sweep_record, sweep_sentences
from ....engine.trials.sweep_record import PROOF, SweepTrial
from ....engine.units import amount
from ...base import keys
from ...base.errors import clean
from ...drawing import sweep as drawing
from ...drawing.interval_bar import scale_of
from ...drawing.rows import Row, fit, fitting
from ...drawing.sweep import fits, parallel
from ...reading.proofs import ProofReading
from ...reading.run.series import Line
from ...reading.trial_curves import TrialCurves
from ...widgets.row_widgets import Panel
from ..table import TableColumn
from .screen import LEAST_BAR, ProofScreen

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

    def columns(self) -> list[TableColumn[list[SweepTrial]]]:
        """What names a setting, then figures, then, if there is room, bars and each seed's value."""
        sweep, groups = self.data.sweep, list(self.entries.values())
        metric = sweep.settings.metric if sweep is not None else "metric"
        of_mean = max(FIGURE, *(len(sweep_sentences.mean_or_state(group)[0]) + 1 for group in groups), 0)
        room = self.size.width - SCROLLBAR - of_mean - 2 * FIGURE - 2
        heading, names = drawing.names(sweep, groups, room - LEAST_SEEDS - 1) if sweep is not None else ("setting", [])
        name = max(LEAST_NAME, min(room - LEAST_SEEDS, 1 + max(map(len, (heading, *names)))))
        heading, names = drawing.names(sweep, groups, name - 1) if sweep is not None else (heading, names)
        left, seeds = room - name, 0
        if left >= LEAST_SEEDS and any(len(group) > 1 for group in groups):
            seeds = min(left, max(LEAST_SEEDS, 3 + max(len(_seeds(group)) for group in groups)))
        bar = min(MIDDLE_BAR if seeds else WIDE_BAR, left - seeds)
        bar = bar if bar >= LEAST_BAR else 0
        # The zero of its scale is the metric of the preset, or else of the best setting.
        scale = scale_of(map(drawing.interval, groups), drawing.reference(groups), amount)
        columns: list[TableColumn[list[SweepTrial]]] = [
            TableColumn(fitting(heading, name - 1, self.glyphs), name, lambda group: names[groups.index(group)]),
            TableColumn(
                clean(metric)[: FIGURE - 1], of_mean, lambda group: sweep_sentences.mean_or_state(group)[0], "right"
            ),
            TableColumn("spread", FIGURE, lambda group: sweep_sentences.mean_or_state(group)[1], "right"),
            TableColumn(
                "fresh seeds", FIGURE + 2, lambda group: sweep_sentences.mean_and_spread(self._fresh(group))[0], "right"
            ),
        ]
        if bar:
            columns.append(self.bars(bar, scale, lambda group: (drawing.interval(group), "value")))
        if seeds:
            columns.append(TableColumn("  each seed", left - bar, lambda group: f"  {_seeds(group)}"))
        return columns

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


def _seeds(group: list[SweepTrial]) -> str:
    return clean("  ".join(map(sweep_sentences.seed, group)))
