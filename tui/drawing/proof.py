"""A measurement as rows: its state, the speed before and after, its progress or result, and trials of one change. The
data is from proof.json (engine/trials/record.py). Missing values are shown as a dash, and foreign text is cleaned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ...engine import figures
from ...engine.figures import shown
from ...engine.text_table import Table
from ...engine.trials import proof_sentences, report, search_results, sweep_record
from ...engine.trials.kinds import kind
from ...engine.trials.record import Comparison, Record, Trial, elapsed_of, search_of
from ...engine.units import MINUTE, NONE, amount, change, counted, seconds, share
from ...engine.units import spread as spread_text
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..wording.run import ending
from .interval_bar import table_rows
from .rows import Piece, Row, fit, fitting, hanging, length, spread, tall, wrapped

STATES = {
    "waiting": "waiting", "running": "measuring", "done": "done", "stopped": "stopped", "failed": "failed",
    "crashed": "crashed",
}  # fmt: skip
UNSURE = "this may be chance"
DOING, LINES, LOW_ANSWER = 2, 8, 5  # lines of the present work and of the answer, at most
WORD = 11  # columns of the words before the texts of an answer
_SPEED, *_OTHERS = shown("trial")


# ---- progress and result ---------------------------------------------------------------------------


def head(data: Record, width: int, glyphs: Glyphs, low: bool = False) -> list[Row]:
    """Return the measurement and its state, the speeds before and after, progress or result; few rows if `low`."""
    declared = kind(data.kind)
    unit, _, each = declared.extent.partition(" ")
    extent = f", {counted(data.repeats, unit)} {each.format(data.measure_seconds)}" if unit and data.repeats else ""
    if data.search:
        extent = f", within {data.search.limits.minutes:g} min"
    about = f"  {declared.about or clean(data.kind)}{extent}"
    left: Row = [(clean(data.preset_name or NONE), "title"), (about, "label")]
    rows = [spread(left, [("  ", ""), state_piece(data, glyphs), (" ", "")], width)]
    rows += _speeds(data, width, glyphs, low)
    rows += [] if data.search else [_other_figures(data, width)]
    rows += _going(data, width, glyphs, low)
    code = proof_sentences.code_of(data.advice) if not low and data.state != "running" else ()
    return [*rows, *([(f"   {clean(line)}", "title")] for line in code)]


def sections(data: Record, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return the tables and sentences of a kind that has no figures of its own."""
    rows: list[Row] = []
    for section in data.sections:
        rows.append([(clean(section.title), "title")])
        table = section.table
        cleaned = Table([*map(clean, table.head)], [[*map(clean, row)] for row in table.rows])
        rows += table_rows(cleaned, width, glyphs) if section.head else []
        for sentence in section.sentences:
            rows += ([(line, "value")] for line in wrapped(clean(sentence), width, glyphs))
    return rows[:height]


def state_piece(data: Record, glyphs: Glyphs) -> Piece:
    state = data.state
    if state == "running":
        return f"{glyphs.spinner[int(elapsed_of(data) * 4) % len(glyphs.spinner)]} {STATES[state]}", "curve1"
    if state == "waiting":
        return f"{glyphs.more} {STATES[state]}", "label"
    sign, style = ending(state, glyphs)
    return f"{sign} {STATES.get(state, clean(state) or 'not there')}", style


def _speeds(data: Record, width: int, glyphs: Glyphs, low: bool) -> list[Row]:
    """The speeds before and after, in large digits if there is room. With `low`, there is one row."""
    before, after = search_results.speeds(data)
    if data.rate is not None:
        return [[(clean(proof_sentences.suggestion(data.rate)) or "no rate is suggested so far", "value")]]
    if data.sweep is not None:
        return [[(fitting(clean(sweep_record.swept(data.sweep.settings)), width, glyphs), "value")]]
    if before is None and data.sections:
        return []
    if before is None:
        return [[("no speed has been measured so far" if data.is_read else "reading the proof ...", "label")]]
    text = amount(before) if after is None or after == before else f"{amount(before)} → {amount(after)}"
    lines = tall(text, glyphs)
    ceiling, noise = search_results.ceiling_in_words(data), search_of(data).noise
    repeats = "" if noise is None else f"repeats differ by {share(noise, 1)}"
    beside: list[Row] = [
        _gain(data), [(_SPEED.unit, "label")], [("; ".join(filter(None, (ceiling, repeats))), "label")]
    ]  # fmt: skip
    if low or len(lines) == 1 or len(lines[0]) + 5 + max(map(length, beside)) > width:
        row: Row = [(text.replace("→", glyphs.to), "title"), (f" {_SPEED.unit}", "label")]
        for more in (beside[0], beside[2]):
            row += [("  ", ""), *more] if length(more) and length(row) + length(more) + 2 <= width else []
        return [row]
    return [[(line, "title"), ("   ", ""), *more] for line, more in zip(lines, beside, strict=True)]


