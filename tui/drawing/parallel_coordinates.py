"""The settings of a sweep as parallel coordinates: an axis for each swept option and for the metric, a line for each
setting."""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...engine.trials import sweep_groups
from ...engine.trials.change_texts import short, value
from ...engine.trials.sweep_record import LEFT_OUT, PLANNED, WAITING, Axis, Sweep, SweepTrial
from ...engine.units import amount
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.run.series import Line
from .plot.axes import column_of, row_of, x_scale, y_scale
from .plot.canvas import curve_rows
from .plot.colours import COLOURS
from .plot.curves import Curve, Plot
from .rows import Row, fitting, joined

LEAST_OPTIONS = 3  # with fewer, the metric over each option says as much
LEAST_APART, LEAST_ROWS = 14, 8  # cells between two axes, and rows with the names of the axes
BRIGHT = 3  # settings, the best first; all others are faint
LABELS = 9  # cells left of the first axis and right of the last one, for the labels of their values
NOT_BEGUN = (PLANNED, WAITING, LEFT_OUT)
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
    return has_room and bool(sweep_groups.values(sweep.trials))


def parallel(sweep: Sweep, picked: Sequence[SweepTrial], width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return the axes' names, then the lines; the metric is better further up. The picked and the best settings are
    bright; the line of one without a complete training ends before the metric."""
    settings, groups = sweep.settings, sweep_groups.in_order(sweep.trials, sweep.settings.higher)
    groups = [group for group in groups if any(trial.state not in NOT_BEGUN for trial in group)]
    axes = [*(_option(axis, groups) for axis in settings.axes), _metric(groups, settings.higher)]
    curves = []
    for number, group in enumerate(groups):
        at = [
            places.of[value(group[0].changes.get(axis.key))] for axis, places in zip(settings.axes, axes, strict=False)
        ]
        mean, _ = sweep_groups.mean_and_spread(group)
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
    means = [mean for group in groups if (mean := sweep_groups.mean_and_spread(group)[0]) is not None]
    if not means:
        return _Places({}, {})
    best, worst = (max(means), min(means)) if higher else (min(means), max(means))
    places = {amount(mean): (mean - worst) / (best - worst) if best != worst else 1.0 for mean in means}
    return _Places(places, {0.0: amount(worst), 1.0: amount(best)})


def _cells(row: Row) -> Row:
    return [(char, style) for text, style in row for char in text]
