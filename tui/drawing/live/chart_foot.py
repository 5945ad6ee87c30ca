"""The row below charts with one axis: the place of the cursor, the visible range, the marks in them, the phases."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence

from ....engine import figures
from ...base.glyphs import Glyphs
from ...reading.run.series import along
from ...reading.run.snapshot import Snapshot
from ...wording.run import brief
from ..plot.cursor import place_text
from ..plot.curves import Plot
from ..plot.viewport import Viewport, Window
from ..rows import Row, kept_items, length, spread
from . import phases

_SPEED = figures.of_run("samples_per_second").progress
_LEAST_PHASES = 24  # columns that the phases need next to the marks
_UNITS = ("time", "step", "epoch")


def row(
    now: Snapshot, plots: Sequence[Plot], view: Viewport, width: int, glyphs: Glyphs, back: str, alone: bool = False
) -> Row:
    """Return one row: the cursor's place in all units, or the selected range and the key `back`, which shows the whole
    axis; else the marks in `plots` with their names, and the phases of the run. `alone` is True below a chart alone,
    where another row has the place of the cursor in the unit of the axis."""
    if not plots:
        return phases.phase_line(now, width)
    plot = plots[0]
    right: Row = [(f"  {back}", "title"), (" shows all", "label")] if view.window is not None else []
    room = width - length(right)
    if view.dragged is not None:
        return spread(_range(plot, view.dragged, "select "), right, width)
    if view.cursor is not None:
        texts = places(now, plot, view.cursor)[alone:]
        items: list[Row] = [[(f"{'  ' * bool(at)}{text}", "value")] for at, text in enumerate(texts)]
        return spread([piece for item in kept_items(items, room) for piece in item], right, width)
    if view.window is not None:
        return spread(_range(plot, view.window, "only "), right, width)
    items = [[("  ", ""), *mark] for mark in marks_of(now, plot, glyphs)]
    marks = [piece for item in kept_items(items, width) for piece in item]
    left = width - length(marks)
    return [*phases.phase_line(now, left), *marks] if left >= _LEAST_PHASES else spread(marks, [], width)


def _range(plot: Plot, ends: Window, verb: str) -> Row:
    low, high = (place_text(plot, place, max(ends) - min(ends)) for place in sorted(ends))
    return [(verb, "label"), (low.removesuffix(f" {plot.since}"), "value"), (" to ", "label"), (high, "value")]


def places(now: Snapshot, plot: Plot, place: float) -> list[str]:
    """Return a place on the axis of the plot in words, first in the unit of the axis, then as time, step and epoch if
    the readings show which of them belong together."""
    texts = [place_text(plot, place)]
    line = now.line(_SPEED)
    placed = along(line, plot.x_unit, now.pace)
    if not len(placed) or not len(placed.steps):
        return texts
    after = min(bisect_left(placed.x, place), len(placed) - 1)
    near = min((max(0, after - 1), after), key=lambda index: abs(placed.x[index] - place))
    seconds = line.x[near - len(placed)]  # readings before training are left out on an axis of time
    for unit in _UNITS:
        if unit != plot.x_unit and unit in now.pace.axes():
            other = Plot("", "", (), x_unit=unit)
            texts.append(place_text(other, now.pace.place(unit, seconds, placed.steps[near])))
    return texts


def marks_of(now: Snapshot, plot: Plot, glyphs: Glyphs) -> list[Row]:
    """Return each kind of mark that the plot has, with its name."""
    marks: list[Row] = []
    if plot.best:
        epochs = sorted({best.epoch for best in now.best.values()})
        marks.append([(glyphs.best, "good"), (f" best epoch {', '.join(map(str, epochs))}", "label")])
    if plot.joins:
        marks.append([(glyphs.join, "warn"), (" resumed", "label")])
    letters = {spell[2] for spell in plot.spells}
    names = {mark_of(spell.phase): brief(spell.phase) for spell in now.spells}
    return marks + [[(letter, "value"), (f" {names[letter]}", "label")] for letter in sorted(letters)]


def mark_of(phase: str) -> str:
    return phase[:1]
