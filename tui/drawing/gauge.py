"""A bar of used and total, with TensorFlow's own share and its peak marked in the same bar.

━━━━━━━━━━──────······┃····     own, used by anything, free, and the peak of the own share
"""

from __future__ import annotations

from ..base.glyphs import Glyphs
from .rows import Row


def gauge(
    width: int,
    used: float | None,
    total: float | None,
    glyphs: Glyphs,
    own: float | None = None,
    peak: float | None = None,
    *,
    why: str = "",
    style: str = "curve1",
) -> Row:
    """A bar of exactly `width` cells, with the used cells in `style`. If `used` or `total` is unknown, `why` or a
    question mark.
    """
    if used is None or not total or width <= 0:
        text = (why, "warn") if why and len(why) <= width else ("?", "track")
        return [(text[0].center(max(0, width))[: max(0, width)], text[1])]
    used_cells = _cells(used, total, width)
    own_cells = min(used_cells, _cells(own or 0, total, width))
    pieces = [
        (glyphs.own, style, own_cells),
        (glyphs.used if own is not None else glyphs.own, style, used_cells - own_cells),
        (glyphs.free, "track", width - used_cells),
    ]
    cells = [(char, style) for char, style, count in pieces for _ in range(count)]
    if peak is not None:
        cells[max(0, _cells(peak, total, width) - 1)] = (glyphs.peak, "title")
    return _joined(cells)


def _cells(part: float, total: float, width: int) -> int:
    return max(0, min(width, round(part / total * width)))


def _joined(cells: Row) -> Row:
    row: Row = []
    for char, style in cells:
        if row and row[-1][1] == style:
            row[-1] = (row[-1][0] + char, style)
        else:
            row.append((char, style))
    return row
