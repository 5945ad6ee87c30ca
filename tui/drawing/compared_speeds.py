"""The speeds of compared runs as bars: the difference of each run from the baseline, with the spread of repeats."""

from __future__ import annotations

from collections.abc import Sequence

from ...engine import figures
from ...engine.compare.comparison import Comparison, FigureRow
from ..base.glyphs import Glyphs
from ..wording.comparison import change_text
from .interval_bar import Interval, around, bar, scale_of
from .rows import Row, fit, fitting

NAME, CHANGE, MOST_BAR, CHANCE = 24, 11, 48, "may be chance"  # widths, and the word next to a bar across zero
HEAD = f"{figures.of_run('samples_per_second').head}, difference"
NO_SPREAD = "no repeats: spread not known"


def speeds(comparison: Comparison) -> FigureRow | None:
    row = next((row for row in comparison.figures if row.key == "samples_per_second"), None)
    return row if row is not None and any(change is not None for change in row.changes[1:]) else None


def interval(row: FigureRow, position: int) -> Interval | None:
    """Return the difference of a run from the baseline, with the largest spread of repeats as its error; None without
    one."""
    return around(row.changes[position], row.noise)


def word(row: FigureRow, position: int) -> str:
    """Return `may be chance` if the difference of the run is within the spread of repeats. Else empty."""
    return CHANCE if row.exceeds_noise(position) is False else ""


def rows(comparison: Comparison, names: Sequence[str], width: int, glyphs: Glyphs) -> list[Row]:
    """Return a row with the scale, then one for each of the runs in `names` but the baseline, the first. Empty if no
    speed can be compared."""
    row = speeds(comparison)
    if row is None:
        return []
    places = range(1, min(len(names), len(row.values)))
    intervals = {place: interval(row, place) for place in places}
    scale, room = scale_of(intervals.values()), min(MOST_BAR, width - NAME - CHANGE - 4 - len(NO_SPREAD))
    head = scale.head(room) if scale is not None and room > 0 else ""
    drawn: list[Row] = [[(f"{HEAD:<{NAME + CHANGE}}  {head}  ", "label"), ("" if row.noise else NO_SPREAD, "label")]]
    for place, difference in intervals.items():
        style = "label" if word(row, place) or difference is None else "good" if difference.value > 0 else "warn"
        drawn.append([
            (f"{fitting(names[place], NAME - 1, glyphs):<{NAME}}", "value"),
            (f"{change_text(row, place) or '-':>{CHANGE}}  ", style), *bar(difference, scale, room, glyphs, style),
            (f"  {word(row, place)}", "label"),
        ])  # fmt: skip
    return [fit(pieces, width) for pieces in drawn]
