"""The first row of a chart: its name, and mark, name and value of each curve, shortened to the width."""

from __future__ import annotations

from collections.abc import Iterator

from ....engine.units import amount, percent
from ...base.glyphs import Glyphs
from ..rows import Row, headline, length
from .curves import Plot

_COLOURS, _KINDS_OF_DASHES = 4, 4


def colour_of(number: int) -> int:
    """The colour of curve `number`, from 1 to 4."""
    return number % _COLOURS + 1


def dash_of(number: int) -> int:
    """The kind of dashes of curve `number`. Two curves with the same colour have different dashes."""
    return (number + number // _COLOURS) % _KINDS_OF_DASHES


def title(plot: Plot, width: int, glyphs: Glyphs) -> Row:
    """The first row of a chart: its name, and each curve's mark, label and last value.

    If there is too little room, short names are used, then the remarks on the drawing are left out, and at last the
    values of some curves.
    """
    whole, everything = _name(plot, plot.how), next(_legends(plot, glyphs))
    if length(whole) + 1 + length(everything) <= width:
        return headline(whole, everything, width, glyphs.rule)
    legends = list(_legends(plot, glyphs))
    hows = [plot.how, tuple(how.partition(" ")[0] for how in plot.how), ()]
    candidates = [_beside(_name(plot, how), legends, width) for how in hows]
    most = max(_told(legend, plot) for _, legend in candidates)
    name, legend = next(pair for pair in candidates if _told(pair[1], plot) == most)
    return headline(name, legend, width, glyphs.rule)


def edge_title(plot: Plot, width: int, glyphs: Glyphs) -> Row:
    """The title as a part of the chart's upper edge, with a blank at both ends, so that it does not
    touch the corners.
    """
    row = title(plot, width - 2, glyphs)
    return [(" ", ""), *((text, "edge" if style == "track" else style) for text, style in row), (" ", "")]


def _name(plot: Plot, how: tuple[str, ...]) -> Row:
    alarm: Row = [(f" {plot.alarm}", "bad")] if plot.alarm else []
    return [(plot.title, "title"), *((f" {remark}", "label") for remark in how), *alarm]


def _beside(name: Row, legends: list[Row], width: int) -> tuple[Row, Row]:
    """The name, and the first of the legends that fits into the rest of the width; an empty legend if none fits."""
    room = max(0, width - length(name) - 1)
    return name, next((row for row in legends if length(row) <= room), [])


def _told(legend: Row, plot: Plot) -> int:
    """A number to compare legends: two for each value in the legend, and one for the unit."""
    values = sum(style == "value" and text.strip() != plot.note for text, style in legend)
    return values * 2 + any(text == f" {plot.unit}" for text, _ in legend)


def _legends(plot: Plot, glyphs: Glyphs) -> Iterator[Row]:
    """Yield the legend in shorter and shorter forms, from the full form to the marks alone."""
    note: Row = [(f"  {plot.note}", "value")] if plot.note else []
    unit: Row = [(f" {plot.unit}", "label")] if plot.unit else []
    shown = plot.told
    everyone = set(range(len(shown)))
    for more in ([*unit, *note], unit):
        for whole in (True, False):
            yield [*_legend(plot, everyone, glyphs, whole), *more]
    for more in (unit, []):
        yield [*_legend(plot, everyone, glyphs, narrow=True), *more]
    for number in sorted(everyone, key=lambda number: (not shown[number].lesser, -number)):
        everyone.remove(number)
        if everyone:
            yield _legend(plot, everyone, glyphs, narrow=True)
        lesser = next((at for at, curve in enumerate(shown) if curve.lesser), None)
        if lesser is not None and everyone - {lesser}:
            yield _legend(plot, everyone, glyphs, narrow=True, without=lesser)
    yield [*_legend(plot, {0}, glyphs, narrow=True)[: 2 + (len(shown) > 1)], *unit]  # of the first curve alone
    yield _legend(plot, set(), glyphs, narrow=True)


def _legend(
    plot: Plot, valued: set[int], glyphs: Glyphs, whole: bool = False, narrow: bool = False, without: int = -1
) -> Row:
    """Each curve's mark and name, with the values of the curves in `valued`; the curve `without` is left out."""
    row: Row = []
    several = len(plot.told) > 1
    for number, curve in enumerate(plot.told):
        if number == without:
            continue
        mark = glyphs.legend[dash_of(number)].strip()
        label = curve.label if whole else curve.short or curve.label
        if several:
            mark = mark[:1] if narrow else f"{mark} "
            row.append((f"{' ' * bool(row)}{mark}", f"curve{colour_of(number)}"))
            row.append((label, "label"))
        if number in valued:
            value = value_text(plot, curve.value if curve.value is not None else curve.line.last)
            row.append((f"{' ' * several}{value.strip() if narrow else value}", "value"))
    return row


def value_text(plot: Plot, value: float | None) -> str:
    return percent(value) if plot.bounds == "share" else f"{amount(value):>5}"
