"""The head of a proof as rows: its state, the speed before and after, its progress or its result. The data comes from
proof.json (engine/trials/record.py). Missing values are shown as a dash, and foreign text is cleaned."""

from __future__ import annotations

from ...engine.figures import shown
from ...engine.trials import proof_sentences, rate_sentences, sweep_sentences
from ...engine.trials.record import Record
from ...engine.units import NONE, amount, seconds
from ..base.errors import clean
from ..base.glyphs import Glyphs
from .ending import ending
from .rows import Piece, Row, fitting, length, spread, tall, wrapped

STATES = {
    "waiting": "waiting",
    "running": "measuring",
    "done": "done",
    "stopped": "stopped",
    "failed": "failed",
    "crashed": "crashed",
}
UNSURE = "this may be chance"
SENTENCE, DOING = 4, 2  # lines of the result and of the present work, at most
_SPEED, *_OTHERS = shown("trial")


# ---- progress and result ---------------------------------------------------------------------------


def head(data: Record, clock: float, width: int, glyphs: Glyphs, low: bool = False) -> list[Row]:
    """Return the proof and its state, the speeds before and after, its progress or result; few rows if `low`."""
    left: Row = [(clean(data.preset_name or NONE), "title"), (f"  {_about(data)}", "label")]
    rows = [spread(left, [("  ", ""), state_piece(data, clock, glyphs), (" ", "")], width)]
    rows += _before_and_after(data, width, glyphs, low)
    rows.append(_other_figures(data, width))
    rows += _going(data, clock, width, glyphs)
    return rows if low else [*rows, *_findings(data, width, glyphs)]


def _about(data: Record) -> str:
    what = {
        "ab": "one change",
        "loop": "one change after another",
        "diagnosis": "what the input costs",
        "scaling": "how well it scales",
        "rate": "which learning rate",
        "sweep": "which settings learn best",
    }
    repeats, measured = data.repeats, data.measure_seconds
    unit = "rounds" if data.kind == "scaling" else "pairs"
    pairs = "1 pair" if repeats == 1 else f"{repeats or 0:.0f} {unit}"
    each = f", {pairs} of trials of {measured:g} s" if repeats and measured else ""
    each = f", {pairs} of trainings" if data.kind == "rate" else "" if data.kind == "sweep" else each
    return f"{what.get(data.kind, clean(data.kind))}{each}"


def state_piece(data: Record, clock: float, glyphs: Glyphs) -> Piece:
    state = data.state
    if state == "running":
        return f"{glyphs.spinner[int(clock * 4) % len(glyphs.spinner)]} {STATES[state]}", "curve2"
    if state == "waiting":
        return f"{glyphs.more} {STATES[state]}", "label"
    sign, style = ending(state, glyphs)
    return f"{sign} {STATES.get(state, clean(state) or 'not there')}", style


def _before_and_after(data: Record, width: int, glyphs: Glyphs, low: bool) -> list[Row]:
    """The speeds before and after, in large digits if there is room. With `low`, there is one row."""
    before, after = ((side or {}).get("samples_per_second") for side in (data.before, data.after))
    if data.rate is not None:
        return [[(clean(rate_sentences.suggestion(data.rate)) or "no rate is suggested so far", "value")]]
    if data.sweep is not None:
        return [[(fitting(clean(sweep_sentences.swept(data.sweep.settings)), width, glyphs), "value")]]
    if before is None:
        return [[("no speed has been measured so far" if data.is_read else "reading the proof ...", "label")]]
    text = amount(before) if after is None else f"{amount(before)} → {amount(after)}"
    lines = tall(text, glyphs)
    beside: list[Row] = [[], [(_SPEED.unit, "label")], _gain(data)]
    if low or len(lines) == 1 or len(lines[0]) + 5 + max(map(length, beside)) > width:
        return [[(text.replace("→", glyphs.to), "title"), (f" {_SPEED.unit}  ", "label"), *_gain(data)]]
    return [[(line, "title"), ("   ", ""), *more] for line, more in zip(lines, beside, strict=True)]


