"""The settings of a sweep as rows: the metric over each swept option, and the trials of one setting."""

from __future__ import annotations

import math
import statistics
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...engine.trials import report, sweep_record
from ...engine.trials.change_texts import short, value
from ...engine.trials.sweep_record import Axis, Sweep, SweepTrial
from ...engine.units import amount, counted, seconds
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.run.series import Line
from .interval_bar import table_rows
from .plot.axes import column_of, row_of, x_scale, y_scale
from .plot.canvas import curve_rows, draw
from .plot.curves import COLOURS, Curve, Plot
from .rows import Row, fitting, joined, wrapped

NAMES, FIGURES = 26, 9  # cells of an option with its value, and of a figure
LEAST_CURVES = 8  # rows of the curves with their title and axes
LINES = 3  # of a remark
STYLES = {sweep_record.DONE: "good", sweep_record.FAILED: "bad", sweep_record.DROPPED: "label"}


def about(sweep: Sweep, trials: Sequence[SweepTrial], width: int, glyphs: Glyphs) -> list[Row]:
    """Return remarks on the result, and a row for each of the `trials`, those of one setting."""
    remarks = filter(None, (sweep_record.luck(sweep), sweep_record.saved(sweep)))
    rows: list[Row] = [[(line, "label")] for text in remarks for line in wrapped(clean(text), width, glyphs, LINES)]
    return [*rows, *(_trial(sweep, trial, width, glyphs) for trial in trials)]


