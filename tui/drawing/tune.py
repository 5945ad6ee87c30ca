"""A search for the fastest settings as rows: its head, the gain of each option, the pairs of trials, and the layout."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ...engine import figures
from ...engine.trials import proof_sentences
from ...engine.trials import search_results as results
from ...engine.trials.record import Candidate, Record
from ...engine.trials.search_results import kind_of_memory, predicted, unproven
from ...engine.units import GIB, NONE, amount, change, seconds, size
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.run.series import NOTHING, Line
from ..reading.run.snapshot import Snapshot
from ..wording.run import doing
from . import proof as comparisons
from .interval_bar import table_rows
from .live.layout import CHART_WIDTH, EDGES_HEIGHT, EDGES_WIDTH, TALL_CHART
from .plot.curves import Curve, Plot
from .rows import Row, fitting, length, wrapped

_SPEED = figures.of_run("samples_per_second")
_STYLES = {"kept": "good", "rejected": "label", "failed": "bad", "undecided": "label", "running": "curve1"}


def style_of(candidate: results.Ranked, data: Record) -> str:
    is_reference = not candidate.tried and (candidate.stage != results.PAIRS or not candidate.settings)
    if results.is_dropped(candidate, data):
        return "warn"
    return "label" if is_reference and candidate.decision == "kept" else _STYLES.get(candidate.decision, "label")


def mark(candidate: results.Ranked, data: Record, glyphs: Glyphs) -> str:
    if results.is_chosen(candidate, data):
        return glyphs.up
    return glyphs.running if candidate.decision == "running" else " "


# ---- one candidate --------------------------------------------------------------------------------


def detail(candidate: Candidate, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return a candidate: its settings, why it was tried, the decision, and its newest trials."""
    facts = [candidate.why, candidate.reason]
    if candidate.without_input:
        facts.append(f"{results.WITHOUT_INPUT} without its input, on one repeated batch")
    peak, expected = candidate.peak_bytes, candidate.predicted_bytes
    if peak is not None and expected is not None:
        facts.append(f"{size(peak)} of memory, predicted {size(expected)}")
    before = {key: value for key, value in candidate.settings.items() if candidate.tried and key not in candidate.tried}
    beside = f"  with {proof_sentences.changes(before)}" if before else ""
    remarks = [(results.title(candidate) + beside, "title")]
    remarks += [(text, "value")] if (text := "; ".join(filter(None, facts))) else []
    measured = candidate.trials
    return comparisons.trials(remarks, [trial.run or NONE for trial in measured], measured, width, height, glyphs)


# ---- the pairs ------------------------------------------------------------------------------------


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
    gain = f"  {comparisons.measured(decided[-1], glyphs)}"
    rows = comparisons.pairs(decided[-1], width, height - 1, glyphs)
    return _filled([[*title, (gain, "value")], *rows], height)


def pairs_line(data: Record, width: int, glyphs: Glyphs) -> Row:
    """Return the result of the pairs of trials or, while they are measured, their state."""
    decided = data.comparisons
    if not decided:
        return [("pairs   ", "label"), (fitting("nothing was measured in pairs", max(0, width - 8), glyphs), "label")]
    if is_deciding(data):
        so_far = ", ".join(change(gain) for gain, *_ in decided[-1].pairs) or "being measured"
        text = f"{comparisons.changes(decided[-1])} against the preset: {so_far}"
    else:
        text, gain = clean(decided[-1].why).replace("\n", " "), comparisons.measured(decided[-1], glyphs)
        text = text if text.startswith(change(decided[-1].gain)) else f"{gain}: {text}"
    return [("pairs   ", "label"), (fitting(text, max(0, width - 8), glyphs), "value")]


# ---- what each option brought ---------------------------------------------------------------------


def options(data: Record, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return exactly `height` rows: a title, then the gain of each option with its spread, and of all together."""
    table = results.options(data)
    mark = f" ({results.WITHOUT_INPUT} no input)" if any(results.WITHOUT_INPUT in row[1] for row in table.rows) else ""
    title = fitting(f"what each option brought, vs. before{mark}", width, glyphs)
    return _filled([[(title, "title")], *table_rows(table, width, glyphs)], height)


def _filled(rows: list[Row], height: int) -> list[Row]:
    return [*rows, *([[]] * (height - len(rows)))][:height]


# ---- one line each --------------------------------------------------------------------------------


def options_line(data: Record, width: int, glyphs: Glyphs) -> Row:
    """Return the gains of kept, then of other tried options, without spreads, as many as fit."""
    row: Row = [("brought ", "label")]
    tried = [option for option in results.brought(data) if option.state not in ("to come", "not tried")]
    for option in sorted(tried, key=lambda option: option.state != "kept"):
        figures_of = "no gain" if option.state == "nothing" else replace(option, spread=None).figures
        if option.state == "not chosen":
            figures_of = f"{option.figures}, {unproven(data)}"
        figures_of = figures_of if glyphs.braille else figures_of.replace("±", "+-")
        style = {"kept": "good", "trying": "curve1"}.get(option.state, "label")
        more: Row = [(f"{', ' if len(row) > 1 else ''}{option.name} ", "label"), (figures_of, style)]
        row += more if length(row) + length(more) <= width else []
    return row if len(row) > 1 else [("brought nothing so far", "label")]


def memory_line(data: Record, width: int, glyphs: Glyphs) -> Row:
    text = clean(results.memory_in_words(data)) or "not predicted so far"
    return [("memory  ", "label"), (fitting(text, max(0, width - 8), glyphs), "value")]


def trial_line(name: str, now: Snapshot | None, width: int) -> Row:
    """Return the running trial's figures or phase; `now` is None if there is none."""
    if now is None:
        return [("trial   ", "label"), ("none is running", "label")]
    row: Row = [("trial   ", "label"), (clean(name), "value")]
    progress, loss = now.progress, now.line("loss").last
    if progress is None or progress.samples_per_second is None:
        return [*row, (f"  {doing(now.phase, now.phase_detail)} {seconds(now.phase_seconds)}", "label")]
    speed, step = _SPEED.text(progress.samples_per_second), figures.of_run("step_ms.p50").text(progress.step_ms_p50)
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
    """Return memory over batch size: prediction, measured points, those that ran out, limit (if not far above)."""
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
