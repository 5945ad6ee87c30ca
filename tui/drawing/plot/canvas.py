"""Draws curves, and the marks of best epochs and resumes, in rows of characters: all that makes braille."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from ....engine.units import amount, percent
from ...base.glyphs import PLAIN, Glyphs
from ...reading.run.series import Line, drawable
from ..rows import Row, fit, headline, joined, length
from .axes import GUTTER, Scale, column_of, row_of, x_labels, x_scale, y_label, y_scale
from .curves import COLOURS, Curve, Plot

_KINDS_OF_DASHES = 4
UNNAMED = ("train", "mean")  # first curves that need no name beside that of their chart


def style_of(number: int, curve: Curve) -> str:
    colour = number if curve.colour is None else curve.colour
    return f"{'faint' if curve.faint else 'curve'}{colour % COLOURS + 1}"


def dash_of(number: int) -> int:
    """Return the kind of dashes, from 0 to 3, of curve `number` (from 0)."""
    return number % _KINDS_OF_DASHES


def mark_of(number: int, curve: Curve, glyphs: Glyphs) -> str:
    """Return the mark of curve `number` in legends; that of a compared run is drawn on its curve, too."""
    compared = curve.colour is not None
    return glyphs.points[number % len(glyphs.points)] if compared else glyphs.legend[dash_of(number)].strip()


def title(plot: Plot, width: int, glyphs: Glyphs) -> Row:
    """Return a chart's first row: its name, the remarks on how it is drawn, its alarm, and the legend with the last
    values. If it is too long, the short labels are used, then remarks are shortened or left out, at last the values of
    some curves."""
    whole, everything = _name(plot, plot.how), next(_legends(plot, glyphs))
    if length(whole) + 1 + length(everything) <= width:
        return headline(whole, everything, width, glyphs.rule)
    legends = list(_legends(plot, glyphs))
    hows = [plot.how, tuple(how.partition(" ")[0] for how in plot.how), ()]
    candidates = [_name_and_legend(_name(plot, how), legends, width) for how in hows]
    most = max(_fullness(legend, plot) for _, legend in candidates)
    name, legend = next(pair for pair in candidates if _fullness(pair[1], plot) == most)
    return headline(name, legend, width, glyphs.rule)


def edge_title(plot: Plot, width: int, glyphs: Glyphs) -> Row:
    """Return the title for the chart's upper edge, with a blank at both ends."""
    row = title(plot, width - 2, glyphs)
    return [(" ", ""), *((text, "edge" if style == "track" else style) for text, style in row), (" ", "")]


def _name(plot: Plot, how: tuple[str, ...]) -> Row:
    alarm: Row = [(f" {plot.alarm}", "bad")] if plot.alarm else []
    scale = " (log)" if plot.logarithmic else ""
    return [(f"{plot.title}{scale}", "title"), *((f" {remark}", "label") for remark in how), *alarm]


def _name_and_legend(name: Row, legends: list[Row], width: int) -> tuple[Row, Row]:
    room = max(0, width - length(name) - 1)
    return name, next((row for row in legends if length(row) <= room), [])


def _fullness(legend: Row, plot: Plot) -> int:
    values = sum(style == "value" and text.strip() != plot.note for text, style in legend)
    return values * 2 + any(text == f" {plot.unit}" for text, _ in legend)