def _gain(data: Record) -> Row:
    """The gain that was measured in pairs or, of a search without them, that single trials show so far."""
    gain, so_far = data.gain_total, search_results.gain_so_far(data)
    if gain is not None:
        return [(proof_sentences.speedup(data), "good" if gain > 1 else "value")]
    if so_far is not None and data.state == "running" and search_results.unproven(data) != "not chosen":
        return [(f"{change(so_far)} so far", "value"), (", not yet proven in pairs", "label")]
    if so_far is not None:
        return [(f"{change(so_far)} in single trials", "value"), (f", {search_results.unproven(data)}", "warn")]
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


def _going(data: Record, width: int, glyphs: Glyphs, low: bool) -> list[Row]:
    """For a running proof the used time and the present activity, for an ended one its answer."""
    if data.state == "running":
        does = wrapped(clean(data.doing), width, glyphs, DOING) or [""]
        return [_bar(data, width, glyphs), *([(line, "value")] for line in does)]
    lines = LOW_ANSWER + bool(data.search) if low else LINES  # a search is drawn so on screens with more rows
    return answer(data, width, glyphs, lines) if data.is_read else [[], []]


def answer(data: Record, width: int, glyphs: Glyphs, most: int, more: Sequence[tuple[str, str]] = ()) -> list[Row]:
    """Return the answer in as many rows as `most` leaves beside `more` texts with their words, which are not cut."""

    def laid_out(word: str, text: str, lines: int) -> list[Row]:
        lead = f"{word:<{WORD}}" if word else ""
        cut = wrapped(clean(text), width - len(lead), glyphs, lines)
        return hanging(cut, "value" if word else "title", [(lead, "label")])

    ends = [row for word, text in more for row in laid_out(word, text, most)]
    texts = [(word, text) for word, text in report.answer(data) if text]
    if len(texts) > most - len(ends):  # that trials were disturbed is the last, and is never left out
        texts = [*texts[: most - len(ends) - 1], next((each for each in texts if each[0] == "disturbed"), texts[-1])]
    depths = [1] * len(texts)  # further rows go to the first texts first
    for place in [*range(len(texts))] * 2:
        deeper = [depth + (at == place) for at, depth in enumerate(depths)]
        if sum(len(laid_out(*each, depth)) for each, depth in zip(texts, deeper, strict=True)) + len(ends) <= most:
            depths = deeper
    return [*(row for each, depth in zip(texts, depths, strict=True) for row in laid_out(*each, depth)), *ends]


def conclusion(data: Record) -> str:
    return proof_sentences.conclusion(data) if data.is_read else "proof.json cannot be read"


def _bar(data: Record, width: int, glyphs: Glyphs) -> Row:
    gone, least = elapsed_of(data), MINUTE * data.search.limits.minutes if data.search else data.budget_seconds
    budget = data.budget_most_seconds or least
    right: Row = [(f" {seconds(float(int(gone))):>7}", "value"), (" elapsed", "label")]
    if budget and least:
        least, most = max(least, gone), max(budget, gone)
        duration = seconds(most) if most == least else f"{seconds(least)} to {seconds(most)}"
        right += [(f", {'at most' if data.search else 'about'} {duration} in total ", "label")]
    room = max(0, width - length(right))
    filled = round(min(1.0, gone / budget) * room) if budget else 0
    return [(glyphs.done * filled, "curve1"), (glyphs.to_do * (room - filled), "track"), *right]


LEAST_TRIALS = 3  # for which remarks are cut
MEDIANS_FROM = 5  # rows of trials from which on there is room for their medians
# The style for each verdict of a comparison.
DECISIONS = {
    "kept": "good", "faster": "good", "slower": "label", "rejected": "label", "failed": "bad", "running": "curve1",
}  # fmt: skip


# ---- the comparisons -------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Compared(Comparison):
    """A row of the table. A `title` stands in place of the changes, `notes` in place of the reason."""

    title: str = ""
    notes: Sequence[str] | None = None


def compared(data: Record) -> list[Compared]:
    """Return the rows of the table: the cost of the input, the profiled trial, then all comparisons in the order of
    measuring; of a range test its trainings."""
    if data.rate is not None:
        return [
            Compared(title=title, changes={}, trials=[trial]) for title, trial in proof_sentences.rate_titled(data.rate)
        ]
    going_on = data.state == "running"
    rows = []
    if ablation := data.ablation:
        rows.append(
            Compared(
                title="without input: one repeated batch",
                changes={},
                trials=ablation.trials,
                decision="running" if going_on and ablation.input_cost is None else "measured",
                why=proof_sentences.input_cost(ablation),
            )
        )
    if trial := data.profile_trial:  # its speed is not compared
        missing = "running" if going_on and not data.profile_missing else "failed"
        rows.append(
            Compared(
                title="a profile of some steps",
                changes={},
                trials=[trial],
                decision="measured" if data.profile else missing,
                notes=proof_sentences.profile_in_brief(data),
            )
        )
    return [*rows, *(Compared(**vars(comparison)) for comparison in data.comparisons)]


