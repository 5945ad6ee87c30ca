"""The columns of the tables of runs: headings, widths, which text of a row they show, and how rows are sorted."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from ...engine import units
from ...engine.figures import Figure, of_run, shown
from ..word_search import Hit, search
from .run_list import FIGURES, GAIN, LEFT, Entry, when_text


@dataclass(frozen=True)
class RunColumn:
    """A column of the table of runs. `width` is in cells without the blanks around it; a column of width 0 gets the
    room that is left. `show` returns the text for a run, and `value` the value by which rows are sorted. A row whose
    value is None comes last in both directions. `about` describes the column."""

    key: str
    about: str
    width: int
    show: Callable[[Entry], str]
    value: Callable[[Entry], Any]
    right: bool = True
    heading: str = ""  # if the key does not say enough

    @property
    def head(self) -> str:
        return self.heading or self.key


# Headings of figures whose short name says too little in a table of many runs.
_HEADINGS = {"loss": "train loss", "wait": "input wait", "memory": "tensors", "host": "host mem", "goodput": "in steps"}
VALIDATION_WIDTH = 14


def _figure(figure: Figure, key: str = "") -> RunColumn:
    def value(entry: Entry) -> float | None:
        return entry.figures.get(figure.key)

    about = figure.about if figure.label in (figure.narrow_head, figure.head) else f"{figure.label}: {figure.about}"
    key = key or figure.narrow_head
    heading = _HEADINGS.get(key, "")
    width = max(figure.width, len(heading))

    def show(entry: Entry) -> str:
        gain = entry.figures.get(GAIN) if figure.key == "samples_per_second" else None
        return _whole(figure, value(entry)) if gain is None else units.change(gain - 1)

    return RunColumn(key, about, width, show, value, heading=heading)


def _left(entry: Entry) -> str:
    # Of a waiting run, when it starts.
    if entry.waiting is not None:
        return entry.waiting.when.replace("in about", "in")
    return units.clock(entry.figures.get(LEFT.key)) if entry.is_active and not entry.group else ""


def _judged(entry: Entry, figure: tuple[str, float | None]) -> str:
    name, value = figure
    if value is None:
        return units.NONE if entry.figures.get("metrics.loss") is not None else ""
    text_of_value = f"{value:.3g}"
    bare = name.removeprefix("val_").removeprefix("test_").replace("_", " ")
    return f"{bare[: VALIDATION_WIDTH - len(text_of_value) - 1]} {text_of_value}"


def _whole(figure: Figure, value: float | None) -> str:
    # A text that is too wide gets fewer digits, and is never cut.
    bare = figure.bare(value)
    if value is None or len(bare) <= figure.width or not units.is_plain(figure.unit):
        return bare
    shorter = (f"{value:.{digits}e}" for digits in (2, 1, 0))
    return next((candidate for candidate in shorter if len(candidate) <= figure.width), f"{value:.0e}")


def _words(key: str, about: str, width: int, show: Callable[[Entry], str]) -> RunColumn:
    return RunColumn(key, about, width, show, lambda entry: show(entry).casefold() or None, right=False)


def _one_line(words: str) -> str:
    return " ".join(words.split())


_BY_LIST = (
    RunColumn(
        "name",
        "its short name, which commands take",
        5,
        lambda entry: f"r{entry.number}" if entry.number else entry.group,
        lambda entry: entry.number,
        right=False,
    ),
    RunColumn(
        "run",
        "its short name, the preset, and what was changed of it",
        0,
        lambda entry: f"{entry.name} {entry.title.whole}" if entry.number else entry.title.whole,
        lambda entry: (entry.title.whole.casefold(), entry.run.id),
        right=False,
    ),
    _words("id", "the name of its folder", 28, lambda entry: entry.run.id),
    _words("state", "whether it goes on, and how it ended", 10, lambda entry: entry.state_word),
    RunColumn(
        "done",
        "the part of its steps that it has done, while it goes on",
        5,
        lambda entry: units.share(entry.done) if entry.done is not None else "",
        lambda entry: entry.done,
    ),
    RunColumn(
        "left",
        "the time that the steps left will take; of a waiting run, when it starts",
        LEFT.width,
        _left,
        lambda entry: entry.figures.get(LEFT.key),
    ),
    *map(_figure, FIGURES),
    RunColumn(
        "validation",
        "its first metric, else its loss, after the newest epoch that was evaluated",
        VALIDATION_WIDTH,
        lambda entry: _judged(entry, entry.validation),
        lambda entry: entry.validation[1],
    ),
    RunColumn(
        "test",
        "the first metric, else the loss, of the test data, evaluated when the training had ended",
        VALIDATION_WIDTH,
        lambda entry: _judged(entry, entry.test),
        lambda entry: entry.test[1],
    ),
    RunColumn(
        "size",
        "what its folder takes on the disk",
        8,
        lambda entry: "" if entry.size is None else units.size(entry.size),
        lambda entry: entry.size,
    ),
    RunColumn("when", "when it was started", 6, lambda entry: when_text(entry.when), lambda entry: entry.when),
    _words("tags", "your tags", 12, lambda entry: " ".join(f"#{tag}" for tag in entry.notes.tags)),
    _words("note", "your note", 0, lambda entry: _one_line(entry.notes.note)),
    _words("description", "the description of its preset", 0, lambda entry: _one_line(entry.description)),
)
COLUMNS = {column.key: column for column in _BY_LIST}
SPEED, STEP_TIME = (of_run(key).narrow_head for key in ("samples_per_second", "step_ms.p50"))
# Without a choice: in the order in which they stand, and in the order in which they get room.
USUAL = (
    "run", "id", "state", "validation", "test", *(figure.narrow_head for figure in shown("runs")), "left", "size",
    "when", "tags", "note", "description",
)  # fmt: skip
FIRST = (
    "run", "state", "validation", "test", SPEED, "when", "left", "loss", "wait", STEP_TIME, "memory", "host",
    "tags", "note", "description", "id", "size",
)  # fmt: skip
LEAST_TITLE, LEAST_WORDS = 26, 18  # cells of a title; of a note or description
SPARE = 30  # cells that the size leaves to them
ONLY_GOING_ON = {"done", "left"}
OF_SOME = {"test", "tags", "note", "description"}  # left out if no run has any


def ordered(entries: Iterable[Entry], column: str, descending: bool) -> list[Entry]:
    value = COLUMNS[column].value
    entries = list(entries)
    with_value = [entry for entry in entries if value(entry) is not None]
    return [*sorted(with_value, key=value, reverse=descending), *(entry for entry in entries if value(entry) is None)]


def is_used(name: str, entries: Iterable[Entry]) -> bool:
    return any(COLUMNS[name].value(entry) is not None for entry in entries)


def usual(entries: Sequence[Entry], width: int) -> list[str]:
    """Return the usual columns that fit. The width alone decides, so that columns do not come and go with the runs;
    only test figures and the user's own words are left out if no run has any."""
    useful = [name for name in USUAL if name not in OF_SOME or is_used(name, entries)]
    fitting: set[str] = set()
    least_title = min(LEAST_TITLE, width - COLUMNS["state"].width - 2)  # the state has room in each terminal
    for name in sorted(useful, key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST)):
        needed = (COLUMNS[name].width or (least_title if name == "run" else LEAST_WORDS)) + 1
        if needed + (SPARE if name == "size" else 0) <= width:
            fitting.add(name)
            width -= needed
    return [name for name in useful if name in fitting]


def matching(entries: Iterable[Entry], words: str) -> list[Hit[Entry]]:
    return search(words, entries, lambda entry: entry.places, with_parts=True)