def _legends(plot: Plot, glyphs: Glyphs) -> Iterator[Row]:
    """Yield the legend in shorter and shorter forms, from the full form to the marks alone."""
    note: Row = [(f"  {plot.note}", "value")] if plot.note else []
    unit: Row = [(f" {plot.unit}", "label")] if plot.unit else []
    shown = plot.in_legend
    everyone = set(range(len(shown)))
    for more in ([*unit, *note], unit):
        for whole in (True, False):
            yield [*_legend(plot, everyone, glyphs, whole), *more]
    yield [*_legend(plot, everyone, glyphs, narrow=True), *unit]
    if len(shown) > 2 and shown[0].label in UNNAMED:  # the others have marks, too
        for without in (-1, 0) if shown[0].lesser else (-1,):
            for unnamed in range(1, len(shown) + 1):
                yield [*_legend(plot, everyone, glyphs, narrow=True, without=without, unnamed=unnamed), *unit]
    for number in sorted(everyone, key=lambda number: (not shown[number].lesser, -number)):
        everyone.remove(number)
        if everyone:
            yield [*_legend(plot, everyone, glyphs, narrow=True), *unit]  # a value without unit says too little
        lesser = next((at for at, curve in enumerate(shown) if curve.lesser), None)
        if lesser is not None and everyone - {lesser}:
            yield [*_legend(plot, everyone, glyphs, narrow=True, without=lesser), *unit]
    yield [*_legend(plot, {0}, glyphs, narrow=True)[: 2 + (len(shown) > 1)], *unit]  # of the first curve alone
    if len(shown) == 1:
        yield _legend(plot, {0}, glyphs, narrow=True)
    yield _legend(plot, set(), glyphs, narrow=True)


def _legend(
    plot: Plot, valued: set[int], glyphs: Glyphs, whole: bool = False, narrow: bool = False, without: int = -1,
    unnamed: int = 0,
) -> Row:  # fmt: skip
    """Return each curve's mark and name, with the values of those in `valued`. A single curve has only its value, and
    the first `unnamed` curves have no name."""
    row: Row = []
    several = len(plot.in_legend) > 1
    for number, curve in enumerate(plot.in_legend):
        if number == without:
            continue
        mark = mark_of(number, curve, glyphs)
        label = curve.label if whole else curve.short or curve.label
        if several:
            mark = mark[:1] if narrow else f"{mark} "
            row.append((f"{' ' * bool(row)}{mark}", style_of(number, curve)))
            row += [(label, "label")] if number >= unnamed else []
        if number in valued:
            value = value_text(plot, curve.value if curve.value is not None else curve.line.last)
            row.append((f"{' ' * (several and number >= unnamed)}{value.strip() if narrow else value}", "value"))
    return row


def value_text(plot: Plot, value: float | None) -> str:
    return percent(value) if plot.bounds == "share" else f"{amount(value):>5}"


HAS_AXIS = 5  # rows, from which on a chart has a row for the labels of its horizontal axis
ALONE_HEIGHT = 12  # from this height on a chart has vertical grid lines and the name of its axis
_BITS = ((0x01, 0x02, 0x04, 0x40), (0x08, 0x10, 0x20, 0x80))
# of each half cell the dots from the one number to the other
_DOTS = tuple(tuple(tuple(sum(half[first : last + 1]) for last in range(4)) for first in range(4)) for half in _BITS)
_DASHES = ((1, 1), (2, 3), (1, 3), (1, 4))  # of each kind of dashes: how many cells of how many are drawn
_APART, _APART_FROM_OTHERS = 16, 5  # cells between the marks of a compared run's curve, and between those of two runs
Part = dict[int, tuple[int, int]]  # an unbroken part of a line: for each column of dots the lowest and highest one