def changes(comparison: Comparison) -> str:
    return clean(getattr(comparison, "title", "") or proof_sentences.changes(comparison.changes))


def measured(comparison: Comparison, glyphs: Glyphs) -> str:
    return gain_and_spread(comparison.gain, comparison.spread, glyphs)


def gain_and_spread(gain: float | None, sigma: float | None, glyphs: Glyphs) -> str:
    """Return a text such as `+148 % ± 4.1 %`. A dash without a gain."""
    if gain is None:
        return NONE
    sign = "±" if glyphs.braille else "+-"
    return f"{change(gain)} {sign} {'?' if sigma is None else spread_text(sigma):>6}"


# ---- trials ----------------------------------------------------------------------------------------


_SIDE, _OUTCOME = 12, 13
_SIDES = {"a": "without", "b": "with", "p": "profiled"}
_APART = 2  # blanks between two columns


def pairs(comparison: Comparison, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return why a change was kept or not, its effect on learning, and its newest trials."""
    is_known = comparison.decision in ("kept", "faster", "running")  # the table already says why
    reason = (comparison.reason if is_known else "") or comparison.why
    notes = getattr(comparison, "notes", None)
    remarks = [(line, "value") for line in ([reason] if notes is None else notes)]
    if comparison.learning:
        learning = comparison.learning
        samples = learning.samples
        after_so_many = f"; loss after {counted(samples, 'samples')}: " if samples is not None else ""
        losses = f"{amount(learning.loss_a)} without, {amount(learning.loss_b)} with" if after_so_many else ""
        remarks.append((f"learning: {learning.note or NONE}{after_so_many}{losses}", "warn"))
    names = [f"{trial.repeat:>2} {_SIDES.get(trial.side, trial.side or NONE)}" for trial in comparison.trials]
    return trials(remarks, names, comparison.trials, width, height, glyphs, comparison)


def trials(
    remarks: Sequence[Piece], names: Sequence[str], measured: Sequence[Trial], width: int, height: int, glyphs: Glyphs,
    comparison: Comparison | None = None,
) -> list[Row]:  # fmt: skip
    """Return at most `height` rows: the remarks, then the newest trials with their figures; of a comparison also the
    gains, and the pair that has the median gain, which its head shows, too."""
    for most in (height, 2, 1):
        rows: list[Row] = [
            [(line, style)] for text, style in remarks for line in wrapped(clean(text), width, glyphs, most)
        ]
        if len(rows) + 1 + min(LEAST_TRIALS, len(measured)) <= height:  # the heads are a row, too
            break
    gains = {b.run: gain for gain, _, b in comparison.pairs} if comparison else {}

    def value(key: str, trial: Trial) -> Any:
        return gains.get(trial.run) if key == "gain" else trial.figure(key)

    side = max([_SIDE, *(len(name) + 1 for name in names)])
    left, columns = width - side - _OUTCOME, []
    for figure in figures.shown("trial"):
        has_values = any(value(figure.key, trial) is not None for trial in measured)
        if has_values and _APART + figure.width <= left:
            columns.append(figure)
            left -= _APART + figure.width

    def row_of(name: str, trial: Trial, style: str, of_name: str) -> Row:
        cells = [(f"{figure.bare(value(figure.key, trial)):>{_APART + figure.width}}", style) for figure in columns]
        return [(f"{clean(name):<{side}}", of_name), *cells]

    room = max(0, height - len(rows) - 1)
    several = comparison is not None and min(len(comparison.good("a")), len(comparison.good("b"))) > 1
    median = (comparison.pair or ()) if comparison is not None and several and room >= MEDIANS_FROM else ()
    heads = "".join(f"{figure.narrow_head:>{_APART + figure.width}}" for figure in columns)
    rows += [fit([(f"{'trial':<{side}}{heads}  ended", "label")], width)] if measured and room else []
    for name, trial in list(zip(names, measured, strict=True))[max(0, len(measured) - room + len(median)) :]:
        row = row_of(name, trial, "value", "value")
        ended = fitting(how_it_ended(trial).replace("\n", " "), max(4, width - length(row) - 2), glyphs)
        well = "warn" if trial.disturbed else "good"
        rows.append(fit([*row, (f"  {ended}", well if trial.good else "bad")], width))
    rows += [fit(row_of(f"med. {_SIDES[trial.side]}", trial, "title", "label"), width) for trial in median]
    return rows[:height]


def how_it_ended(trial: Trial) -> str:
    """Return the outcome of a trial in few words, with its error or, without an error, that it was disturbed."""
    error = clean(trial.error or "")
    more = f": {error}" if error else ", disturbed" if trial.disturbed else ""
    return clean(trial.outcome or NONE) + more