def detail(sweep: Sweep, trials: Sequence[SweepTrial], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return at most `height` rows: what `about` returns, and the metric over each swept option."""
    rows = about(sweep, trials, width, glyphs)
    over = over_options(sweep, width, glyphs)
    if over and len(rows) + 2 <= height:
        rows += [[], *over]
    return rows[:height]


def in_brief(sweep: Sweep, result: str, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return a sweep next to a list: its result, the best settings with mean and spread, the metric over options."""
    texts = filter(None, (result, sweep_record.luck(sweep)))
    rows: list[Row] = [[(line, "value")] for text in texts for line in wrapped(clean(text), width, glyphs, 2 * LINES)]
    over = over_options(sweep, width, glyphs)
    table = table_rows(report.groups(sweep), width, glyphs)
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


LEAST_OPTIONS = 3  # with fewer, the metric over each option says as much
LEAST_APART, LEAST_ROWS = 14, 8  # cells between two axes, and rows with the names of the axes
BRIGHT = 3  # settings, the best first; all others are faint
LABELS = 9  # cells left of the first axis and right of the last one, for the labels of their values
NOT_BEGUN = (sweep_record.PLANNED, sweep_record.WAITING, sweep_record.LEFT_OUT)
AS_WRITTEN = 8  # values of an option, up to which each has its label, and all are equally far apart


@dataclass(frozen=True)
class _Places:
    """An axis: the place of each value from 0 (below) to 1, by its text, and the labels by their places."""

    of: Mapping[str, float]
    labels: Mapping[float, str]


def fits(sweep: Sweep, width: int, height: int) -> bool:
    """Return True if parallel coordinates can be read in so many cells and rows, and say more than bars."""
    axes = len(sweep.settings.axes)
    has_room = axes >= LEAST_OPTIONS and (width - 2 * LABELS) // axes >= LEAST_APART and height >= LEAST_ROWS
    return has_room and bool(sweep_record.values(sweep.trials))


def parallel(sweep: Sweep, picked: Sequence[SweepTrial], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return the axes' names, then the lines; the metric is better further up. The picked and the best settings are
    bright; the line of one without a complete training ends before the metric."""
    settings, groups = sweep.settings, sweep_record.in_order(sweep.trials, sweep.settings.higher)
    groups = [group for group in groups if any(trial.state not in NOT_BEGUN for trial in group)]
    axes = [*(_option(axis, groups) for axis in settings.axes), _metric(groups, settings.higher)]
    curves = []
    for number, group in enumerate(groups):
        at = [
            places.of[value(group[0].changes.get(axis.key))] for axis, places in zip(settings.axes, axes, strict=False)
        ]
        mean, _ = sweep_record.mean_and_spread(group)
        at += [axes[-1].of[amount(mean)]] if mean is not None else []
        line = Line(array("d", range(len(at))), array("d", at))
        bright = group[0] in picked or (number < BRIGHT and mean is not None)
        curves.append((group[0] in picked, bright, Curve("", line, bright, faint=not bright, colour=number % COLOURS)))
    curves.sort(key=lambda curve: curve[:2])  # the brightest over all others
    inner, tall = width - 2 * LABELS, height - 1
    end = float(len(axes) - 1)
    plot = Plot("", "", tuple(curve for *_, curve in curves), bounds="share", x_unit="epoch", window=(0.0, end))
    across, scale = x_scale(plot, inner), y_scale(plot, tall, None)
    columns = [LABELS + column_of(float(at), across, inner) for at in range(len(axes))]
    rows = [[(" ", "")] * LABELS + _cells(row) + [(" ", "")] * LABELS for row in curve_rows(plot, inner, tall, glyphs)]
    for number, (column, places) in enumerate(zip(columns, axes, strict=True)):
        for cells in rows:
            if cells[column][0] in " \u2800":
                cells[column] = glyphs.axis, "track"
        for place, label in places.labels.items():
            text = fitting(clean(label), LABELS - 2, glyphs)
            start, row = column - 1 - len(text) if not number else column + 2, row_of(place, scale, tall)
            cells = rows[row if number in (0, len(axes) - 1) else max(0, row - 1)]  # else above the lines
            cells[start : start + len(text)] = [(char, "label") for char in text]
    names = [*(short(axis.key) for axis in settings.axes), settings.metric]
    return [_head(names, columns, width, glyphs), *map(joined, rows)]


def _head(names: Sequence[str], columns: Sequence[int], width: int, glyphs: Glyphs) -> Row:
    cells = [" "] * width
    apart = columns[1] - columns[0]
    for name, column in zip(names, columns, strict=True):
        text = fitting(clean(name), apart - 2, glyphs)
        start = max(0, min(width - len(text), column - len(text) // 2))
        cells[start : start + len(text)] = text
    return [("".join(cells), "value")]


def _option(axis: Axis, groups: Sequence[Sequence[SweepTrial]]) -> _Places:
    """An option's numbers by their size, other values in the order in which they are swept."""
    tried = [group[0].changes.get(axis.key) for group in groups]
    values = list({value(of): of for of in (*axis.values, *tried)}.values())
    numbers = [float(of) for of in values if isinstance(of, int | float) and not isinstance(of, bool)]
    if len(numbers) == len(values):
        values.sort(key=float)
    if len(values) <= AS_WRITTEN or len(numbers) < len(values):
        places = {value(of): (at + 0.5) / len(values) for at, of in enumerate(values)}
        every = math.ceil(len(values) / AS_WRITTEN)
        texts = (amount(of) if of in numbers and len(value(of)) > LABELS - 2 else value(of) for of in values)
        return _Places(places, dict(list(zip(places.values(), texts, strict=True))[::every]))
    low, high = min(numbers), max(numbers)
    scaled = math.log if axis.log and low > 0 else float
    places = {value(of): (scaled(of) - scaled(low)) / (scaled(high) - scaled(low)) for of in values}
    return _Places(places, {0.0: amount(low), 1.0: amount(high)})


def _metric(groups: Sequence[Sequence[SweepTrial]], higher: bool) -> _Places:
    means = [mean for group in groups if (mean := sweep_record.mean_and_spread(group)[0]) is not None]
    if not means:
        return _Places({}, {})
    best, worst = (max(means), min(means)) if higher else (min(means), max(means))
    places = {amount(mean): (mean - worst) / (best - worst) if best != worst else 1.0 for mean in means}
    return _Places(places, {0.0: amount(worst), 1.0: amount(best)})


def _cells(row: Row) -> Row:
    return [(char, style) for text, style in row for char in text]
