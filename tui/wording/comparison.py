"""A comparison of runs as text: cells, remarks, Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator, Sequence
from dataclasses import replace

from ...engine import figures, units
from ...engine.compare.comparison import Comparison, FigureRow, OptionRow, SeedFigure, SeedGroup
from ...engine.files.values import to_json
from ...engine.runs.titles import Title
from ...engine.text_table import Bars, Table, around, escaped
from ..base.errors import clean

WITHIN = "~ is within the spread of repeats"
NO_SPREAD = "no repeats: spread not known"
NO_EFFECT = "options in parentheses did nothing in that run"


def remarks(comparison: Comparison, brief: int = 0) -> list[str]:
    """Return the lines below a comparison: baseline, marks, seeds, what cannot be compared. In `brief` characters."""
    first = comparison.names[0]
    how = {"pinned": f"the pinned baseline, {first}", "given": f"the baseline, {first}"}
    lines = [f"differences are from {how.get(comparison.choice, 'the first run')}"]
    if has_noise(comparison):
        more = ""
        if brief and len(comparison.over_seeds) == 1:
            figure = _deciding(comparison.over_seeds[0])[0]
            more = f"; over {sum(value is not None for value in figure.values)} seeds {_mean_and_spread(figure)}"
        lines.append(WITHIN + more if len(WITHIN + more) <= brief else WITHIN)
    if any(why for row in comparison.options for why in row.no_effect):
        lines.append(NO_EFFECT)
    return [clean(text) for text in (*lines, *(over_seeds(comparison) if not brief else ()), *comparison.notes)]


def over_seeds(comparison: Comparison) -> list[str]:
    """Return mean and standard deviation of the validation's (or training's) metrics over runs of other seeds."""
    lines = []
    for group in comparison.over_seeds:
        texts = []
        for figure in _deciding(group):
            each = ", ".join(
                f"{units.with_unit(value, figure.unit)} with {seed}"
                for seed, value in zip(group.seeds, figure.values, strict=True)
                if value is not None
            )
            texts.append(f"{_mean_and_spread(figure)} ({each})")
        names = ", ".join(comparison.names[at] for at in group.places)
        lines.append(f"{names} differ only in the seed: {'; '.join(texts)} (mean ± standard deviation)")
    return lines


def _deciding(group: SeedGroup) -> Sequence[SeedFigure]:
    return [figure for figure in group.figures if figure.key.startswith("metrics.val_")] or group.figures


def _mean_and_spread(figure: SeedFigure) -> str:
    mean, spread = (units.with_unit(value, figure.unit) for value in (figure.mean, figure.spread))
    return f"{figure.label} {mean} ± {spread}"


def distinct(titles: Sequence[Title]) -> list[Title]:
    """Return the titles without the changes that all share; unchanged if all titles are equal."""
    common = set(titles[0].changes).intersection(*(title.changes for title in titles[1:])) if titles else set()
    if len(set(titles)) == 1:
        return list(titles)
    return [replace(title, changes=tuple(word for word in title.changes if word not in common)) for title in titles]


def distinct_names(titles: Sequence[Title], names: Sequence[str]) -> list[str]:
    """Return the names of runs with their changes, or with the preset too if presets differ."""
    alike = len({title.preset for title in titles}) == 1
    about = (" ".join(title.changes) or title.preset if alike else title.whole for title in titles)
    return [clean(f"{name} {text}") for name, text in zip(names, about, strict=True)]


def in_brief(titles: Sequence[Title], names: Sequence[str], width: int) -> list[str]:
    """Return what `distinct_names` returns in `width` characters: of a longer one the name and what of it fits."""
    alike = len({title.preset for title in titles}) == 1
    brief = []
    for whole, name, title in zip(distinct_names(titles, names), names, titles, strict=True):
        room = max(0, width - len(name) - 1)
        about = title.changes_within(room) if alike else title.preset[:room]
        brief.append(whole if len(whole) <= width else clean(f"{name} {about}")[:width].strip())
    return brief


def value_text(row: FigureRow, value: float | None) -> str:
    """Return the figure as text, with its unit if the label of the row does not name the unit; a dash for None."""
    return units.with_unit(value, row.unit)


def change_text(row: FigureRow, position: int, *, short: bool = False) -> str:
    """Return a difference such as `+12.3 %`, `same`, or `~+1.2 %` within the noise; `short` writes points as `pts`."""
    change = row.changes[position]
    if change is None:
        return ""
    if abs(change) < 0.0005:
        return "same"
    return f"{'~' if row.exceeds_noise(position) is False else ''}{units.change(change, _unit_of_change(row, short))}"


def noise_text(row: FigureRow, *, short: bool = False) -> str:
    return "" if row.noise is None else units.spread(row.noise, _unit_of_change(row, short))


def _unit_of_change(row: FigureRow, short: bool) -> str:
    return ("pts" if short else "points") if row.unit == "share" else "%"


def speeds(comparison: Comparison, names: Sequence[str]) -> Table | None:
    """Return how the speeds of all `names` but the first differ from it, with bars; None without any."""
    row = next((row for row in comparison.figures if row.key == "samples_per_second"), None)
    if row is None or all(change is None for change in row.changes[1:]):
        return None
    places = range(1, len(names))
    chances = {at: "may be chance" if row.exceeds_noise(at) is False else "" for at in places}
    cells = [[names[at], change_text(row, at) or units.NONE, chances[at]] for at in places]
    head = f"{figures.of_run(row.key).head}, difference"
    bars = Bars([around(row.changes[at], row.noise) for at in places], after=1)
    return Table(["", head, NO_SPREAD if row.noise is None else ""], cells, right=[1], bars=bars)


def option_text(row: OptionRow, position: int) -> str:
    """Return an option's value in a run as in YAML and --set, in parentheses if it had no effect there."""
    value = row.values[position]
    cell = clean(value if isinstance(value, str) else to_json(value))
    return f"({cell})" if any(row.no_effect[position : position + 1]) else cell


