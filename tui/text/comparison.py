"""A comparison of runs as text: cells, remarks, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io

from ...engine import text
from ...engine.compare.comparison import Comparison, FigureRow, OptionRow
from ...engine.files.values import to_json
from ..base.errors import clean

WITHIN = "~ is within the spread of repeats"


def remarks(found: Comparison) -> list[str]:
    """What the differences are from, what the marks mean, and what cannot be compared."""
    how = {"pinned": f"the pinned baseline, {found.baseline}", "given": f"the baseline, {found.baseline}"}
    said = [f"differences are from {how.get(found.choice, 'the first run')}"]
    if has_noise(found):
        said.append(WITHIN)
    return [clean(text) for text in (*said, *found.notes)]


def value_text(row: FigureRow, value: float | None) -> str:
    """The figure with its unit where that is not in the label."""
    return text.with_unit(value, row.unit)


def change_text(row: FigureRow, position: int) -> str:
    """`+12.3 %`, `same`, or `~+1.2 %` within the noise; nothing for the first run and for what is unknown."""
    change = row.changes[position]
    if change is None:
        return ""
    if abs(change) < 0.0005:
        return "same"
    return f"{'~' if row.tells(position) is False else ''}{text.change(change, _unit_of_change(row))}"


def noise_text(row: FigureRow) -> str:
    return "" if row.noise is None else text.spread(row.noise, _unit_of_change(row))


def _unit_of_change(row: FigureRow) -> str:
    return "points" if row.unit == "share" else "%"


def option_text(row: OptionRow, position: int) -> str:
    """The value as YAML and --set would have it."""
    value = row.values[position]
    return clean(value if isinstance(value, str) else to_json(value))


def has_noise(found: Comparison) -> bool:
    return any(row.noise is not None for row in found.figures)


def table_rows(found: Comparison) -> list[list[str]]:
    """Rows of cells: names, states, options, figures; the last column is the noise where there are repeats."""
    noisy = has_noise(found)
    rows = [["", *(clean(run) for run in found.runs), *(["spread of repeats"] if noisy else [])]]
    rows.append(["outcome", *found.states, *([""] if noisy else [])])
    for option in found.options:
        cells = [option_text(option, position) for position in range(len(found.runs))]
        rows.append([option.key, *cells, *([""] if noisy else [])])
    for figure in found.figures:
        cells = [
            f"{value_text(figure, value)} {change_text(figure, position)}".strip()
            for position, value in enumerate(figure.values)
        ]
        rows.append([figure.label, *cells, *([noise_text(figure)] if noisy else [])])
    return rows


def as_markdown(found: Comparison) -> str:
    """A table that GitHub renders, and what there is to say of it."""
    head, *rows = [[_escaped(cell) for cell in row] for row in table_rows(found)]
    rule = ["---", *("---:" for _ in head[1:])]
    table = [f"| {' | '.join(row)} |" for row in (head, rule, *rows)]
    return "\n".join([*table, "", *(f"- {_escaped(text)}" for text in remarks(found))])


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def as_csv(found: Comparison) -> str:
    """Bare numbers, one row an option or figure; what there is to say of them stands behind `note`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["what", "unit", *found.runs, "spread of repeats"])
    blank = [""] * len(found.runs)
    writer.writerow(["baseline", "", found.choice, *blank])
    writer.writerow(["outcome", "", *found.states, ""])
    for option in found.options:
        writer.writerow([option.key, "", *(option_text(option, i) for i in range(len(found.runs))), ""])
    for row in found.figures:
        writer.writerow([row.key, row.unit, *("" if v is None else v for v in row.values), row.noise])
    for note in found.notes:
        writer.writerow(["note", "", clean(note), *blank])
    return out.getvalue().rstrip("\n")


def as_json(found: Comparison) -> str:
    return to_json(found.as_dict(), indent=1)
