"""Draws curves into rows of characters: scales with round numbers, axes with units, braille or plain dots.

Drawing is a pure function of the data and the size.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ...engine.text import DAY, HOUR, amount, axis_time, percent, share
from ..base.glyphs import Glyphs
from ..reading.series import Line
from .rows import Row, fit, headline, length

GUTTER = 7  # six characters for a label, and the axis
TIME_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, HOUR, 2 * HOUR, 4 * HOUR, 12 * HOUR, DAY)
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
_DASHES = ((1, 1), (2, 3), (1, 3), (1, 4))  # for each curve: how many cells of how many are drawn


@dataclass(frozen=True)
class Curve:
    """A line with its name; `marked` puts a mark on every point where there is room.

    `value` is shown as the current value, where that is not the line's last point.
    """

    label: str
    line: Line
    marked: bool = False
    value: float | None = None


@dataclass(frozen=True)
class Plot:
    """A plot. `bounds`: share (0 to 100 %), zero (from 0 up) or free; `note` is shown after the value."""

    title: str
    unit: str
    curves: tuple[Curve, ...]
    bounds: str = "free"
    x_unit: str = "time"
    x_end: float = 0.0
    final: bool = False
    note: str = ""


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high` with a label at every `step`."""

    low: float
    high: float
    step: float

    @property
    def ticks(self) -> list[float]:
        count = int((self.high - self.low) / self.step + 1e-6)
        return [self.low + i * self.step for i in range(count + 1)]

    def holds(self, low: float, high: float) -> bool:
        """Whether the values fit into the scale and fill enough of it."""
        within = self.low <= low and high <= self.high
        return (within and (high - low) * 4 >= (self.high - self.low)) or (within and high - low == 0)


def share_scale(tall: int) -> Scale:
    """0 to 100 %, with labels exactly on rows."""
    parts = next(parts for parts in (5, 4, 2, 1) if (tall - 1) % parts == 0)
    return Scale(0.0, 1.0, 1 / parts)


