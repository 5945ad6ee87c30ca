"""The results of a finished run as rows: names and values in columns."""

from __future__ import annotations

from ....engine.figures import LOSS, at, summed_up
from ....engine.units import NONE
from ...reading.run.epoch_mean import UNFINISHED, of_result
from ...reading.run.snapshot import Snapshot
from ..rows import Row, fit

LEAST_CELL, LEAST_NAME, VALUE = 24, 12, 9  # columns of an item, of its name, and of its value


def items(now: Snapshot) -> list[tuple[str, str]]:
    """Name and value of each known result."""
    names = now.started.get("devices")
    devices = [str(name) for name in names] if isinstance(names, list | tuple) else []
    results = {figure: figure.item(at(now.summary, figure.key)) for figure in summed_up(devices)}
    if of_result(now.summary).steps == UNFINISHED:
        results[LOSS] = (f"{LOSS.name} so far", results[LOSS][1])
    return [(name, value) for name, value in results.values() if value != NONE]


def rows(now: Snapshot, width: int) -> list[Row]:
    """The results in as many columns as fit into `width` cells."""
    results = items(now)
    cell = max([LEAST_CELL, *(max(len(name), LEAST_NAME) + max(len(value), VALUE) + 2 for name, value in results)])
    columns = max(1, width // cell)
    cell = width // columns
    widths = [_name_width(results[column::columns], cell) for column in range(columns)]
    drawn: list[Row] = []
    for start in range(0, len(results), columns):
        row: Row = []
        for (name, value), name_width in zip(results[start : start + columns], widths, strict=False):
            row += fit([(f"{name:<{name_width}}", "label"), (f"{value:>{VALUE}}", "value")], cell)
        drawn.append(row)
    return drawn


def _name_width(column: list[tuple[str, str]], cell: int) -> int:
    """The width of the names in a column: the width of the longest name if the cell has room for it, so that values
    align; else a small fixed width.
    """
    longest = max([LEAST_NAME, *(len(name) for name, _ in column)])
    return longest if longest + max([VALUE, *(len(value) for _, value in column)]) < cell else LEAST_NAME


def height(now: Snapshot, width: int) -> int:
    """The number of rows that the results need; 0 if the run has no results yet."""
    return len(rows(now, width)) if now.summary else 0
