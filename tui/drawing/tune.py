"""A search for the fastest settings as rows: its head, the gain of each option, the pairs of trials, and the layout."""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ...engine import figures
from ...engine.trials import proof_sentences
from ...engine.trials.record import Candidate, Record, Trial, search_of
from ...engine.tune.report import memory_sentences, search_sentences
from ...engine.tune.report import search_results as results
from ...engine.tune.report.memory_sentences import kind_of_memory, predicted
from ...engine.tune.report.search_sentences import ceiling_in_words, learning, left_in_words, unproven
from ...engine.units import GIB, MINUTE, NONE, amount, change, count, seconds, share, size
from ...engine.units import spread as spread_text
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.run.series import NOTHING, Line
from ..reading.run.snapshot import Snapshot
from ..wording.run import doing
from . import interval_bar
from . import proof as comparisons
from .interval_bar import Interval
from .live.layout import CHART_WIDTH, EDGES_HEIGHT, EDGES_WIDTH, TALL_CHART
from .plot.curves import Curve, Plot
from .proof import conclusion, disturbances, how_it_ended, possible, state_piece
from .rows import Piece, Row, fit, fitting, length, spread, tall, wrapped

_SPEED = figures.of_run("samples_per_second")
_DECISIONS = {
    "kept": ("kept", "good"), "rejected": ("rejected", "warn"), "failed": ("failed", "bad"),
    "undecided": ("not proved", "warn"),
    "left out": ("left out", "label"), "running": ("measuring", "curve2"), "reference": ("reference", "label"),
}  # fmt: skip
# The preset as it was, by the stage in which it was measured; any later one measures it again.
_PRESETS = {"": "the preset", "baseline": "the preset", "ceiling": "preset, no input"}
_ENDS = {"oom": "no memory", "timeout": "time limit", "crashed": "crashed", "error": "error"}


def candidate_interval(candidate: results.Ranked) -> Interval | None:
    """Return the gain over the best settings before, with its error; measured in pairs, over the preset."""
    if candidate.stage != results.PAIRS:
        return possible(candidate.gain, candidate.spread)
    return possible(candidate.since_start, candidate.spread, len(candidate.good))


def spread_of(candidate: results.Ranked, glyphs: Glyphs) -> str:
    sigma = candidate.spread
    return NONE if sigma is None else f"{'±' if glyphs.braille else '+-'} {spread_text(sigma)}"


def brief(candidate: results.Ranked, data: Record, width: int, glyphs: Glyphs) -> str:
    """Return a mark of the best or the running candidate, then what it tried in `width` cells."""
    is_running = outcome(candidate, data, glyphs)[1] == "curve2"
    mark = glyphs.up if results.is_chosen(candidate, data) else glyphs.running if is_running else " "
    return f"{mark} {_brief(candidate, width, glyphs)}"


def _brief(candidate: Candidate, width: int, glyphs: Glyphs) -> str:
    whole, tried = settings(candidate), candidate.tried
    kept = sum(key not in tried for key in candidate.settings)
    if len(whole) <= width or not (tried and kept):
        return fitting(whole, width, glyphs)
    return f"{fitting(_changes(tried), width - len(f' +{kept}'), glyphs)} +{kept}"


def settings(candidate: Candidate) -> str:
    """Return the settings that the candidate tried as text, followed by the settings that had been kept before it."""
    tried, whole = candidate.tried, candidate.settings
    if candidate.stage == results.PAIRS:
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
    mark = results.WITHOUT_INPUT if search_sentences.is_marked(candidate) else " "
    return f"{count(measured)}{mark}"


def outcome(candidate: Candidate, data: Record, glyphs: Glyphs) -> Piece:
    """Return the decision on a candidate: for a failed one how its last trial ended, for a faster one why not
    chosen."""
    if results.is_dropped(candidate, data):
        return f"{glyphs.failed} {' '.join(unproven(data).split()[:2])}", "warn"
    decided = candidate.decision
    if candidate.stage == results.PAIRS and (decided == "kept" or not candidate.settings):
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
    text = "; ".join(filter(None, (why(candidate), clean(candidate.reason), *_remarks(candidate))))
    if text:
        yield text, "value"


