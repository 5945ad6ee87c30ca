"""The settings of a sweep as rows: the metric over each swept option, and the trials of one setting."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

from ...engine.trials import report, sweep_record
from ...engine.trials.change_texts import short, value
from ...engine.trials.sweep_record import Sweep, SweepTrial
from ...engine.units import amount, counted, seconds
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.run.series import Line
from .interval_bar import table_rows
from .plot.canvas import draw
from .plot.curves import COLOURS, Curve, Plot
from .rows import Row, fitting, wrapped

NAMES, FIGURES = 26, 9  # cells of an option with its value, and of a figure
LEAST_CURVES = 8  # rows of the curves with their title and axes
LINES = 3  # of a remark
STYLES = {sweep_record.DONE: "good", sweep_record.FAILED: "bad", sweep_record.DROPPED: "label"}


def detail(sweep: Sweep, trials: Sequence[SweepTrial], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return what the halving saved, the `trials` of one setting, and the metric over each swept option."""
    saved = sweep_record.saved(sweep)
    rows: list[Row] = [[(line, "label")] for line in wrapped(clean(saved), width, glyphs, LINES)]
    rows += [_trial(sweep, trial, width, glyphs) for trial in trials]
    over = over_options(sweep, width, glyphs)
    if over and len(rows) + 2 <= height:
        rows += [[], *over]
    return rows[:height]


def in_brief(sweep: Sweep, result: str, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return a sweep next to a list: its result, the best settings with mean and spread, the metric over options."""
    about = (sweep_record.luck, sweep_record.mattered, sweep_record.tested)
    texts = filter(None, (result, *(of(sweep) for of in about)))
    rows: list[Row] = [[(line, "value")] for text in texts for line in wrapped(clean(text), width, glyphs, 2 * LINES)]
    over = over_options(sweep, width, glyphs)
    table = table_rows(report.groups(sweep, brief=True), width, glyphs)
    rows += [[], *table[: max(1, height - len(rows) - len(over) - 2)]]
    return [*rows, *([[], *over] if over else [])][:height]


def _trial(sweep: Sweep, trial: SweepTrial, width: int, glyphs: Glyphs) -> Row:
    last = sweep_record.last_value(trial)
    figure = "" if last is None else f"  {sweep.settings.metric} {amount(last)}"
    time = "" if trial.seconds is None else f"  {seconds(trial.seconds)}"
    text = f"{trial.part:<8}seed {trial.seed:<12}"
    rest = f"{clean(sweep_record.outcome(trial))}{figure}{time}"
    return [(text, "label"), (fitting(rest, max(1, width - len(text)), glyphs), STYLES.get(trial.state, "value"))]


def over_options(sweep: Sweep, width: int, glyphs: Glyphs) -> list[Row]:
    """Return for each value of each swept option a bar: the mean metric of the search's trials with it."""
    done = [
        trial
        for trial in sweep.trials
        if trial.part == sweep_record.SEARCH and trial.state == sweep_record.DONE and trial.value is not None
    ]
    means: list[tuple[str, str, float]] = []
    for axis in sweep.settings.axes:
        by_value: dict[str, list[float]] = {}
        for trial in sorted(done, key=lambda trial: _place(trial.changes.get(axis.key))):
            by_value.setdefault(value(trial.changes.get(axis.key)), []).append(trial.value or 0.0)
        means += [(short(axis.key), of, statistics.fmean(metrics)) for of, metrics in by_value.items()]
    if not means:
        return []
    low, high = min(mean for *_, mean in means), max(mean for *_, mean in means)
    room = max(4, width - NAMES - FIGURES - 2)
    rows: list[Row] = [[(f"mean {clean(sweep.settings.metric)} over each swept option", "label")]]
    before = ""
    for name, of, mean in means:
        filled = 1 + round((mean - low) / (high - low) * (room - 1)) if high > low else room
        label = fitting(clean(f"{name if name != before else '':<16}{of:>9}"), NAMES - 1, glyphs)
        rows.append([(f"{label:<{NAMES}}", "value"), (glyphs.done * filled, "curve1"),
                     (glyphs.to_do * (room - filled), "track"), (f" {amount(mean):>{FIGURES}}", "value")])  # fmt: skip
        before = name
    return rows


def curves(sweep: Sweep, lines: Mapping[str, Line], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return the search's curves over each other, a colour for each setting. A trial that goes on or is complete has
    marks and is in the legend, the best first; one that ended early is faint."""
    if height < LEAST_CURVES:
        return []
    drawn = [
        _curve(trial, line, number % COLOURS)
        for number, group in enumerate(sweep_record.in_order(sweep.trials, sweep.settings.higher))
        for trial in group
        if len(line := lines.get(trial.run, Line()))
    ]
    if not drawn:
        return []
    end = max(max(curve.line.x) for curve in drawn)
    ended = sum(curve.faint for curve in drawn)
    note = f"({counted(len(drawn), 'trials')}" + (f", faint: {ended} ended early)" if ended else ")")
    plot = Plot(f"{clean(sweep.settings.metric)} {note}", "", tuple(drawn), x_unit="epoch", x_end=end)
    return draw(plot, width, height, glyphs)[0]


def _curve(trial: SweepTrial, line: Line, colour: int) -> Curve:
    name, short = clean(sweep_record.name(trial)), clean(" ".join(map(value, trial.changes.values())))
    survives = trial.state not in (sweep_record.DROPPED, sweep_record.FAILED)
    return Curve(name, line, marked=survives, faint=not survives, colour=colour, short=short)


def _place(of: object) -> tuple[int, float, str]:
    is_number = isinstance(of, int | float) and not isinstance(of, bool)
    return (0, float(of), "") if is_number else (1, 0.0, str(of))  # type: ignore[arg-type]
