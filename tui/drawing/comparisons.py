"""The comparisons of a proof as table cells and rows: what each change gained with its spread, and its trials.

The data comes from proof.json (engine/trials/record.py). Missing values are shown as a dash, and foreign text is
cleaned.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from typing import Any

from ...engine import figures
from ...engine.figures import Figure
from ...engine.trials import sentences
from ...engine.units import NONE, amount, change, counted, spread
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.store import mapping, number
from .rows import Piece, Row, fit, fitting, length, wrapped

Told = Mapping[str, Any]
MEDIANS_FROM = 5  # rows of trials from which on there is room for their medians
# The word and the style for each verdict of a comparison.
DECISIONS: Mapping[str, tuple[str, str]] = {
    "kept": ("kept", "good"),
    "faster": ("faster", "good"),
    "slower": ("slower", "warn"),
    "no difference": ("no difference", "label"),
    "undecided": ("undecided", "label"),
    "rejected": ("rejected", "warn"),
    "failed": ("failed", "bad"),
    "stopped": ("stopped", "label"),
    "running": ("measuring", "curve2"),
    "measured": ("measured", "label"),
}


# ---- the comparisons -------------------------------------------------------------------------------


def compared(data: Told) -> list[Told]:
    """All comparisons in the order in which they were measured; the one that measures the cost of the input comes
    first.
    """
    ablation = mapping(data.get("ablation"))
    found: list[Told] = []
    if ablation:
        known = number(ablation.get("input_cost")) is not None
        found.append(
            {
                "changes": {"input.one_batch": True},
                "trials": ablation.get("trials"),
                "decision": "measured" if known or data.get("state") != "running" else "running",
                "why": sentences.input_cost(ablation),
            }
        )
    if trial := mapping(data.get("profile_trial")):
        found.append(_of_profile(data, trial))
    listed = data.get("comparisons")
    return found + [mapping(one) for one in listed] if isinstance(listed, list) else found


def _of_profile(data: Told, trial: Told) -> Told:
    """The profile's trial as a row of its own, whose speed is not compared."""
    read = bool(data.get("profile"))
    going_on = data.get("state") == "running" and not data.get("profile_missing")
    return {
        "title": "a profile of some steps",
        "trials": [trial],
        "decision": "measured" if read else "running" if going_on else "failed",
        "notes": sentences.profile_in_brief(data),
    }


def changes(comparison: Told) -> str:
    return clean(comparison.get("title") or sentences.changes(mapping(comparison.get("changes"))))


def most(comparison: Told) -> str:
    """The expected gain at most: 2.5 times as fast is +150 %."""
    expected = number(comparison.get("expected_gain"))
    return NONE if expected is None else change(expected - 1)


def measured(comparison: Told, glyphs: Glyphs) -> str:
    """`+148 % ± 4.1 %`: the median of the pairs, and their spread."""
    gain, sigma = number(comparison.get("gain")), number(comparison.get("spread"))
    if gain is None:
        return NONE
    sign = "±" if glyphs.braille else "+-"
    return f"{change(gain)} {sign} {_spread(sigma)}"


def _spread(sigma: float | None) -> str:
    return f"{'?' if sigma is None else spread(sigma):>6}"


def decision(comparison: Told, glyphs: Glyphs) -> Piece:
    word, style = DECISIONS.get(str(comparison.get("decision")), (clean(comparison.get("decision") or NONE), "label"))
    good, bad = style == "good", style in ("warn", "bad")
    sign = glyphs.ok if good else glyphs.failed if bad else glyphs.more if style == "curve2" else " "
    return f"{sign} {word}", style


def reach(comparisons: list[Told]) -> tuple[float, float]:
    """The range that the bars of all gains cover; always includes zero."""
    ends = [0.0]
    for one in comparisons:
        ends += _around(one)
    return min(ends), max(ends)


def _around(comparison: Told) -> tuple[float, float] | tuple[()]:
    """The gains one spread below and above the median; the spread is relative to the ratio of the two speeds."""
    gain, sigma = number(comparison.get("gain")), number(comparison.get("spread")) or 0.0
    return () if gain is None else (gain - (1 + gain) * sigma, gain + (1 + gain) * sigma)


def whisker(comparison: Told, low: float, high: float, width: int, glyphs: Glyphs) -> str:
    """The gain as a bar from zero, with its spread as whiskers around the end of the bar."""
    gain, around = number(comparison.get("gain")), _around(comparison)
    if gain is None or not around or high <= low or width < 4:
        return " " * width

    def at(value: float) -> int:
        return max(0, min(width - 1, round((value - low) / (high - low) * (width - 1))))

    cells = [" "] * width
    for cell in range(min(at(0), at(gain)), max(at(0), at(gain)) + 1):
        cells[cell] = glyphs.done
    first, line, last = glyphs.whisker_left, glyphs.whisker, glyphs.whisker_right
    left, right = map(at, around)
    if right > left:
        cells[left : right + 1] = [first, *line * (right - left - 1), last]
    else:
        cells[left] = glyphs.peak
    return "".join(cells)


# ---- one comparison --------------------------------------------------------------------------------