def round_step(least: float) -> float:
    """The next round number: 1, 2, 2.5 or 5 times a power of ten."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= least * 0.999)


def round_scale(low: float, high: float, tall: int) -> Scale:
    """The narrowest scale of round numbers whose labels fall exactly on some of `tall` rows."""
    if high <= low:
        spare = abs(low) * 0.1 or 1.0
        low, high = low - spare * (low != 0), high + spare
    gaps = max(1, tall - 1)
    counts = [n for n in range(2, 7) if gaps % n == 0]
    if not counts and gaps > 3:  # a number of rows that does not divide well: one is left as headroom
        return _lifted(round_scale(low, high, tall - 1), gaps)
    if not counts:
        step = round_step((high - low) / 4)
        bottom, top = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        return Scale(bottom, top, top - bottom)
    return min((_scale_of(low, high, n) for n in counts), key=lambda scale: scale.high - scale.low)


def _scale_of(low: float, high: float, intervals: int) -> Scale:
    step = round_step((high - low) / intervals)
    bottom = math.floor(low / step + 1e-9) * step
    while bottom + intervals * step < high * (1 - 1e-9):
        step = round_step(step * 1.01)
        bottom = math.floor(low / step + 1e-9) * step
    return Scale(bottom, bottom + intervals * step, step)


def _lifted(scale: Scale, gaps: int) -> Scale:
    return Scale(scale.low, scale.low + (scale.high - scale.low) * gaps / (gaps - 1), scale.step)


def y_scale(plot: Plot, tall: int, before: Scale | None) -> Scale:
    """The scale of the values; the previous scale stays as long as it fits, so that the picture does not jump."""
    if plot.bounds == "share":
        return share_scale(tall)
    values = [value for curve in plot.curves for value in curve.line.y]
    if not values:
        return Scale(0.0, 1.0, 1.0)
    low, high = (0.0 if plot.bounds == "zero" else min(values)), max(values)
    if before is not None and before.holds(low, high):
        return before
    return round_scale(low, high, tall)


def x_scale(plot: Plot, width: int) -> Scale:
    """From 0 to a little past the end, which then stays for a while; for a finished run, exactly to its end."""
    wanted = max(1, width // 9)
    if plot.x_unit == "time":
        end = max(plot.x_end, 1.0 if plot.final else 20.0)
        step = float(next((s for s in TIME_STEPS if end / s <= wanted), math.ceil(end / wanted / DAY) * DAY))
        return Scale(0.0, end if plot.final else soon(end), step)
    end = max(plot.x_end, 1.0)
    step = max(1.0, round_step(end / wanted))
    quantum = max(1.0, round_step(end / 8))
    return Scale(0.0, end if plot.final else math.ceil(end / quantum) * quantum, step)


def soon(seconds: float) -> float:
    """A round time at most an eighth later, or 5 seconds: an axis that ends there need not move all the time."""
    quantum = next((s for s in reversed(TIME_STEPS) if s <= seconds / 8), 5)
    return float(math.ceil(max(seconds, 1.0) / quantum) * quantum)


def draw(plot: Plot, width: int, height: int, glyphs: Glyphs, before: Scale | None = None) -> tuple[list[Row], Scale]:
    """Title, curves and axes in exactly `height` rows of `width` cells, and the scale that was used."""
    axis = height >= 5
    inner, tall = max(1, width - GUTTER), max(1, height - 1 - axis)
    scale, across = y_scale(plot, tall, before), x_scale(plot, inner)
    canvas = _Canvas(inner, tall, glyphs)
    for number, curve in enumerate(plot.curves):
        canvas.add(number, curve, scale, across)
    empty = not any(len(curve.line) for curve in plot.curves)
    labels = {_row_of(tick, scale, tall): tick for tick in reversed(scale.ticks)} if tall > 1 and not empty else {}
    rows = [title(plot, width, glyphs)]
    for number, row in enumerate(canvas.rows()):
        label = _y_label(labels[number], scale, plot.bounds) if number in labels else ""
        edge = glyphs.tick if label else glyphs.axis
        rows.append(fit([(f"{label:>{GUTTER - 1}}", "label"), (edge, "track"), *row], width))
    if axis and not empty:
        rows.append(_x_axis(plot, across, width, inner))
    return rows[:height], scale


def curve_rows(plot: Plot, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """The curves alone, without title and axes."""
    canvas = _Canvas(width, height, glyphs)
    for number, curve in enumerate(plot.curves):
        canvas.add(number, curve, y_scale(plot, height, None), x_scale(plot, width))
    return canvas.rows()


def title(plot: Plot, width: int, glyphs: Glyphs) -> Row:
    """Name, and each curve's mark, label and last value; what does not fit is left out from the right."""
    name: Row = [(plot.title, "title")]
    legend: Row = []
    for number, curve in enumerate(plot.curves):
        last = curve.value if curve.value is not None else curve.line.last
        value = percent(last) if plot.bounds == "share" else f"{amount(last):>5}"
        if len(plot.curves) > 1:
            legend.append((f"{' ' * (number > 0)}{glyphs.legend[number % 4]} ", f"curve{number % 4 + 1}"))
            legend.append((f"{curve.label} ", "label"))
        legend.append((value, "value"))
    if plot.unit:
        legend.append((f" {plot.unit}", "label"))
    if plot.note:
        legend.append((f"  {plot.note}", "value"))
    room = max(0, width - length(name) - 1)
    if plot.note and len(plot.curves) > 1 and length(legend) > room:
        legend.pop()  # the legend is more important
    if length(legend) > room:
        legend = [piece for piece in legend if piece[1] != "label" or piece[0].startswith(" ")]
    while length(legend) > room and legend:
        legend.pop()
    return headline(name, legend, width, glyphs.rule)


