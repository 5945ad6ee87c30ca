"""The command `gputui compare`: compares runs with a baseline, and pins a run as the baseline."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ...engine import runs as run_folders
from ...engine.compare import baseline
from ...engine.compare.baseline import LineUp
from ...engine.compare.comparison import Comparison, compare
from ...engine.text_table import Table as DrawnTable
from ...engine.units import NONE
from ..base.errors import Refused, clean, complain
from ..drawing import interval_bar
from ..printing.plain_tables import show_table, show_with_bars
from ..wording.comparison import (
    as_csv,
    as_json,
    as_markdown,
    change_text,
    distinct_names,
    moments_of,
    remarks,
    short_names,
    table_rows,
)


def pin_baseline(name: str) -> None:
    run = run_folders.find(name)
    baseline.pin(run)
    print(f"{run.name} is the baseline of all comparisons from now on; gputui compare --unpin ends that")


def unpin_baseline() -> None:
    print("no baseline is pinned any more" if baseline.unpin() else "no baseline was pinned")


def show_comparison(names: Sequence[str], form: str, against: str | None = None) -> None:
    """Print the comparison of the named runs with the baseline run. `form` is table, markdown, csv or json. `against`
    names the baseline; None for the pinned run or, if none is pinned, the first of the runs."""
    comparison = compare(_line_up(names, against))
    if form == "table":
        show_table(as_table(comparison))
        _show_bars(comparison)
        print("\n".join(remarks(comparison)))
    else:
        print({"markdown": as_markdown, "csv": as_csv, "json": as_json}[form](comparison))


def _show_bars(comparison: Comparison) -> None:
    """Print the speeds as bars. Nothing is printed if no speed can be compared."""
    row = interval_bar.speeds(comparison)
    if row is None:
        return
    places = range(1, len(comparison.runs))
    names = distinct_names(comparison.titles, moments_of(comparison.runs), short_names(comparison))
    cells = [[clean(names[at]), change_text(row, at) or NONE, interval_bar.word(row, at)] for at in places]
    last = "" if row.noise else interval_bar.NO_SPREAD
    table = DrawnTable(["", interval_bar.HEAD, last], cells, right=[1])
    print()
    show_with_bars(table, [interval_bar.interval(row, at) for at in places], after=1)
    print()


def _line_up(names: Sequence[str], against: str | None) -> LineUp:
    named = [run_folders.find(name) for name in names]
    line_up = baseline.line_up(named, None if against is None else run_folders.find(against))
    if len(line_up.runs) > 1:
        return line_up
    if line_up.lost:
        complain(line_up.lost)
    if line_up.choice == "first":
        raise Refused("name two or more runs, or pin one first: gputui compare --pin RUN; gputui runs lists them")
    raise Refused(f"name a run other than the baseline, {line_up.runs[0].id}; gputui runs lists them")


def as_table(comparison: Comparison) -> Table:
    head, *rows = table_rows(comparison)
    table = Table(box=None, pad_edge=False)
    for position, name in enumerate(head):
        table.add_column(Text(name), justify="right" if position else "left", overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in row))
    return table