def detail(comparison: Told, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Why the change was kept or not, its effect on learning, and its trials; the newest where not all fit."""
    told, remarks = _told(comparison), list(_remarks(comparison))
    most = max(2, height - len(told) - len(remarks))  # the heads of the trials are a row, too
    rows: list[Row] = [[(line, style)] for text, style in remarks for line in wrapped(text, width, glyphs, most)]
    columns = _shown(told, width)
    room = max(0, height - len(rows) - 1)
    medians = [_median(side, told, columns, width) for side in _both_sides(told)] if room >= MEDIANS_FROM else []
    newest = told[max(0, len(told) - room + len(medians)) :]
    return [*rows, _titles(columns, width), *(_trial(trial, columns, width, glyphs) for trial in newest), *medians][
        :height
    ]


def _remarks(comparison: Told) -> Iterator[Piece]:
    known = comparison.get("decision") in ("kept", "faster", "running")  # the table already says why
    said = comparison.get("reason" if known else "why") or comparison.get("why")
    notes = comparison.get("notes")
    yield from ((clean(line), "value") for line in (notes if isinstance(notes, list) else [said or ""]))
    yield from ((line, "warn") for line in disturbances(comparison))
    learning = mapping(comparison.get("learning"))
    if learning:
        samples, before, after = (number(learning.get(name)) for name in ("samples", "loss_a", "loss_b"))
        after_so_many = f"; loss after {counted(samples, 'samples')}: " if samples is not None else ""
        losses = f"{amount(before)} without, {amount(after)} with" if after_so_many else ""
        yield f"learning: {clean(learning.get('note') or NONE)}{after_so_many}{losses}", "warn"


def disturbances(told: Told) -> Iterator[str]:
    """What ran beside how many of the trials."""
    listed = told.get("trials")
    reasons = [clean(mapping(trial).get("disturbed") or "") for trial in listed] if isinstance(listed, list) else []
    for reason in dict.fromkeys(filter(None, reasons)):
        yield f"disturbed, {reasons.count(reason)} of {counted(len(reasons), 'trials')}: {reason}"


_SIDE, _OUTCOME = 12, 13
_SIDES = {"a": "without", "b": "with", "p": "profiled"}
_APART = 2  # blanks between two columns


def _shown(trials: list[Told], width: int) -> list[Figure]:
    """What some trial knows; what does not fit is left out from the right."""
    room, shown = width - _SIDE - _OUTCOME, []
    for figure in figures.shown("trial"):
        known = any(number(trial.get(figure.key)) is not None for trial in trials)
        if known and _APART + figure.width <= room:
            shown.append(figure)
            room -= _APART + figure.width
    return shown


def _titles(columns: list[Figure], width: int) -> Row:
    titles = "".join(f"{figure.narrow_head:>{_APART + figure.width}}" for figure in columns)
    return fit([(f"{'trial':<{_SIDE}}{titles}  ended", "label")], width)


def _told(comparison: Told) -> list[Told]:
    """All trials, those of the changed side with their gain."""
    listed = comparison.get("trials")
    trials = [mapping(trial) for trial in listed] if isinstance(listed, list) else []
    return [dict(trial) | {"gain": _gain_of(trial, trials)} for trial in trials]


def gains(comparison: Told) -> list[float]:
    """The gain of each pair so far."""
    return [gain for trial in _told(comparison) if (gain := number(trial["gain"])) is not None]


def _trial(trial: Told, columns: list[Figure], width: int, glyphs: Glyphs) -> Row:
    side = _SIDES.get(str(trial.get("side")), clean(trial.get("side") or NONE))
    row: Row = [(f"{_count(trial.get('repeat')):>2} {side:<{_SIDE - 3}}", "value")]
    for figure in columns:
        row.append((f"{figure.bare(number(trial.get(figure.key))):>{_APART + figure.width}}", "value"))
    ended = how_it_ended(trial)
    said = fitting(ended.replace("\n", " "), max(4, width - length(row) - 2), glyphs)
    well = "warn" if trial.get("disturbed") else "good"
    return fit([*row, (f"  {said}", well if trial.get("outcome") == "ok" else "bad")], width)


def how_it_ended(trial: Told) -> str:
    """In as few words as a row has room for; by what it was disturbed is told above."""
    error = clean(trial.get("error") or "")
    more = f": {error}" if error else ", disturbed" if trial.get("disturbed") else ""
    return clean(trial.get("outcome") or NONE) + more


def _both_sides(trials: list[Told]) -> str:
    """The sides, where both have trials of which medians can be taken."""
    good = [trial.get("side") for trial in trials if trial.get("outcome") == "ok"]
    return "ab" if good.count("a") > 1 and good.count("b") > 1 else ""


def _median(side: str, trials: list[Told], columns: list[Figure], width: int) -> Row:
    """The medians of a side, which the head of the proof shows as before and after."""
    mine = [trial for trial in trials if trial.get("side") == side and trial.get("outcome") == "ok"]
    row: Row = [(f"{f'med. {_SIDES[side]}':<{_SIDE}}", "label")]
    for figure in columns:
        known = [value for trial in mine if (value := number(trial.get(figure.key))) is not None]
        row.append((f"{figure.bare(statistics.median(known) if known else None):>{_APART + figure.width}}", "title"))
    return fit(row, width)


def _count(value: Any) -> str:
    known = number(value)
    return NONE if known is None else f"{known:.0f}"


def _gain_of(trial: Told, trials: list[Told]) -> float | None:
    """The gain of a changed trial over the unchanged one of the same pair."""
    if trial.get("side") != "b" or trial.get("outcome") != "ok":
        return None
    mates = [t for t in trials if t.get("side") == "a" and t.get("repeat") == trial.get("repeat")]
    known = [number(mate.get("samples_per_second")) for mate in mates if mate.get("outcome") == "ok"]
    speed = number(trial.get("samples_per_second"))
    return speed / known[-1] - 1 if speed is not None and known and known[-1] else None
