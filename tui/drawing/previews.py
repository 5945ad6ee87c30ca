"""Previews of a run as rows: a picture in half blocks, which are two pixels in a cell, or in shades without colours; a
text; a confusion matrix with the share of each class that was predicted as which."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from functools import lru_cache

from ...engine.runs.previews import Bitmap, Matrix, Shown
from ...engine.units import counted
from ..base.errors import clean
from ..base.glyphs import RICH, Glyphs
from .rows import Row, cells, fitting, joined

PLAIN_SHADES, SHADES = " .:-=+*#%@", " ░▒▓█"
HALF = "▀"
SHARE = 5  # columns of a share
LEAST_NAME = 12  # columns that names of classes may always take
MISTAKE = 0.1  # of a class, from which a wrong prediction stands out


def rows(shown: Shown, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """A picture fits into `width` and `height`; a text or a table may have more rows."""
    if isinstance(shown, Bitmap):
        return _picture(shown, width, height, glyphs)
    if isinstance(shown, Matrix):
        return _matrix(shown, width, glyphs)
    lines = (line for each in shown.splitlines() for line in textwrap.wrap(clean(each), max(1, width)) or [""])
    return [[(line, "value")] for line in lines]


@lru_cache(maxsize=16)
def _picture(picture: Bitmap, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    times = min(width / picture.width, 2 * height / picture.height)
    times = int(times) or times
    across, down = max(1, int(picture.width * times)), max(1, int(picture.height * times))
    lines = list(_scaled(picture, across, down))
    if down % 2:
        lines.append([None] * across)
    shades = "" if glyphs is RICH else SHADES if glyphs.braille else PLAIN_SHADES
    return [
        joined(_cell(upper, lower, shades) for upper, lower in zip(above, below, strict=True))
        for above, below in zip(lines[::2], lines[1::2], strict=True)
    ]


Pixel = tuple[int, int, int]


def _scaled(picture: Bitmap, across: int, down: int) -> Iterator[list[Pixel | None]]:
    """Yield lines of pixels, each the mean of those that it stands for."""

    def spans(count: int, size: int) -> list[tuple[int, int]]:
        return [(at * size // count, max(at * size // count + 1, (at + 1) * size // count)) for at in range(count)]

    columns, line = spans(across, picture.width), 3 * picture.width
    for top, bottom in spans(down, picture.height):
        whole = [picture.rgb[line * y : line * (y + 1)] for y in range(top, bottom)]
        means: list[Pixel | None] = []
        for left, right in columns:
            count = (right - left) * len(whole)
            sums = [sum(sum(each[3 * left + of : 3 * right : 3]) for each in whole) for of in range(3)]
            means.append((sums[0] // count, sums[1] // count, sums[2] // count))
        yield means


def _cell(upper: Pixel | None, lower: Pixel | None, shades: str) -> tuple[str, str]:
    if shades:
        both = [0.299 * r + 0.587 * g + 0.114 * b for r, g, b in filter(None, (upper, lower))]
        return shades[min(len(shades) - 1, int(sum(both) / len(both) / 256 * len(shades)))], "value"
    return HALF, " on ".join("#{:02x}{:02x}{:02x}".format(*pixel) for pixel in (upper, lower) if pixel)


def _matrix(matrix: Matrix, width: int, glyphs: Glyphs) -> list[Row]:
    names, totals = [clean(name) for name in matrix.classes], [sum(row) for row in matrix.counts]
    most = len(f"{max(totals):,}") + 2
    first = max(5, min(max(map(cells, names)), max(LEAST_NAME, width - SHARE * len(names) - most)))
    count = max(1, min(len(names), (width - first - most) // SHARE))
    head = "".join(f"{fitting(name, SHARE - 1, glyphs):>{SHARE}}" for name in names[:count])
    made: list[Row] = [[(f"{'class':<{first}}{head}{'n':>{most}}", "title")]]
    for at, (name, counts, total) in enumerate(zip(names, matrix.counts, totals, strict=True)):
        row: Row = [(f"{fitting(name, first, glyphs):<{first}}", "value")]
        for column, of in enumerate(counts[:count]):
            share = of / total if total else 0.0
            style = "good" if column == at else "warn" if share >= MISTAKE else "label"
            row.append((f"{f'{share:.0%}' if of else glyphs.free:>{SHARE}}", style if of else "track"))
        made.append([*row, (f"{total:>{most},}", "label")])
    right, every = sum(row[at] for at, row in enumerate(matrix.counts)), sum(totals)
    hidden = f"; a wider terminal shows {counted(len(names) - count, 'more columns')}" if count < len(names) else ""
    of_all = f"{right / every:.1%} of {every:,} right; " if every else ""
    made += [[], [(f"{of_all}row: class, column: predicted, n: samples{hidden}", "label")]]
    return made