def _gain(data: Record) -> Row:
    gain = data.gain_total
    if gain is not None:
        return [(proof_sentences.speedup(data), "good" if gain > 1 else "value")]
    is_unsure = data.kind == "ab" and any(comparison.decision == "undecided" for comparison in data.comparisons[:1])
    return [(UNSURE, "label")] if is_unsure else []


def _other_figures(data: Record, width: int) -> Row:
    """The medians before and after of the other figures, as many as there is room for."""
    before, after = data.before or {}, data.after or {}
    row: Row = []
    for figure in _OTHERS:
        was, now = before.get(figure.key), after.get(figure.key)
        if was is None:
            continue
        name, value = figure.item(was)
        value += "" if now is None or figure.text(now) == figure.text(was) else f", now {figure.text(now)}"
        more: Row = [(f"{'   ' if row else ''}{name} ", "label"), (value, "value")]
        row += more if length(row) + length(more) <= width else []
    return row


def _going(data: Record, clock: float, width: int, glyphs: Glyphs) -> list[Row]:
    """For a running proof the used time and the present activity, for an ended one its result and why it ended."""
    if data.state == "running":
        does = wrapped(clean(data.doing), width, glyphs, DOING) or [""]
        return [_bar(data, clock, width, glyphs), *([(line, "value")] for line in does)]
    if not data.is_read:
        return [[], []]
    final = clean((data.final_verdict or {}).get("sentence") or "")
    because = clean(data.ended_because)
    ended = clean(conclusion(data))
    if final and because.startswith(final):  # it also says what to do
        final, because = because, ""
    more = f"; {because}" if because else ""
    is_short = len(ended + more) <= width or because.startswith(proof_sentences.OUT_OF_TIME)
    lines = wrapped(ended + more if is_short else ended, width, glyphs, SENTENCE)
    return [*([(line, "title")] for line in lines), *([(line, "label")] for line in wrapped(final, width, glyphs))]


def _findings(data: Record, width: int, glyphs: Glyphs) -> list[Row]:
    """The advice of a loop, or the other findings of a diagnosis and the remedies that could be tried."""
    if data.advice:
        reasons = [clean(f"advice: {each['reason']}") for each in data.advice]
        rows = [[(line, "value")] for text in reasons for line in wrapped(text, width, glyphs, SENTENCE)]
        return [*rows, *([(f"   {clean(line)}", "title")] for line in proof_sentences.code_of(data.advice))]
    diagnosis = data.diagnosis
    if data.kind != "diagnosis" or not diagnosis:
        return []
    remedies = [remedy.get("changes") for remedy in diagnosis.get("remedies") or ()]
    lines = {
        "also ": proof_sentences.others(diagnosis),
        "to try ": "; ".join(proof_sentences.changes(changes) for changes in remedies if changes),
    }
    return [
        [(name, "label"), (fitting(clean(text), width - len(name), glyphs), "value")]
        for name, text in lines.items()
        if text
    ]


def conclusion(data: Record) -> str:
    return proof_sentences.conclusion(data) if data.is_read else "proof.json cannot be read"


def elapsed(data: Record, clock: float) -> float:
    """Return the seconds since the start of a running proof, or the whole duration of an ended proof."""
    return max(0.0, clock - data.started_t) if data.state == "running" else data.seconds


def _bar(data: Record, clock: float, width: int, glyphs: Glyphs) -> Row:
    gone, least = elapsed(data, clock), data.budget_seconds
    budget = data.budget_most_seconds or least
    right: Row = [(f" {seconds(float(int(gone))):>7}", "value"), (" elapsed", "label")]
    if budget and least:
        least, most = max(least, gone), max(budget, gone)
        duration = seconds(most) if most == least else f"{seconds(least)} to {seconds(most)}"
        right += [(f", about {duration} in total ", "label")]
    room = max(0, width - length(right))
    filled = round(min(1.0, gone / budget) * room) if budget else 0
    return [(glyphs.done * filled, "curve1"), (glyphs.to_do * (room - filled), "track"), *right]
