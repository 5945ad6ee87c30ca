"""The candidates of a search as table cells, and all figures of one candidate as rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from ...engine import figures
from ...engine.trials import proof_sentences
from ...engine.trials.record import Record
from ...engine.trials.search_record import Candidate
from ...engine.trials.trial import Trial
from ...engine.tune.report import search_tables
from ...engine.tune.report.search_results import PAIRS, WITHOUT_INPUT, Ranked, is_chosen, is_dropped, since_start
from ...engine.tune.report.search_sentences import unproven
from ...engine.units import NONE, change, count, size, spread
from ..base.errors import clean
from ..base.glyphs import Glyphs
from .interval_bar import Interval, Scale, bar
from .proof_comparisons import disturbances, how_it_ended, possible
from .rows import Piece, Row, fit, fitting, length, wrapped

_SPEED = figures.of_run("samples_per_second")
LEAST_SETTINGS, ROOMY_SETTINGS, LEAST_WHY = 18, 28, 24  # widths of the columns that share the rest
BAR = 22  # width of the column of bars, whose head is their scale
# The width of each column at the right of the settings, and its head.
WIDTHS = {"speed": 10, "start": 10, "gain": 11, "spread": 9, "memory": 10, "outcome": 14}
HEADS = {
    "speed": _SPEED.short,
    "start": "vs. start",
    "gain": "vs. before",
    "spread": "spread",
    "memory": "memory",
    "outcome": "  outcome",
    "why": "  why",
}
_DECISIONS = {
    "kept": ("kept", "good"), "rejected": ("rejected", "warn"), "failed": ("failed", "bad"),
    "undecided": ("not proved", "warn"),
    "left out": ("left out", "label"), "running": ("measuring", "curve2"), "reference": ("reference", "label"),
}  # fmt: skip
# The preset as it was, by the stage in which it was measured; any later one measures it again.
_PRESETS = {"": "the preset", "baseline": "the preset", "ceiling": "preset, no input"}
_ENDS = {"oom": "no memory", "timeout": "time limit", "crashed": "crashed", "error": "error"}


class Cell(NamedTuple):
    """The text of a table cell with its style, or a `row` in place of both. If `right` is True, the text is at the
    right edge of its column."""

    text: str
    style: str = ""
    right: bool = False
    row: Row = []


def widths(whole: int) -> dict[str, int]:
    """Return the columns of a table of `whole` cells: a wide one also shows bars and the reason."""
    figures_of, rest = dict(WIDTHS), whole - sum(WIDTHS.values())
    for left_out in ("spread", "memory", "gain"):
        if rest < LEAST_SETTINGS:
            rest += figures_of.pop(left_out)
    if rest >= ROOMY_SETTINGS + BAR:
        figures_of = _with_bar(figures_of)
        rest -= BAR
    why = (rest - ROOMY_SETTINGS) // 2 if rest >= ROOMY_SETTINGS + LEAST_WHY else 0
    return {"settings": max(LEAST_SETTINGS, rest - why), **figures_of, **({"why": why} if why else {})}


def _with_bar(columns: Mapping[str, int]) -> dict[str, int]:
    names = list(columns)
    after = names.index("spread") + 1
    return {name: BAR if name == "bar" else columns[name] for name in (*names[:after], "bar", *names[after:])}


def interval(candidate: Ranked) -> Interval | None:
    """Return the gain over the best settings before, with its error; measured in pairs, over the preset."""
    if candidate.stage != PAIRS:
        return possible(candidate.gain, candidate.spread)
    return possible(candidate.since_start, candidate.spread, len(candidate.good))


def cells(
    candidate: Ranked, data: Record, columns: Mapping[str, int], glyphs: Glyphs, scale: Scale | None = None
) -> list[Cell]:
    """Return the cells of a candidate, one for each of the `columns` (widths in cells by name). `scale` is that of all
    bars."""
    by_name = _cells(candidate, data, columns, glyphs)
    if "bar" in columns:
        style = outcome(candidate, data, glyphs)[1]
        by_name["bar"] = Cell("", row=[("  ", ""), *bar(interval(candidate), scale, columns["bar"] - 2, glyphs, style)])
    return [by_name[name] for name in columns]


def _cells(candidate: Ranked, data: Record, columns: Mapping[str, int], glyphs: Glyphs) -> dict[str, Cell]:
    word, style = outcome(candidate, data, glyphs)
    mark = glyphs.up if is_chosen(candidate, data) else glyphs.running if style == "curve2" else " "
    sigma = candidate.spread
    sign = "±" if glyphs.braille else "+-"
    return {
        "settings": Cell(f"{mark} {_brief(candidate, columns['settings'] - 3, glyphs)}"),
        "speed": Cell(speed(candidate), right=True),
        "start": Cell(change(since_start(candidate, data)), right=True),
        "gain": Cell(change(candidate.gain), right=True),
        "spread": Cell(NONE if sigma is None else f"{sign} {spread(sigma)}", right=True),
        "memory": Cell(search_tables.memory(candidate), right=True),
        "outcome": Cell(f"  {word}", style),
        "why": Cell(f"  {fitting(_why(candidate), columns.get('why', 0) - 3, glyphs)}", "label"),
    }


def _brief(candidate: Candidate, width: int, glyphs: Glyphs) -> str:
    whole, tried = settings(candidate), candidate.tried
    kept = sum(key not in tried for key in candidate.settings)
    if len(whole) <= width or not (tried and kept):
        return fitting(whole, width, glyphs)
    return f"{fitting(_changes(tried), width - len(f' +{kept}'), glyphs)} +{kept}"


def settings(candidate: Candidate) -> str:
    """Return the settings that the candidate tried as text, followed by the settings that had been kept before it."""
    tried, whole = candidate.tried, candidate.settings
    if candidate.stage == PAIRS:
        return f"in pairs: {_changes(whole) if whole else 'the preset'}"
    if not whole and not tried:
        return _PRESETS.get(candidate.stage, "preset, once more")
    before = {key: value for key, value in whole.items() if key not in tried}
    return _changes(tried or whole) + (f"  with {_changes(before)}" if before and tried else "")


def _changes(changed: Mapping[str, Any]) -> str:
    return clean(proof_sentences.changes(changed)).replace("\n", " ")


def speed(candidate: Candidate) -> str:
    """Return the speed in samples per second as text, with a mark if it was measured without the input."""
    measured = candidate.samples_per_second
    mark = WITHOUT_INPUT if search_tables.is_marked(candidate) else " "
    return f"{count(measured)}{mark}"


def outcome(candidate: Candidate, data: Record, glyphs: Glyphs) -> Piece:
    """Return the decision on a candidate: for a failed one how its last trial ended, for a faster one why not
    chosen."""
    if is_dropped(candidate, data):
        return f"{glyphs.failed} {' '.join(unproven(data).split()[:2])}", "warn"
    decided = candidate.decision
    if candidate.stage == PAIRS and (decided == "kept" or not candidate.settings):
        return (f"{glyphs.ok} proved", "good") if candidate.settings else ("  reference", "label")
    if decided == "kept" and not candidate.tried:
        decided = "left out" if candidate.samples_per_second is None else "reference"
    word, style = _DECISIONS.get(decided, (clean(decided) or NONE, "label"))
    trials = candidate.trials
    if decided == "failed" and trials:
        word = _ENDS.get(trials[-1].outcome, word)
    signs = {"good": glyphs.ok, "warn": glyphs.failed, "bad": glyphs.failed, "curve2": glyphs.more}
    return f"{signs.get(style, ' ')} {word}", style


# ---- one candidate --------------------------------------------------------------------------------


def detail(candidate: Candidate, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return at most `height` rows about a candidate: its settings, why it was tried, the decision, and its newest
    trials."""
    rows = [row for text, style in _details(candidate) for row in _wrapped(text, style, width, glyphs, height > 3)]
    room = height - len(rows)
    trials = candidate.trials
    return [*rows, *(_trial(trial, width, glyphs) for trial in trials[max(0, len(trials) - room) :])][:height]