def tick_text(value: float, step: float) -> str:
    """A label of at most six characters, with enough digits to tell ticks apart."""
    if value and abs(value) >= 100_000:
        power, letter = (1e9, "G") if abs(value) >= 1e9 else (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
        return f"{value / power:.4g}{letter}"
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if digits and round(step * 10**digits, 6) != round(step * 10**digits):
        digits += 1
    text = f"{value + 0.0:,.{digits}f}"
    return text if len(text) <= GUTTER - 1 else f"{value:.0e}"


def _y_label(value: float, scale: Scale, bounds: str) -> str:
    return share(value) if bounds == "share" else tick_text(value, scale.step)


def _row_of(value: float, scale: Scale, tall: int) -> int:
    return round((scale.high - value) / (scale.high - scale.low) * (tall - 1))


def _x_axis(plot: Plot, across: Scale, width: int, inner: int) -> Row:
    """Labels below the places that they stand for, as many as there is room for."""
    text = [" "] * width
    free = 0
    for tick in across.ticks:
        label = axis_time(tick) if plot.x_unit == "time" else tick_text(tick, across.step)
        if plot.x_unit == "steps" and tick == 0:
            label = "step 0"
        at = GUTTER - 1 + round(tick / across.high * inner)
        start = max(0, min(at - len(label) // 2, width - len(label) - 1))
        if start >= free:
            text[start : start + len(label)] = label
            free = start + len(label) + 2
    return [("".join(text), "label")]


class _Canvas:
    """Dots in a grid of cells; where two curves share a cell, the later one, which is dashed, sets the colour."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self._width, self._height, self._glyphs = width, height, glyphs
        self._across, self._down = (2, 4) if glyphs.braille else (1, 1)
        self._bits = [[0] * width for _ in range(height)]
        self._owner = [[-1] * width for _ in range(height)]
        self._marks: dict[tuple[int, int], str] = {}

    def add(self, number: int, curve: Curve, scale: Scale, across: Scale) -> None:
        drawn, period = _DASHES[number % len(_DASHES)] if not self._is_sparse(curve) else (1, 1)
        for column, (low, high) in self._columns(curve.line, scale, across).items():
            if self._glyphs.braille and column // self._across % period >= drawn:
                continue
            for dot in range(low, high + 1):
                self._dot(number, column, dot)
        if curve.marked and self._is_sparse(curve):
            self._mark(number, curve, scale, across)

    def _is_sparse(self, curve: Curve) -> bool:
        return curve.marked and len(curve.line) * 3 <= self._width

    def _columns(self, line: Line, scale: Scale, across: Scale) -> dict[int, tuple[int, int]]:
        """For each column of dots the lowest and highest dot, with neighbours joined."""
        last_column, last_row = self._width * self._across - 1, self._height * self._down - 1
        per_x, per_y = last_column / (across.high - across.low), last_row / (scale.high - scale.low)
        low, top, breaks = across.low, scale.high, line.breaks
        columns: dict[int, tuple[int, int]] = {}
        column_before = row_before = -1
        for index, (x, y) in enumerate(zip(line.x, line.y, strict=True)):
            column, row = round((x - low) * per_x), round((top - y) * per_y)
            row = 0 if row < 0 else min(row, last_row)
            if not 0 <= column <= last_column:
                continue
            if column_before < 0 or index in breaks or column < column_before:
                _widen(columns, column, row, row)
            else:
                _join(columns, column_before, row_before, column, row)
            column_before, row_before = column, row
        return columns

    def _dot(self, number: int, column: int, dot: int) -> None:
        x, y = column // self._across, dot // self._down
        self._owner[y][x] = number
        if self._glyphs.braille:
            self._bits[y][x] |= _BITS[column % 2][dot % 4]

    def _mark(self, number: int, curve: Curve, scale: Scale, across: Scale) -> None:
        for x, y in zip(curve.line.x, curve.line.y, strict=True):
            dots_across, dots_down = self._width * self._across - 1, self._height * self._down - 1
            column = round((x - across.low) / (across.high - across.low) * dots_across) // self._across
            row = round((scale.high - y) / (scale.high - scale.low) * dots_down) // self._down
            if 0 <= column < self._width and 0 <= row < self._height:
                self._owner[row][column] = number
                self._marks[row, column] = self._glyphs.point

    def rows(self) -> list[Row]:
        return [self._row(number) for number in range(self._height)]

    def _row(self, number: int) -> Row:
        """A row with neighbouring cells of one curve in one piece."""
        row: Row = []
        for column, owner in enumerate(self._owner[number]):
            style = f"curve{owner % 4 + 1}" if owner >= 0 else ""
            char = self._marks.get((number, column)) or self._char(number, column, owner)
            if row and row[-1][1] == style:
                row[-1] = (row[-1][0] + char, style)
            else:
                row.append((char, style))
        return row

    def _char(self, row: int, column: int, owner: int) -> str:
        if owner < 0:
            return " "
        return chr(0x2800 + self._bits[row][column]) if self._glyphs.braille else self._glyphs.legend[owner % 4][0]


def _widen(columns: dict[int, tuple[int, int]], column: int, low: int, high: int) -> None:
    known = columns.get(column)
    columns[column] = (min(low, known[0]), max(high, known[1])) if known else (low, high)


def _join(columns: dict[int, tuple[int, int]], from_x: int, from_y: int, to_x: int, to_y: int) -> None:
    """A straight line without gaps."""
    if to_x == from_x:
        _widen(columns, to_x, min(from_y, to_y), max(from_y, to_y))
        return
    slope = (to_y - from_y) / (to_x - from_x)
    before = from_y
    for column in range(from_x + 1, to_x + 1):
        here = round(from_y + slope * (column - from_x))
        low, high = (before, here) if before <= here else (here, before)
        if high - low > 1:
            low, high = (low + 1, high) if before <= here else (low, high - 1)
        _widen(columns, column, low, high)
        before = here