def draw(plot: Plot, width: int, height: int, glyphs: Glyphs, before: Scale | None = None) -> tuple[list[Row], Scale]:
    """Return the chart and the scale of its values, which stays that of `before` while it fits."""
    if glyphs.legend == PLAIN.legend and len(plot.curves) > 1 and plot.curves[0].colour is None:
        glyphs = replace(glyphs, braille=False)  # each curve with the character of the legend
    axis = height >= HAS_AXIS
    inner, tall = max(1, width - GUTTER), max(1, height - 1 - axis)
    scale, across = y_scale(plot, tall, before), x_scale(plot, inner)
    canvas = _Canvas(inner, tall, glyphs)
    labels = {row_of(tick, scale, tall): tick for tick in reversed(scale.ticks)} if tall > 1 and not plot.empty else {}
    if not plot.empty:
        canvas.grid(sorted(labels), across if height >= ALONE_HEIGHT else None)
    _add_all(canvas, plot, scale, across)
    for at in plot.joins:
        canvas.upright(column_of(at, across, inner), "title", glyphs.join)
    for at in plot.best:
        canvas.upright(column_of(at, across, inner), "good", glyphs.best)
    rows = [title(plot, width, glyphs)]
    for number, row in enumerate(canvas.rows()):
        label = y_label(labels[number], scale, plot.bounds) if number in labels else ""
        edge = glyphs.tick if label else glyphs.axis
        whole = [(f"{label:>{GUTTER - 1}}", "label"), (edge, "track"), *row]
        rows.append(whole if width > GUTTER else fit(whole, width))
    if axis and not plot.empty:
        rows.append(x_labels(plot, across, width, named=height >= ALONE_HEIGHT))
    return rows[:height], scale