def _wrapped(text: str, style: str, width: int, glyphs: Glyphs, roomy: bool) -> list[Row]:
    if roomy:
        return [[(line, style)] for line in wrapped(text, width, glyphs)]
    return [[(fitting(text, width, glyphs), style)]]


def _details(candidate: Candidate) -> Iterator[Piece]:
    yield settings(candidate), "title"
    reason, why = clean(candidate.reason), _why(candidate)
    text = "; ".join(filter(None, (why, reason, *_remarks(candidate))))
    if text:
        yield text, "value"


def _remarks(candidate: Candidate) -> Iterator[str]:
    if candidate.without_input:
        yield f"{WITHOUT_INPUT} without its input, on one repeated batch"
    peak, expected = candidate.peak_bytes, candidate.predicted_bytes
    if peak is not None and expected is not None:
        yield f"{size(peak)} of memory, predicted {size(expected)}"
    yield from disturbances(candidate.trials)


def _why(candidate: Candidate) -> str:
    return clean(candidate.why).replace("\n", " ")


def _trial(trial: Trial, width: int, glyphs: Glyphs) -> Row:
    """The row of a trial: the name of its run, its figures, and how it ended."""
    row: Row = [(f"{clean(trial.run or NONE):<8}", "label")]
    for figure in (_SPEED, figures.of_run("step_ms.p50")):
        key = "step_ms" if figure.key.startswith("step_ms") else figure.key
        row.append((f"  {figure.text(trial.figure(key))}", "value"))
    ended = how_it_ended(trial).replace("\n", " ")
    text = fitting(ended, max(4, width - length(row) - 2), glyphs)
    well = "warn" if trial.disturbed else "good"
    return fit([*row, (f"  {text}", well if trial.good else "bad")], width)
