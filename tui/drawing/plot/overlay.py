"""What lies over a drawn chart: the line of the cursor, and the range that the mouse is selecting."""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...base.glyphs import Glyphs
from ..rows import Row, plain
from .axes import GUTTER, column_of
from .cursor import place_text
from .curves import Plot
from .scales import Scale
from .viewport import Viewport

_CURVES = ("curve", "faint")  # beginnings of the styles of cells that stay
_SHADED = ("", "grid", "fill1", "label")  # styles of cells that are shaded in a range


def overlaid(
    rows: Sequence[Row], plot: Plot, across: Scale, view: Viewport, width: int, has_axis: bool, glyphs: Glyphs
) -> list[Row]:
    """Return the rows with the cursor and the dragged range over them, whose places the axis' row names. Cells of
    curves stay as they are."""
    inner = max(1, width - GUTTER)
    places = view.dragged or ((view.cursor,) if view.cursor is not None else ())
    columns = sorted(column_of(place, across, inner) for place in places)
    if not places or columns[0] < 0 or columns[-1] >= inner:
        return list(rows)
    drawn = [list(row) for row in rows]
    body = drawn[:-1] if has_axis else drawn
    for number, row in enumerate(body):
        if len(columns) > 1:
            row = _shaded(row, GUTTER + columns[0], GUTTER + columns[1])
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


def _shaded(row: Row, begin: int, end: int) -> Row:
    before, inside, after = _cut(row, begin, end + 1)
    shaded = [(text, "here" if style in _SHADED else style) for text, style in inside]
    return [*before, *shaded, *after]


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