def _remarks(candidate: Candidate) -> Iterator[str]:
    if candidate.without_input:
        yield f"{results.WITHOUT_INPUT} without its input, on one repeated batch"
    peak, expected = candidate.peak_bytes, candidate.predicted_bytes
    if peak is not None and expected is not None:
        yield f"{size(peak)} of memory, predicted {size(expected)}"
    yield from disturbances(candidate.trials)


def why(candidate: Candidate) -> str:
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


BAR, LEAST_VALUES = 20, 24  # widths of the bar of an option's gain, and of its values next to the bar
LOSSES = 2  # the latest sentences about losses
_NAME, _FIGURES = 21, 19
_STEP = figures.of_run("step_ms.p50")


# ---- the head -------------------------------------------------------------------------------------


def head(data: Record, elapsed: float | None, width: int, glyphs: Glyphs, low: bool = False) -> list[Row]:
    """Return the search and its state, the speeds before and now, then time and activity or the result."""
    left: Row = [(clean(data.preset_name or NONE), "title"), (f"  {_about(data)}", "label")]
    rows = [spread(left, [("  ", ""), state_piece(data, elapsed or 0.0, glyphs), (" ", "")], width)]
    rows += _speeds(data, width, glyphs, low)
    if data.state == "running":
        rows.append(_bar(data, elapsed, width, glyphs))
        rows.append([(fitting(clean(data.doing), width, glyphs), "value")])
        return rows
    return [*rows, *_result(data, width, glyphs, low)]


def _about(data: Record) -> str:
    limit = results.limit_seconds(data)
    return "the fastest settings" + (f", within {limit / MINUTE:g} min" if limit else "")


def _before_and_best(data: Record) -> tuple[float | None, float | None]:
    # Those of pairs if there are any, else of single trials. The second is None if the settings were not kept.
    before, after = ((side or {}).get(_SPEED.key) for side in (data.before, data.after))
    if data.gain_total is not None and before is not None and after is not None:
        return before, after
    was, best = search_of(data).before_speed, search_of(data).best_speed
    return was, None if results.is_decided(data) and not proof_sentences.to_take(data) else best


def _speeds(data: Record, width: int, glyphs: Glyphs, low: bool) -> list[Row]:
    before, best = _before_and_best(data)
    if before is None:
        return [[("no speed has been measured so far" if data.is_read else "reading the search ...", "label")]]
    text = amount(before) if best is None or best == before else f"{amount(before)} → {amount(best)}"
    beside: list[Row] = [_gain(data), [(_SPEED.unit, "label")], _ceiling(data)]
    lines = tall(text, glyphs)
    if low or len(lines) == 1 or len(lines[0]) + 5 + max(map(length, beside)) > width:
        row: Row = [(text.replace("→", glyphs.to), "title"), (f" {_SPEED.unit}", "label")]
        for more in (beside[0], beside[2]):
            row += [("  ", ""), *more] if more and length(row) + length(more) + 2 <= width else []
        return [row]
    return [[(line, "title"), ("   ", ""), *more] for line, more in zip(lines, beside, strict=True)]


def _gain(data: Record) -> Row:
    """Return pieces with the gain that was measured in pairs or, without pairs, the gain that single trials show so
    far."""
    if data.gain_total is not None:
        return [(proof_sentences.speedup(data), "good")]
    so_far = results.gain_so_far(data)
    if so_far is None:
        return []
    if data.state == "running" and unproven(data) != "not chosen":
        return [(f"{change(so_far)} so far", "value"), (", not yet proven in pairs", "label")]
    return [(f"{change(so_far)} in single trials", "value"), (f", {unproven(data)}", "warn")]


def _ceiling(data: Record) -> Row:
    ceiling, noise = ceiling_in_words(data), search_of(data).noise
    repeats = f"{'; ' if ceiling else ''}repeats differ by {share(noise, 1)}" if noise is not None else ""
    return [(ceiling + repeats, "label")] if ceiling or repeats else []


