"""Prints the list of runs for `gputui runs`: whole in a pipe, and as much as fits on a terminal."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from ...engine.figures import shown
from ..base.errors import clean
from ..reading.run_columns import COLUMNS, ONLY_GOING_ON, SPEED, STEP_TIME
from ..reading.run_list import Entry
from .plain_tables import show_table

# In the order of their columns, and in the order in which they get room.
LISTED = (
    "name",
    "id",
    "state",
    "run",
    "done",
    "left",
    *(figure.narrow_head for figure in shown("listing")),
    "size",
    "when",
    "tags",
    "note",
)
FIRST = (
    "name",
    "state",
    "run",
    SPEED,
    "loss",
    "done",
    "left",
    "when",
    "tags",
    "id",
    "memory",
    "host",
    STEP_TIME,
    "size",
    "wait",
    "time",
)
LEAST_TITLE, LEAST_NOTE = 28, 16
APART = 2


def show(entries: Sequence[Entry]) -> None:
    """Print one line per run. On a terminal the columns are fitted to its width. Elsewhere no text is cut."""
    terminal = sys.stdout.isatty()
    columns = [name for name in LISTED if _is_informative(name, entries)]
    widths = _fitting(columns, entries, shutil.get_terminal_size().columns) if terminal else dict.fromkeys(columns, 0)
    table = Table(box=None, pad_edge=False, padding=(0, APART, 0, 0))
    for name in widths:
        table.add_column(
            _head(name),
            justify="right" if COLUMNS[name].right else "left",
            no_wrap=True,
            overflow="crop",
        )
    for entry in entries:
        table.add_row(*(Text(_cell(name, entry, width)) for name, width in widths.items()))
    show_table(table)


def _head(name: str) -> str:
    return "title" if name == "run" else COLUMNS[name].head


def _cell(name: str, entry: Entry, width: int) -> str:
    if name == "run":
        return clean(entry.title.within(width) if width else entry.title.whole)
    text = clean(COLUMNS[name].show(entry)).replace("\n", " ")
    return f"{text[: width - 2]}.." if width and name == "note" and len(text) > width else text


def _is_informative(name: str, entries: Sequence[Entry]) -> bool:
    if name == "name":
        return any(entry.number or entry.group for entry in entries)
    if name in ONLY_GOING_ON:
        return any(entry.is_active for entry in entries)
    return name not in ("tags", "note") or any(COLUMNS[name].show(entry) for entry in entries)


def _fitting(columns: Sequence[str], entries: Sequence[Entry], room: int) -> dict[str, int]:
    """Room that is left is given to the title, then to the note. Each run is named by its short name or else its id."""
    naming = ["name"] if all(entry.number or entry.group for entry in entries) else ["name", "id"]
    longest = {name: max(len(_head(name)), *(len(_cell(name, entry, 0)) for entry in entries)) for name in columns}
    least = longest | {"run": min(LEAST_TITLE, longest["run"]), "note": min(LEAST_NOTE, longest.get("note", 0))}
    widths: dict[str, int] = {}
    order = [*naming, *FIRST]
    for name in sorted(columns, key=lambda name: order.index(name) if name in order else len(order)):
        if least[name] + APART <= room + APART or name in naming:
            widths[name] = least[name]
            room -= least[name] + APART
    for name in ("run", "note"):
        if name in widths and room + APART > 0:
            more = min(room + APART, longest[name] - widths[name])
            widths[name] += more
            room -= more
    return {name: widths[name] for name in columns if name in widths}
