"""The head of a proof as rows: its state, the speed before and after, its progress or its result. The data comes from
proof.json (engine/trials/record.py). Missing values are shown as a dash, and foreign text is cleaned."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...engine import figures
from ...engine.figures import Figure, shown
from ...engine.trials import LEAST_REPEATS, proof_sentences, rate_sentences, significance, sweep_sentences
from ...engine.trials.kinds import kind
from ...engine.trials.record import Comparison, Record, Trial
from ...engine.units import NONE, amount, change, counted, seconds
from ...engine.units import spread as spread_text
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..wording.run import ending
from .interval_bar import Interval
from .rows import Piece, Row, fit, fitting, length, spread, tall, wrapped

STATES = {
    "waiting": "waiting", "running": "measuring", "done": "done", "stopped": "stopped", "failed": "failed",
    "crashed": "crashed",
}  # fmt: skip
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
    declared = kind(data.kind)
    unit, _, each = declared.extent.partition(" ")
    extent = f", {counted(data.repeats, unit)} {each.format(data.measure_seconds)}" if unit and data.repeats else ""
    return f"{declared.about or clean(data.kind)}{extent}"


def sections(data: Record, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return the tables and sentences of a kind that has no figures of its own."""
    rows: list[Row] = []
    for section in data.sections:
        lines = [section.head, *section.table.rows] if section.head else []
        widths = [max(map(len, cells)) + 2 for cells in zip(*lines, strict=True)]
        rows.append([(clean(section.title), "title")])
        for at, line in enumerate(lines):
            text = "".join(f"{clean(cell):<{wide}}" for cell, wide in zip(line, widths, strict=True))
            rows.append(fit([(text, "value" if at else "label")], width))
        for sentence in section.sentences:
            rows += ([(line, "value")] for line in wrapped(clean(sentence), width, glyphs))
    return rows[:height]


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
    if before is None and data.sections:
        return []
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


MEDIANS_FROM = 5  # rows of trials from which on there is room for their medians
# The word and the style for each verdict of a comparison.
DECISIONS: Mapping[str, tuple[str, str]] = {
    "kept": ("kept", "good"), "faster": ("faster", "good"), "slower": ("slower", "warn"),
    "no difference": ("no difference", "label"), "undecided": ("undecided", "label"),
    "rejected": ("rejected", "warn"), "failed": ("failed", "bad"), "stopped": ("stopped", "label"),
    "running": ("measuring", "curve2"), "measured": ("measured", "label"),
}  # fmt: skip


# ---- the comparisons -------------------------------------------------------------------------------


@dataclass(kw_only=True)
class Compared(Comparison):
    """A comparison as a row of the table. A `title` is shown in place of the changes, and `notes` in place of the
    reason, if they are set."""

    title: str = ""
    notes: Sequence[str] | None = None


def compared(data: Record) -> list[Compared]:
    """Return all comparisons: the cost of the input, the profiled trial, then the others in the order of measuring."""
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


def most(comparison: Comparison) -> str:
    """Return the greatest possible gain as text: `+150 %` for 2.5 times as fast. A dash if it is not known."""
    expected = comparison.expected_gain
    return NONE if expected is None else change(expected - 1)


def measured(comparison: Comparison, glyphs: Glyphs) -> str:
    """Return a text such as `+148 % ± 4.1 %`: the median gain of the pairs, and their spread. A dash without a gain."""
    return gain_and_spread(comparison.gain, comparison.spread, glyphs)


def gain_and_spread(gain: float | None, sigma: float | None, glyphs: Glyphs) -> str:
    if gain is None:
        return NONE
    sign = "±" if glyphs.braille else "+-"
    return f"{change(gain)} {sign} {'?' if sigma is None else spread_text(sigma):>6}"


def decision(comparison: Comparison, glyphs: Glyphs) -> Piece:
    word, style = DECISIONS.get(comparison.decision, (clean(comparison.decision or NONE), "label"))
    good, bad = style == "good", style in ("warn", "bad")
    sign = glyphs.ok if good else glyphs.failed if bad else glyphs.more if style == "curve2" else " "
    return f"{sign} {word}", style


def interval(comparison: Comparison) -> Interval | None:
    """Return the gain with what its pairs leave possible: the gain may be chance if zero is within it."""
    return possible(comparison.gain, comparison.spread, len(gains(comparison)) or LEAST_REPEATS)


def possible(gain: float | None, spread: float | None, pairs: int | None = None) -> Interval | None:
    """Return the interval of a gain and its spread, both as shares, as `significance.around` makes it. None without a
    gain, or if it is no finite number."""
    if gain is None or not math.isfinite(gain):
        return None
    low, high = significance.around(gain, spread, pairs)
    return Interval(gain, min(low, gain), max(high, gain)) if math.isfinite(high - low) else None


# ---- one comparison --------------------------------------------------------------------------------


