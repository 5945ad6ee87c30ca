"""The readout of a chart's cursor: its place, and the value of each curve there."""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....engine.units import NONE, amount, count, counted, seconds, share
from ...base.glyphs import Glyphs
from ...reading.run.series import AXES, Line
from ..rows import Row, length, plain
from .axes import GUTTER, Scale, column_of
from .canvas import mark_of, style_of
from .curves import Curve, Plot
from .viewport import Viewport

_TENTH = 0.1  # a column that is less than this many seconds needs more digits of them
_FAR = 1.5  # times the distance of neighbouring points: no reading belongs to a place so far from one


@dataclass(frozen=True)
class At:
    """A point of a line: its place, its value, and the extremes of the readings that it stands for."""

    x: float
    y: float
    low: float
    high: float


def point_at(line: Line, x: float, anywhere: bool = False) -> At | None:
    """Return the nearest point; None for no points and, unless `anywhere`, in a gap or beyond the ends."""
    if not len(line):
        return None
    after = min(bisect_left(line.x, x), len(line) - 1)
    before = max(0, after - 1)
    near = min((before, after), key=lambda index: abs(line.x[index] - x))
    in_gap = after in line.breaks and line.x[before] < x < line.x[after]
    first, last = line.x[0], line.x[-1]
    reach = _FAR * (last - first) / max(1, len(line) - 1)
    if not anywhere and (in_gap or not first - reach <= x <= last + reach):
        return None
    y = line.y[near]
    return At(line.x[near], y, line.low[near] if len(line.low) else y, line.high[near] if len(line.high) else y)


def place_text(plot: Plot, x: float, near: float = 1.0) -> str:
    """Return a place, such as `step 1,234` or `1:12 after training began`; texts of places differ from `near` on."""
    digits = max(0, math.ceil(-math.log10(near))) if near > 0 else 0
    if plot.x_unit == "time":
        return f"{f'{x:.{digits}f} s' if near < _TENTH else seconds(x)} {plot.since}"
    if plot.x_unit == "epoch":
        return f"epoch {x:.{max(2, digits)}f}"
    return f"step {count(x)}" if plot.x_unit == "step" else counted(x, "samples")


def rows(plot: Plot, x: float, near: float, width: int, glyphs: Glyphs) -> list[Row]:
    """Return the place and each curve's value there; a point further away than `near` has its own place."""
    pieces: list[Row] = [[(place_text(plot, x, near), "title")]]
    pieces += [_curve_row(plot, curve, number, x, near, glyphs) for number, curve in plot.numbered if not curve.faint]
    drawn: list[Row] = [[]]
    for piece in pieces:
        if drawn[-1] and length(drawn[-1]) + 3 + length(piece) > width:
            drawn.append([])
        drawn[-1] += [("   ", ""), *piece] if drawn[-1] else piece
    return drawn


def _curve_row(plot: Plot, curve: Curve, number: int, x: float, near: float, glyphs: Glyphs) -> Row:
    at = point_at(curve.raw or curve.line, x, anywhere=curve.marked)
    name = curve.label or plot.title
    row: Row = [(f"{mark_of(number, curve, glyphs)} ", style_of(number, curve)), (f"{name} ", "label")]
    if at is None:
        return [*row, (NONE, "value")]
    row.append((with_unit(plot, at.y), "value"))
    more = [f"{with_unit(plot, at.low)} to {with_unit(plot, at.high)}"] if at.low != at.high else []
    if curve.raw is not None and (smooth := point_at(curve.line, x)) is not None:
        more.append(f"smoothed {with_unit(plot, smooth.y)}")
    if abs(at.x - x) > near:
        more.append(f"at {place_text(plot, at.x, near).removesuffix(f' {plot.since}')}")
    return [*row, (f" ({', '.join(more)})" if more else "", "label")]


def with_unit(plot: Plot, value: float) -> str:
    if plot.bounds == "share":
        return share(value, 1)
    return f"{amount(value)}{f' {plot.unit}' if plot.unit else ''}"


def seen_at(plot: Plot, x: float) -> Plot:
    """Return the plot with the values at `x` in its legend; NaN, shown as a dash, for a curve without a point there."""

    def with_value(curve: Curve) -> Curve:
        at = point_at(curve.raw or curve.line, x, anywhere=curve.marked)
        return replace(curve, value=at.y if at is not None else math.nan)

    return replace(plot, curves=tuple(map(with_value, plot.curves)), note="")


