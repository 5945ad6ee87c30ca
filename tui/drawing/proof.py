"""The head of a proof as rows: its state, the speed before and after, its progress or its result.

The data comes from proof.json (engine/trials/record.py). Missing values are shown as a dash, and foreign text is
cleaned.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...engine.figures import shown
from ...engine.trials import sentences
from ...engine.units import NONE, amount, seconds
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.store import mapping, number
from .big import tall
from .rows import Piece, Row, fitting, length, spread, wrapped

Told = Mapping[str, Any]
STATES = {
    "running": "measuring",
    "done": "done",
    "stopped": "stopped",
    "failed": "failed",
    "crashed": "crashed",
}
UNSURE = "this may be chance"
_SPEED, *_OTHERS = shown("trial")


# ---- progress and result ---------------------------------------------------------------------------


def head(data: Told, clock: float, width: int, glyphs: Glyphs, low: bool = False) -> list[Row]:
    """The proof and its state; before and after; progress or result. `low`: in as few rows as possible."""
    left: Row = [(clean(data.get("preset_name") or NONE), "title"), (f"  {_about(data)}", "label")]
    rows = [spread(left, [("  ", ""), state_piece(data, clock, glyphs), (" ", "")], width)]
    rows += _before_and_after(data, width, glyphs, low)
    rows.append(_beside(data, width))
    rows += _going(data, clock, width, glyphs)
    return rows if low else [*rows, *_findings(data, width, glyphs)]


def _about(data: Told) -> str:
    what = {
        "ab": "one change",
        "loop": "one change after another",
        "diagnosis": "what the input costs",
        "scaling": "how well it scales",
    }
    repeats, measured = number(data.get("repeats")), number(data.get("measure_seconds"))
    unit = "rounds" if data.get("kind") == "scaling" else "pairs"
    pairs = "1 pair" if repeats == 1 else f"{repeats or 0:.0f} {unit}"
    each = f", {pairs} of trials of {measured:g} s" if repeats and measured else ""
    return f"{what.get(str(data.get('kind')), clean(data.get('kind') or ''))}{each}"


def state_piece(data: Told, clock: float, glyphs: Glyphs) -> Piece:
    state = str(data.get("state") or "")
    if state == "running":
        return f"{glyphs.spinner[int(clock * 4) % len(glyphs.spinner)]} {STATES[state]}", "curve2"
    sign, style = (glyphs.ok, "good") if state == "done" else (glyphs.failed, "warn" if state == "stopped" else "bad")
    return f"{sign} {STATES.get(state, clean(state) or 'not there')}", style


def _before_and_after(data: Told, width: int, glyphs: Glyphs, low: bool) -> list[Row]:
    """The speeds before and after, as large as they fit."""
    before, after = (number(mapping(data.get(name)).get("samples_per_second")) for name in ("before", "after"))
    if before is None:
        return [[("no speed has been measured so far" if data else "reading the proof ...", "label")]]
    text = amount(before) if after is None else f"{amount(before)} → {amount(after)}"
    lines = tall(text, glyphs)
    other = sentences.differing_medians(data)
    by_them = f", {other} by these medians" if other else ""
    beside: list[Row] = [[], [(f"{_SPEED.unit}{by_them}", "label")], _gain(data)]
    if low or len(lines) == 1 or len(lines[0]) + 5 + max(map(length, beside)) > width:
        return [_in_one_row(text.replace("→", glyphs.to), amount(before), other, _gain(data), width)]
    return [[(line, "title"), ("   ", ""), *more] for line, more in zip(lines, beside, strict=True)]


def _in_one_row(speeds: str, before: str, by_medians: str, gain: Row, width: int) -> Row:
    """As much as fits; a gain that differs from the ratio of the two speeds is never shown without the explanation."""
    longest = f" {_SPEED.unit}, {by_medians} by these medians  " if by_medians else f" {_SPEED.unit}  "
    for text in (longest, f" {_SPEED.unit} ({by_medians})  "):
        row: Row = [(speeds, "title"), (text, "label"), *gain]
        if not by_medians or length(row) <= width:
            return row
    return [(before, "title"), (f" {_SPEED.unit} before, now ", "label"), *gain]


def _gain(data: Told) -> Row:
    gain = number(data.get("gain_total"))
    if gain is not None:
        return [(sentences.speedup(data), "good" if gain > 1 else "value")]
    listed = data.get("comparisons")
    only = mapping(listed[0]) if data.get("kind") == "ab" and isinstance(listed, list) and listed else {}
    return [(UNSURE, "label")] if only.get("decision") == "undecided" else []


def _beside(data: Told, width: int) -> Row:
    """The other figures before and after, as many as there is room for."""
    before, after = mapping(data.get("before")), mapping(data.get("after"))
    row: Row = []
    for figure in _OTHERS:
        was, now = number(before.get(figure.key)), number(after.get(figure.key))
        if was is None:
            continue
        name, told = figure.item(was)
        told += "" if now is None or figure.text(now) == figure.text(was) else f", now {figure.text(now)}"
        more: Row = [(f"{'   ' if row else ''}{name} ", "label"), (told, "value")]
        row += more if length(row) + length(more) <= width else []
    return row


def _going(data: Told, clock: float, width: int, glyphs: Glyphs) -> list[Row]:
    """The time used of the budget, with what happens now; or the result, and why the proof ended."""
    if data.get("state") == "running":
        return [_bar(data, clock, width, glyphs), [(fitting(clean(data.get("doing") or ""), width, glyphs), "value")]]
    if not data:
        return [[], []]
    final = clean(mapping(data.get("final_verdict")).get("sentence") or "")
    because = clean(data.get("ended_because") or "")
    ended = clean(conclusion(data))
    if final and because.startswith(final):  # it also says what to do
        final, because = because, ""
    more = f"; {because}" if because else ""
    lines = wrapped(ended + more if len(ended + more) <= width else ended, width, glyphs)
    return [*([(line, "title")] for line in lines), *([(line, "label")] for line in wrapped(final, width, glyphs))]


def _findings(data: Told, width: int, glyphs: Glyphs) -> list[Row]:
    """For a diagnosis, which tries no changes: what else was found, and what could be tried."""
    found = mapping(data.get("diagnosis"))
    if data.get("kind") != "diagnosis" or not found:
        return []
    listed = found.get("remedies")
    remedies = [mapping(remedy).get("changes") for remedy in listed] if isinstance(listed, list) else []
    lines = {
        "also ": sentences.others(found),
        "to try ": "; ".join(sentences.changes(mapping(changes)) for changes in remedies if changes),
    }
    return [
        [(name, "label"), (fitting(clean(text), width - len(name), glyphs), "value")]
        for name, text in lines.items()
        if text
    ]


def conclusion(data: Told) -> str:
    """The result of the proof in a sentence."""
    try:
        return sentences.conclusion(data)
    except (AttributeError, KeyError, TypeError, ValueError):
        return "proof.json cannot be read"


def elapsed(data: Told, clock: float) -> float | None:
    """The time since the start of a proof that still runs."""
    began = number(data.get("started_t"))
    if data.get("state") == "running" and began is not None:
        return max(0.0, clock - began)
    return number(data.get("seconds"))


def _bar(data: Told, clock: float, width: int, glyphs: Glyphs) -> Row:
    gone, least = elapsed(data, clock), number(data.get("budget_seconds"))
    budget = number(data.get("budget_most_seconds")) or least
    right: Row = [(f" {seconds(gone and float(int(gone))):>7}", "value"), (" elapsed", "label")]
    if budget and least:
        least, most = max(least, gone or 0.0), max(budget, gone or 0.0)
        told = seconds(most) if most == least else f"{seconds(least)} to {seconds(most)}"
        right += [(f", about {told} in total ", "label")]
    room = max(0, width - length(right))
    filled = round(min(1.0, (gone or 0.0) / budget) * room) if budget else 0
    return [(glyphs.done * filled, "curve1"), (glyphs.to_do * (room - filled), "track"), *right]