def fact_cells(comparison: Comparison) -> list[tuple[str, list[str]]]:
    """Return the versions that differ and the state of the user's code: a name, and a text for each run."""
    rows = [(row.key, [clean(value or "") for value in row.values]) for row in comparison.versions]
    texts = [clean(comparison.code.text(at)) for at in range(len(comparison.runs))] if comparison.code else []
    rows += [("code", texts)] if any(texts) else []
    return rows


def has_noise(comparison: Comparison) -> bool:
    return any(row.noise is not None for row in comparison.figures)


def table_rows(comparison: Comparison) -> list[list[str]]:
    """Return the comparison as cells: names, ids, states, versions, code, options, figures, noise last."""
    rows = [["", *map(clean, comparison.names)]]
    if comparison.names != comparison.runs:
        rows.append(["id", *map(clean, comparison.runs)])
    rows += _described(comparison)
    noise = [*(["spread of repeats"] + [""] * (len(rows) - 1)), *map(noise_text, comparison.figures)]
    for figure in comparison.figures:
        texts = (f"{value_text(figure, value)} {change_text(figure, at)}" for at, value in enumerate(figure.values))
        rows.append([figure.label, *map(str.strip, texts)])
    return [[*row, last] for row, last in zip(rows, noise, strict=True)] if has_noise(comparison) else rows


def _described(comparison: Comparison) -> Iterator[list[str]]:
    yield ["title", *map(clean, comparison.titles)]
    yield ["outcome", *comparison.states]
    yield from ([name, *facts] for name, facts in fact_cells(comparison))
    for option in comparison.options:
        yield [option.key, *(option_text(option, position) for position in range(len(comparison.runs)))]


def as_markdown(comparison: Comparison) -> str:
    head, *rows = table_rows(comparison)
    table = Table(head, rows, right=range(1, len(head))).markdown()
    return "\n".join([table, "", *(f"- {escaped(text)}" for text in remarks(comparison))])


def as_csv(comparison: Comparison) -> str:
    """Return the comparison as CSV: plain numbers by option and figure, remarks in rows of `note`."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["what", "unit", *comparison.runs, "spread of repeats"])
    blank = [""] * len(comparison.runs)
    writer.writerow(["baseline", "", comparison.choice, *blank])
    writer.writerow(["name", "", *(clean(name) for name in comparison.names), ""])
    writer.writerows([name, "", *cells, ""] for name, *cells in _described(comparison))
    for row in comparison.figures:
        writer.writerow([row.key, row.unit, *("" if v is None else v for v in row.values), row.noise])
    for note in comparison.notes:
        writer.writerow(["note", "", clean(note), *blank])
    return out.getvalue().rstrip("\n")


def as_json(comparison: Comparison) -> str:
    return to_json(comparison.as_dict(), indent=1)