def _bar(data: Record, elapsed: float | None, width: int, glyphs: Glyphs) -> Row:
    limit = results.limit_seconds(data)
    right: Row = [(f" {left_in_words(elapsed, limit)} ", "value")]
    room = max(0, width - length(right))
    filled = round(min(1.0, (elapsed or 0.0) / limit) * room) if limit else 0
    return [(glyphs.done * filled, "curve1"), (glyphs.to_do * (room - filled), "track"), *right]


# ---- the result -----------------------------------------------------------------------------------


def _result(data: Record, width: int, glyphs: Glyphs, low: bool) -> list[Row]:
    """In at most three rows, then the last sentences about the losses, each cut to one row with `low`."""
    because = clean(data.ended_because)
    ended = clean(conclusion(data)) if data.is_read else ""
    whole = f"{ended}; {because}" if because and because not in ended else ended
    rows: list[Row] = [[(line, "title")] for line in wrapped(whole, width, glyphs, 3)]
    for sentence in map(clean, learning(data)[-LOSSES:]):
        lines = [fitting(sentence, width, glyphs)] if low else wrapped(sentence, width, glyphs)
        rows += [[(line, "value")] for line in lines]
    return rows


def is_deciding(data: Record) -> bool:
    """Return True while the pairs of trials are measured that decide between the preset and the best settings."""
    decided = data.comparisons
    return bool(decided) and decided[-1].decision == "running"