def curve_rows(plot: Plot, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return the curves in `height` rows of `width` cells, without title and axes."""
    canvas = _Canvas(width, height, glyphs)
    _add_all(canvas, plot, y_scale(plot, height, None), x_scale(plot, width))
    return canvas.rows()


def _add_all(canvas: _Canvas, plot: Plot, scale: Scale, across: Scale) -> None:
    lines = [canvas.lines(curve, scale, across) for curve in plot.curves]
    if plot.filled and plot.in_legend and scale.low == 0 and not scale.logarithmic:
        canvas.fill(lines[plot.curves.index(plot.in_legend[0])])
    for (number, curve), parts in zip(plot.numbered, lines, strict=True):
        canvas.add(number, curve, parts)
        if curve.marked and canvas.is_sparse(curve):
            canvas.mark(number, curve, scale, across)
    for (number, curve), parts in zip(plot.numbered, lines, strict=True):  # over all lines
        if curve.colour is not None and not curve.faint:
            canvas.name(number, curve, parts)


PER_COLUMN = 2  # points for each column of dots; more are drawn together


# The line at a place: the place, the values with which it comes and leaves, the lowest and the highest there. Plain
# tuples, as most of a chart's time would be spent on making others.
Stop = tuple[float, float, float, float, float]


class _Part(NamedTuple):
    """A part of a line without a break: places, values, and the extremes of the readings that each point stands for."""

    x: Sequence[float]
    y: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def _strokes(line: Line, across: Scale, columns: int, logarithmic: bool = False) -> Iterator[list[Stop]]:
    """Yield the unbroken parts of a line as stops; with more than PER_COLUMN points per column one each. On a
    logarithmic scale, values are decimal logarithms."""
    line = drawable(line, logarithmic)
    for part in _parts(line):
        begin, end = bisect_left(part.x, across.low), bisect_right(part.x, across.high)
        stops = _stops(_Part(*(values[begin:end] for values in part)), across, columns)
        left, right = _crossing(part, begin, across.low), _crossing(part, end, across.high)
        if crossed := [*left, *stops, *right]:
            yield crossed


def _parts(line: Line) -> Iterator[_Part]:
    edges = [0, *sorted(line.breaks), len(line)]
    merged = len(line.low) > 0
    for begin, end in pairwise(edges):
        x, y = line.x[begin:end], line.y[begin:end]
        if len(x):
            yield _Part(x, y, line.low[begin:end] if merged else y, line.high[begin:end] if merged else y)


def _stops(part: _Part, across: Scale, columns: int) -> list[Stop]:
    """One stop for each point or, with more than PER_COLUMN points for each column, one for each column."""
    if len(part.x) <= PER_COLUMN * columns:
        return list(zip(part.x, part.y, part.y, part.low, part.high, strict=True))
    wide = (across.high - across.low) / max(1, columns - 1)
    stops: list[Stop] = []
    begin = 0
    for column in range(columns):
        end = bisect_left(part.x, across.low + (column + 0.5) * wide, begin) if column < columns - 1 else len(part.x)
        if end > begin:
            low, high = min(part.low[begin:end]), max(part.high[begin:end])
            stops.append((across.low + column * wide, part.y[begin], part.y[end - 1], low, high))
        begin = end
    return stops


def _crossing(part: _Part, index: int, edge: float) -> list[Stop]:
    if not 0 < index < len(part.x):
        return []
    before, after = part.x[index - 1], part.x[index]
    if not before < edge < after:
        return []
    y = part.y[index - 1] + (part.y[index] - part.y[index - 1]) * (edge - before) / (after - before)
    return [(edge, y, y, y, y)]


# ---- the picture ----------------------------------------------------------------------------------


class _Canvas:
    """A grid of cells with the dots of curves: 2 x 4 dots in a cell with braille, else 1 x 1. If two curves share a
    cell, it has the colour of the later curve, which is dashed there."""

    def __init__(self, width: int, height: int, glyphs: Glyphs) -> None:
        self._width, self._height, self._glyphs = width, height, glyphs
        self._across, self._down = (2, 4) if glyphs.braille else (1, 1)
        self._bits = [[0] * width for _ in range(height)]
        self._styles = [[""] * width for _ in range(height)]
        self._marks: dict[tuple[int, int], str] = {}

    # ---- beneath the curves

    def grid(self, rows: list[int], across: Scale | None) -> None:
        # `rows` are those of the vertical axis' labels, whose lines are drawn only if they are more than a row apart.
        near = min((below - above for above, below in pairwise(rows)), default=self._height)
        for row in rows if near > 1 else []:
            for column in range(self._width):
                self._put(row, column, self._glyphs.grid_across, "grid")
        for tick in across.ticks if across else []:
            self.upright(column_of(tick, across, self._width) if across else 0, "grid", self._glyphs.grid_down)

    def upright(self, column: int, style: str, char: str) -> None:
        # Cells of curves stay.
        for row in range(self._height):
            if 0 <= column < self._width and not self._styles[row][column].startswith("curve"):
                self._put(row, column, char, style)

    def fill(self, parts: list[Part]) -> None:
        # Cells of the curve stay.
        for columns in parts:
            for column, (_, low) in columns.items():
                for row in range(low // self._down + 1, self._height):
                    self._put(row, column // self._across, self._glyphs.fill, "fill1")

    # ---- the curves

    def add(self, number: int, curve: Curve, parts: list[Part]) -> None:
        style = style_of(number, curve)
        drawn, period = _DASHES[dash_of(number)] if not self.is_sparse(curve) else (1, 1)
        for columns in parts:
            if len(columns) == 1 and self._is_point(columns, style):
                continue
            for column, (low, high) in columns.items():
                if self._glyphs.braille and (column // self._across % period >= drawn or (curve.faint and column % 2)):
                    continue
                self._upright(number, column, low, high, style)

    def is_sparse(self, curve: Curve) -> bool:
        return curve.marked and len(curve.line) * 3 <= self._width

    def lines(self, curve: Curve, scale: Scale, across: Scale) -> list[Part]:
        columns = self._width * self._across
        parts = _strokes(curve.line, across, columns, scale.logarithmic)
        return [self._columns(stops, scale, across) for stops in parts]

    def _columns(self, stops: list[Stop], scale: Scale, across: Scale) -> Part:
        last_column, last_row = self._width * self._across - 1, self._height * self._down - 1
        per_x, per_y = last_column / (across.high - across.low), last_row / (scale.high - scale.low)
        left, top = across.low, scale.high
        columns: Part = {}
        before = -1, -1

        def row_at(value: float) -> int:
            row = round((top - value) * per_y)
            return 0 if row < 0 else last_row if row > last_row else row

        for x, first, last, low, high in stops:
            column, row = min(round((x - left) * per_x), last_column), row_at(first)
            near = row if before[0] < 0 else _join(columns, *before, column, row)
            if low == high:
                upper = lower = row
            else:
                upper, lower = row_at(high), row_at(low)
            _widen(columns, column, near if near < upper else upper, near if near > lower else lower)
            before = column, row if last == first else row_at(last)
        return columns

    def _put(self, row: int, column: int, char: str, style: str) -> None:
        self._styles[row][column] = style
        self._marks[row, column] = char

    def _upright(self, number: int, column: int, low: int, high: int, style: str) -> None:
        """Set the dots from `low` to `high`, which count from the top, of a column of dots."""
        x, first, last = column // self._across, low // self._down, high // self._down
        dots = _DOTS[column % 2]
        for y in range(first, last + 1):
            self._styles[y][x] = style
            if self._glyphs.braille:
                self._bits[y][x] |= dots[low % 4 if y == first else 0][high % 4 if y == last else 3]
                self._marks.pop((y, x), None)
            else:
                self._marks[y, x] = "." if style.startswith("faint") else self._glyphs.legend[dash_of(number)][0]

    def _is_point(self, columns: dict[int, tuple[int, int]], style: str) -> bool:
        # A dot would be too small to see.
        ((column, (low, high)),) = columns.items()
        if low == high:
            self._put(low // self._down, column // self._across, self._glyphs.point, style)
        return low == high

    def mark(self, number: int, curve: Curve, scale: Scale, across: Scale) -> None:
        style, sign = style_of(number, curve), mark_of(number, curve, self._glyphs)
        line = drawable(curve.line, scale.logarithmic)
        for x, y in zip(line.x, line.y, strict=True):
            dots_down = self._height * self._down - 1
            column = column_of(x, across, self._width)
            row = round((scale.high - y) / (scale.high - scale.low) * dots_down) // self._down
            if 0 <= column < self._width and 0 <= row < self._height:
                self._put(row, column, self._glyphs.point if curve.colour is None else sign, style)

    def name(self, number: int, curve: Curve, parts: list[Part]) -> None:
        """Draw the mark of a compared run's curve at its end and, without marks at its points, at every 16th cell."""
        sign, style = mark_of(number, curve, self._glyphs), style_of(number, curve)
        columns: Part = {}
        for part in parts:
            columns |= part
        last, sparse = max(columns, default=0), self.is_sparse(curve)
        for column, (low, high) in columns.items():
            cell, rest = divmod(column, self._across)
            is_place = rest == 0 and cell % _APART == number * _APART_FROM_OTHERS % _APART
            if column == last or (is_place and not sparse):
                self._put((low + high) // 2 // self._down, cell, sign, style)

    def rows(self) -> list[Row]:
        return [self._row(number) for number in range(self._height)]

    def _row(self, number: int) -> Row:
        cells = enumerate(zip(self._styles[number], self._bits[number], strict=True))
        return joined(
            ((self._marks.get((number, column)) or chr(0x2800 + bits)) if style else " ", style)
            for column, (style, bits) in cells
        )


def _widen(columns: Part, column: int, low: int, high: int) -> None:
    before = columns.get(column)
    if before is not None:
        low, high = low if low < before[0] else before[0], high if high > before[1] else before[1]
    columns[column] = low, high


def _join(columns: Part, from_x: int, from_y: int, to_x: int, to_y: int) -> int:
    """Widen the columns between two points to a straight line without gaps. Dots from the left, rows from the top."""
    if to_x == from_x:
        return from_y
    before = from_y
    if to_x > from_x + 1:
        slope = (to_y - from_y) / (to_x - from_x)
        for column in range(from_x + 1, to_x):
            here = round(from_y + slope * (column - from_x))
            near = _after(before, here)
            _widen(columns, column, min(near, here), max(near, here))
            before = here
    return _after(before, to_y)


def _after(row: int, towards: int) -> int:
    return row + 1 if towards > row + 1 else row - 1 if towards < row - 1 else row