def named_last(plot: Plot) -> Plot:
    """Return the plot with a legend that calls its values the last ones, as other rows have others."""
    if plot.empty or plot.x_unit not in AXES or any(curve.colour is not None for curve in plot.curves):
        return plot  # without values, or with the results of whole runs
    return replace(plot, unit=f"{plot.unit}, last" if plot.unit else "last")


def has_values(plot: Plot) -> bool:
    return any((curve.raw or curve.line).x for curve in plot.in_legend)


def table(plot: Plot) -> str:
    """Return the visible points for a spreadsheet: names, then places with values, by tabs; shares in percent."""
    lines = [curve.raw or curve.line for curve in plot.in_legend]
    unit = "%" if plot.bounds == "share" else plot.unit
    names = [f"{curve.label or plot.title}{f' ({unit})' if unit else ''}" for curve in plot.in_legend]
    values = [dict(zip(line.x, line.y, strict=True)) for line in lines]
    axis = "seconds" if plot.x_unit == "time" else plot.x_unit
    text_lines = ["\t".join([axis, *names])]
    scale = 100 if plot.bounds == "share" else 1
    low, high = plot.window or (-math.inf, math.inf)
    for x in sorted({x for line in lines for x in line.x if low <= x <= high}):
        cells = [f"{by_place[x] * scale:.6g}" if x in by_place else "" for by_place in values]
        text_lines.append("\t".join([f"{x:.6g}", *cells]))
    return "\n".join(text_lines)


_CURVES = ("curve", "faint")  # beginnings of the styles of cells that stay
_SHADED = ("", "grid", "fill1", "label")  # styles of cells that are shaded in a range


def overlaid(
    rows: Sequence[Row], plot: Plot, across: Scale, view: Viewport, width: int, has_axis: bool, glyphs: Glyphs
) -> list[Row]:
    """Return the rows with the cursor and the dragged range, named on the axis. Cells of curves stay."""
    inner = max(1, width - GUTTER)
    places = view.dragged or ((view.cursor,) if view.cursor is not None else ())
    columns = sorted(column_of(place, across, inner) for place in places)
    if not places or columns[0] < 0 or columns[-1] >= inner:
        return list(rows)
    drawn = [list(row) for row in rows]
    body = drawn[:-1] if has_axis else drawn
    for number, row in enumerate(body):
        if len(columns) > 1:
            before, inside, after = _cut(row, GUTTER + columns[0], GUTTER + columns[1] + 1)
            row = [*before, *((text, "here" if style in _SHADED else style) for text, style in inside), *after]
        for column in columns:
            row = _put(row, GUTTER + column, glyphs.axis, "cursor", over_curves=False)
        drawn[number] = row
    if has_axis:
        cell = (across.high - across.low) / inner
        end = width - (len(plot.corner) + 2 if plot.corner else 0)
        for place in sorted(places):
            text = f" {place_text(plot, place, cell).removesuffix(f' {plot.since}')} "
            at = GUTTER + column_of(place, across, inner) - len(text) // 2
            drawn[-1] = _labelled(drawn[-1], max(0, min(at, end - len(text))), text)
    return drawn


def _put(row: Row, at: int, text: str, style: str, over_curves: bool = True) -> Row:
    # Without `over_curves`, a cell of a curve stays.
    before, covered, after = _cut(row, at, at + len(text))
    if not over_curves and any(name.startswith(_CURVES) for _, name in covered):
        return row
    return [*before, (text, style), *after]


def _labelled(row: Row, at: int, text: str) -> Row:
    # Labels that it would cover in part are removed.
    for label in re.finditer(r"\S+(?: \S+)*", plain(row)):
        if label.start() < at + len(text) and at < label.end():
            row = _put(row, label.start(), " " * len(label[0]), "label")
    return _put(row, at, text, "here")


def _cut(row: Row, begin: int, end: int) -> tuple[Row, Row, Row]:
    """All characters of the row are one cell wide. The parts are before, from `begin` to `end`, after."""
    before: Row = []
    inside: Row = []
    after: Row = []
    at = 0
    for text, style in row:
        stop = at + len(text)
        if stop <= begin:
            before.append((text, style))
        elif at >= end:
            after.append((text, style))
        else:
            if at < begin:
                before.append((text[: begin - at], style))
            inside.append((text[max(0, begin - at) : end - at], style))
            if stop > end:
                after.append((text[end - at :], style))
        at = stop
    return before, inside, after