def pairs(data: Record, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return a panel of `height` rows with the pairs of trials that decide between the preset and the best settings."""
    decided = data.comparisons
    proven = bool(decided) and decided[-1].decision == "kept"
    title: Row = [("proven in pairs" if proven else "measured in pairs", "title")]
    if not decided:
        nothing = "the best settings have not been measured against the preset in pairs"
        return _filled([title, *([(line, "label")] for line in wrapped(nothing, width, glyphs))], height)
    gain: Row = [("  " + comparisons.measured(decided[-1], glyphs), "value")]
    return _filled([title + gain, *comparisons.detail(decided[-1], width, height - 1, glyphs)], height)


def pairs_line(data: Record, width: int, glyphs: Glyphs) -> Row:
    """Return the result of the pairs of trials or, while they are measured, their state."""
    decided = data.comparisons
    if not decided:
        return [("pairs   ", "label"), (fitting("nothing was measured in pairs", max(0, width - 8), glyphs), "label")]
    if is_deciding(data):
        so_far = ", ".join(change(gain) for gain in comparisons.gains(decided[-1])) or "being measured"
        text = f"{comparisons.changes(decided[-1])} against the preset: {so_far}"
    else:
        text = f"{comparisons.measured(decided[-1], glyphs)}: {clean(decided[-1].why)}".replace("\n", " ")
    return [("pairs   ", "label"), (fitting(text, max(0, width - 8), glyphs), "value")]


# ---- what each option brought ---------------------------------------------------------------------


def options(data: Record, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return exactly `height` rows: a title, the gain of all options together, then each option's with its spread."""
    all_options = results.brought(data)
    bar = BAR if width >= _NAME + _FIGURES + BAR + LEAST_VALUES else 0
    scale = interval_bar.scale_of(map(interval, all_options))
    mark = (
        f" ({results.WITHOUT_INPUT} no input)"
        if any(option.without_input and option.gain is not None for option in all_options)
        else ""
    )
    title = fitting(f"what each option brought, vs. before{mark}", width, glyphs)
    rows: list[Row] = [[(title, "title")], *_in_all(data, width, glyphs)]
    if bar and scale and height > len(rows) + len(all_options):
        rows.append([(" " * (_NAME + _FIGURES), ""), (scale.head(bar - 2), "label")])
    for option in all_options:
        row: Row = [(f"{option.name:<{_NAME}}", "label"), (f"{_figures(option, glyphs):<{_FIGURES}}", _style(option))]
        if bar:
            row += [*interval_bar.bar(interval(option), scale, bar - 2, glyphs, _style(option)), ("  ", "")]
        dropped = unproven(data) if option.state == "not chosen" else ""
        kept = clean(proof_sentences.changes(option.settings)) if option.settings else dropped
        rows.append(fit([*row, (fitting(kept, max(0, width - length(row)), glyphs), "value")], width))
    return _filled(rows, height)


def _in_all(data: Record, width: int, glyphs: Glyphs) -> Iterator[Row]:
    gain, noise, proved = results.in_all(data)
    if gain is not None:
        figures_of = comparisons.gain_and_spread(gain, noise, glyphs) if proved else change(gain)
        how = fitting(f"vs. start, {'in pairs' if proved else 'in single trials'}", width - _NAME - _FIGURES, glyphs)
        yield fit(
            [(f"{'all together':<{_NAME}}", "label"), (f"{figures_of:<{_FIGURES}}", "value"), (how, "label")], width
        )


def _filled(rows: list[Row], height: int) -> list[Row]:
    return [*rows, *([[]] * (height - len(rows)))][:height]


def interval(option: results.Brought) -> Interval | None:
    """Return the gain of an option with its standard error. None while its gain is not final."""
    is_final = option.state in ("kept", "not chosen", "nothing")
    return comparisons.possible(option.gain, option.spread) if is_final else None


def _figures(option: results.Brought, glyphs: Glyphs) -> str:
    return option.figures if glyphs.braille else option.figures.replace("±", "+-")


def _style(option: results.Brought) -> str:
    return {"kept": "good", "trying": "curve2"}.get(option.state, "label")


# ---- one line each --------------------------------------------------------------------------------


def options_line(data: Record, width: int, glyphs: Glyphs) -> Row:
    """Return the gains of kept, then of other tried options, without spreads, as many as fit."""
    row: Row = [("brought ", "label")]
    tried = [option for option in results.brought(data) if option.state not in ("to come", "not tried")]
    for candidate in sorted(tried, key=lambda candidate: candidate.state != "kept"):
        figures_of = _briefly(candidate, data, glyphs)
        more: Row = [(f"{', ' if len(row) > 1 else ''}{candidate.name} ", "label"), (figures_of, _style(candidate))]
        row += more if length(row) + length(more) <= width else []
    return row if len(row) > 1 else [("brought nothing so far", "label")]


def _briefly(option: results.Brought, data: Record, glyphs: Glyphs) -> str:
    if option.state == "not chosen":
        return f"{_figures(option, glyphs)}, {unproven(data)}"
    if option.state == "nothing":
        return "no gain"
    return _figures(replace(option, spread=None), glyphs)


def memory_line(data: Record, width: int, glyphs: Glyphs) -> Row:
    text = clean(memory_sentences.in_words(data)) or "not predicted so far"
    return [("memory  ", "label"), (fitting(text, max(0, width - 8), glyphs), "value")]


def trial_line(name: str, now: Snapshot | None, width: int) -> Row:
    """Return the running trial's figures or phase; `now` is None if there is none."""
    if now is None:
        return [("trial   ", "label"), ("none is running", "label")]
    row: Row = [("trial   ", "label"), (clean(name), "value")]
    progress, loss = now.progress, now.line("loss").last
    if progress is None or progress.samples_per_second is None:
        return [*row, (f"  {doing(now.phase, now.phase_detail)} {seconds(now.phase_seconds)}", "label")]
    speed, step = _SPEED.text(progress.samples_per_second), _STEP.text(progress.step_ms_p50)
    for figure in (speed, f"loss {amount(loss)}", f"step {step}"):
        row += [("  ", ""), (figure, "value")] if length(row) + len(figure) + 2 <= width else []
    return row


# ---- the layout of the screen --------------------------------------------------------------------


LINES = 3  # what each option brought, memory and the running trial, in one line each
LEAST_TABLE = 6
CHARTS_FROM = 27  # rows from which on charts stand in place of the lines
CHARTS = 4  # throughput and loss of the trial, the memory, and what each option brought
OF_CHARTS = 0.6
HIGH = 45  # rows from which on there is room for two rows of charts in any case


@dataclass(frozen=True)
class SearchLayout:
    """The height of each part of a search's screen in rows; 0 hides a part. `chart_columns` is the number of charts
    side by side. With `edges`, the charts have edges."""

    head: int
    table: int
    detail: int
    lines: int
    charts: int
    chart_columns: int
    edges: bool = False


def share_out(width: int, height: int, head: int, candidates: int) -> SearchLayout:
    """Return the layout: without room the charts go first, then the lines in their place, then the details."""
    head = min(head, max(1, height - 4))
    left = height - head
    detail = 2 if left >= LEAST_TABLE + 2 else 0
    if height < CHARTS_FROM:
        lines = LINES if left >= LEAST_TABLE + 2 + LINES else 0
        return SearchLayout(head, left - detail - lines, detail, lines, 0, 0)
    columns = CHARTS if width >= CHARTS * (CHART_WIDTH + 2) and height < HIGH else CHARTS // 2
    rows = CHARTS // columns
    edges = width >= EDGES_WIDTH and height >= EDGES_HEIGHT
    detail = 3 if height < 2 * CHARTS_FROM else 5
    charts = min(rows * TALL_CHART, round((left - detail) * OF_CHARTS))
    spare = left - detail - charts - max(LEAST_TABLE, candidates + 2)  # rows that the table would leave blank
    charts = min(rows * TALL_CHART, charts + max(0, spare))
    return SearchLayout(head, left - detail - charts, detail, 0, charts, columns, edges)


KEY = "memory by batch size"
_MIB = 1024**2
_BEYOND = 1.08  # how far the axis goes beyond the last batch size
_FAR = 8.0  # a prediction above this multiple of the largest tried batch is not drawn


def plot(data: Record) -> Plot:
    """Return memory over batch size: prediction, measured points, limit (unless far above all), and those that ran
    out."""
    memory = results.memory_of(data)
    points = [point for point in memory.points if point.batch_size]
    batches = [float(point.batch_size) for point in points]
    tried, largest = max(batches, default=0.0), memory.largest_batch or 0.0
    is_near = largest <= _FAR * tried
    end = (max(tried, largest) if is_near else 2 * tried) * _BEYOND
    limit = memory.limit_bytes if is_near else None
    most = max((value for value in (*(point.peak_bytes for point in points), limit) if value is not None), default=0.0)
    unit, scale = ("GiB", GIB) if most >= GIB else ("MiB", _MIB)
    measured = [
        (batch, peak) for batch, point in zip(batches, points, strict=True) if (peak := point.peak_bytes) is not None
    ]
    lost = []
    for batch, point in zip(batches, points, strict=True):
        if point.peak_bytes is None:
            heights = (point.predicted_bytes, predicted(memory, batch), memory.limit_bytes)
            lost.append((batch, next((height for height in heights if height is not None), 0.0)))
    last = predicted(memory, measured[-1][0]) if measured else None
    ends = [(batch, predicted(memory, batch)) for batch in (0.0, end)]
    line = [(batch, height) for batch, height in ends if height is not None]
    curves = (
        Curve("predicted", _line(line, scale) if len(line) == 2 else NOTHING, value=last and last / scale),
        *([Curve("limit", _line([(0.0, limit), (end, limit)], scale), lesser=True)] if limit is not None else ()),
        Curve("measured", _line(measured, scale, apart=True)),
        *([Curve("out of memory", _line(lost, scale, apart=True), short="out")] if lost else ()),
    )
    shown = curves if end else ()
    return Plot(
        "memory", unit, shown, "zero", x_unit="batch", x_end=end, final=True, key=KEY, note=kind_of_memory(memory)
    )


def _line(points: Sequence[tuple[float, float]], scale: float, apart: bool = False) -> Line:
    xs, ys = array("d", (x for x, _ in points)), array("d", (y / scale for _, y in points))
    return Line(xs, ys, frozenset(range(len(points) if apart else 0)), ys[-1] if ys else None, steps=xs)