def detail(comparison: Comparison, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return why a change was kept or not, its effect on learning, and its newest trials."""
    trials, remarks = comparison.trials, list(_remarks(comparison))
    most = max(2, height - len(trials) - len(remarks))  # the heads of the trials are a row, too
    rows: list[Row] = [[(line, style)] for text, style in remarks for line in wrapped(text, width, glyphs, most)]
    columns = _shown(trials, width)
    room = max(0, height - len(rows) - 1)
    pair = comparison.pair if len(comparison.good("a")) > 1 and len(comparison.good("b")) > 1 else None
    medians = [_median(trial, trials, columns, width) for trial in pair or ()] if room >= MEDIANS_FROM else []
    newest = trials[max(0, len(trials) - room + len(medians)) :]
    lines = [_trial(trial, _gain_of(trial, trials), columns, width, glyphs) for trial in newest]
    heads = "".join(f"{figure.narrow_head:>{_APART + figure.width}}" for figure in columns)
    titles = fit([(f"{'trial':<{_SIDE}}{heads}  ended", "label")], width)
    return [*rows, titles, *lines, *medians][:height]


def _remarks(comparison: Comparison) -> Iterator[Piece]:
    is_known = comparison.decision in ("kept", "faster", "running")  # the table already says why
    reason = (comparison.reason if is_known else "") or comparison.why
    notes = getattr(comparison, "notes", None)
    yield from ((clean(line), "value") for line in ([reason] if notes is None else notes))
    yield from ((line, "warn") for line in disturbances(comparison.trials))
    if learning := comparison.learning:
        samples = learning.samples
        after_so_many = f"; loss after {counted(samples, 'samples')}: " if samples is not None else ""
        losses = f"{amount(learning.loss_a)} without, {amount(learning.loss_b)} with" if after_so_many else ""
        yield f"learning: {clean(learning.note or NONE)}{after_so_many}{losses}", "warn"


def disturbances(trials: Sequence[Trial]) -> Iterator[str]:
    """Yield each kind of disturbance with the number of trials. Reasons that differ only in figures are one kind."""
    kinds: dict[str, list[str]] = {}
    for reason in filter(None, (clean(trial.disturbed) for trial in trials)):
        kinds.setdefault(re.sub(r"\d+", "", reason), []).append(reason)
    for reasons in kinds.values():
        such_as = ", such as" if len(set(reasons)) > 1 else ""
        yield f"disturbed, {len(reasons)} of {counted(len(trials), 'trials')}{such_as}: {reasons[0]}"


_SIDE, _OUTCOME = 12, 13
_SIDES = {"a": "without", "b": "with", "p": "profiled"}
_APART = 2  # blanks between two columns


def _shown(trials: Sequence[Trial], width: int) -> list[Figure]:
    room, shown = width - _SIDE - _OUTCOME, []
    for figure in figures.shown("trial"):
        has_values = any(_value(figure.key, trial, _gain_of(trial, trials)) is not None for trial in trials)
        if has_values and _APART + figure.width <= room:
            shown.append(figure)
            room -= _APART + figure.width
    return shown


def gains(comparison: Comparison) -> list[float]:
    """Return the gain of each pair so far, as a share: 0.05 is 5 % faster. Pairs with a failed trial are left out."""
    trials = comparison.trials
    return [gain for trial in trials if (gain := _gain_of(trial, trials)) is not None]


def _value(key: str, trial: Trial, gain: float | None) -> Any:
    return gain if key == "gain" else trial.figure(key)


def _trial(trial: Trial, gain: float | None, columns: list[Figure], width: int, glyphs: Glyphs) -> Row:
    row: Row = [(f"{trial.repeat:>2} {_SIDES.get(trial.side, clean(trial.side or NONE)):<{_SIDE - 3}}", "value")]
    for figure in columns:
        row.append((f"{figure.bare(_value(figure.key, trial, gain)):>{_APART + figure.width}}", "value"))
    ended = fitting(how_it_ended(trial).replace("\n", " "), max(4, width - length(row) - 2), glyphs)
    well = "warn" if trial.disturbed else "good"
    return fit([*row, (f"  {ended}", well if trial.good else "bad")], width)


def how_it_ended(trial: Trial) -> str:
    """Return the outcome of a trial in few words, with its error or, without an error, that it was disturbed."""
    error = clean(trial.error or "")
    more = f": {error}" if error else ", disturbed" if trial.disturbed else ""
    return clean(trial.outcome or NONE) + more


def _median(trial: Trial, trials: Sequence[Trial], columns: list[Figure], width: int) -> Row:
    # The pair that has the median gain, which the head of the proof shows, too.
    row: Row = [(f"{f'med. {_SIDES[trial.side]}':<{_SIDE}}", "label")]
    for figure in columns:
        value = _value(figure.key, trial, _gain_of(trial, trials))
        row.append((f"{figure.bare(value):>{_APART + figure.width}}", "title"))
    return fit(row, width)


def _gain_of(trial: Trial, trials: Sequence[Trial]) -> float | None:
    # A share: 0.05 is 5 % faster.
    if trial.side != "b" or not trial.good:
        return None
    speeds = [
        mate.samples_per_second for mate in trials if mate.side == "a" and mate.repeat == trial.repeat and mate.good
    ]
    speed = trial.samples_per_second
    return speed / speeds[-1] - 1 if speed is not None and speeds and speeds[-1] else None
