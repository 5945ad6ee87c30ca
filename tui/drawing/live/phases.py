"""The phases of a run as rows: a line about its start, or all phases while no step has been measured yet."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence

from ....engine import figures
from ....engine.runs.events import Started, waits_for_others
from ....engine.runs.run_state import Span
from ....engine.units import abbreviated, clock, count, counted, estimate, named, seconds
from ...base.errors import clean
from ...base.glyphs import Glyphs
from ...reading.earlier_starts import EarlierStarts, summed
from ...reading.queue_places import Waiting
from ...reading.run.snapshot import Snapshot
from ...wording.run import ENDED, brief, doing, ending
from ..rows import Row, fit, hanging, length, spread, whole_words

_STARTUP = figures.of_run("startup_seconds").label
_NAME, _TIME, _BAR = 34, 9, 24
_FEW_SECONDS = 5
READING = "reading"  # in place of a phase, until the events that are there have been read
CATCHING_UP = "catching up"
FIRST_SECONDS = 60.0  # of training, in which the facts of the start are shown
_LEAST_SECONDS = 0.05  # a shorter phase is not shown


def is_due(now: Snapshot) -> bool:
    """True if the phases of the start are to be shown: no step was measured yet, or the run ended without one."""
    return now.progress is None


def is_new(now: Snapshot) -> bool:
    """True until the first minute of training is over: the facts of the start are then still news."""
    trained = now.elapsed - now.trains_since if now.trains_since is not None else 0.0
    return now.outcome is None and (not now.has_trained or trained < FIRST_SECONDS)


def failure(now: Snapshot, width: int, glyphs: Glyphs) -> Row:
    if now.outcome is None or now.error is None:
        return []
    mark, style = ending(now.outcome, glyphs)
    how: Row = [(f"{mark} {ENDED.get(now.outcome, clean(now.outcome))}: ", style)]
    more: Row = [("; Escape shows more", "label")]
    reason = whole_words(clean(now.error.message).replace("\n", " "), width - length(how) - length(more), glyphs)
    return fit([*how, (reason, "value"), *more], width)


# ---- the line of a run that trains ------------------------------------------------------------------


def phase_line(now: Snapshot, width: int) -> Row:
    """Return the duration of the start and its phases, then the totals of later phases, as there is room."""
    if not now.start:
        return fit([], width)
    spans = _merged(now.start)
    left = _start(now, spans)
    while length(left) > width and spans:  # the shortest is left out
        spans.remove(min(spans, key=lambda span: span.seconds))
        left = _start(now, spans)
    right = [_span_row(span, "  ") for span in now.rest.values() if span.phase != "training"]
    while length(left) + sum(map(length, right)) > width and right:
        right.pop()
    return spread(left, [piece for pieces in right for piece in pieces], width)


def _start(now: Snapshot, spans: Sequence[Span]) -> Row:
    whole: Row = [(f"{_STARTUP} ", "label"), (seconds(sum(span.seconds for span in now.start)), "value")]
    return [*whole, *(piece for span in spans for piece in _span_row(span, "  "))]


def _merged(spans: Sequence[Span]) -> list[Span]:
    by_name: dict[str, Span] = {}
    for span in spans:
        name, detail = (span.phase + "-", span.detail) if span.of_others else (span.phase, "")
        earlier = by_name.get(name)
        by_name[name] = Span(span.phase, detail, span.seconds + (earlier.seconds if earlier else 0.0))
    return [span for span in by_name.values() if span.seconds >= _LEAST_SECONDS]


def _span_row(span: Span, before: str) -> Row:
    times = f" {span.count} times" if span.count > 1 else ""
    return [(f"{before}{brief(span.phase, span.detail)}{times} ", "label"), (seconds(span.seconds), "value")]


# ---- the stage while nothing is measured ------------------------------------------------------------


def rows(now: Snapshot, earlier: EarlierStarts, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Return the phases of the start so far, then the model that is compiled, and an estimate by earlier starts."""
    if now.phase == READING:
        return []
    total = sum(span.seconds for span in now.start)
    over = now.outcome is not None
    head: Row = [(_STARTUP, "title"), ("  no step was measured" if over else "  no step is measured yet", "label")]
    drawn = [spread(head, [(clock(total), "value"), (" ", "")], width)]
    so_far = summed(now.start)
    for number_, span in enumerate(now.start):
        last = number_ == len(now.start) - 1
        drawn.append(_phase(span, so_far[span.phase], last, now, earlier, width, glyphs))
    for phase, usual in earlier.phases.items():
        if not over and phase not in so_far:
            row: Row = [("    ", ""), (f"{doing(phase, ''):<{_NAME + _TIME}}", "track")]
            before = f"  before: {usual}"
            room = min(_BAR, width - length(row) - 2 - len(before))
            drawn.append(fit([*row, *([(" " * (room + 2), ""), (before, "track")] if room >= 0 else [])], width))
    about = [] if over else [*_object(now, width), *_estimate(so_far, now, earlier, width, glyphs)]
    room = height - len(about)
    return [*drawn[: max(1, room)], *about][:height]


def _phase(
    span: Span, so_far: float, last: bool, now: Snapshot, earlier: EarlierStarts, width: int, glyphs: Glyphs
) -> Row:
    is_active = last and now.outcome is None and not now.has_trained
    turn = glyphs.spinner[int(now.elapsed * 5) % len(glyphs.spinner)]
    mark, how = (turn, "curve1") if is_active else ending((last and now.outcome) or "ok", glyphs)
    lead = (f" {mark:<2} ", how)
    text = whole_words(clean(doing(span.phase, span.detail)), max(_NAME, width - _TIME - 4), glyphs)
    name = (f"{text:<{_NAME}}", "value" if last else "label")
    row: Row = [lead, name, (f"{seconds(span.seconds):>{_TIME}}", "value")]
    usual = earlier.phases.get(span.phase)
    if usual is None or not is_active or span.of_others:
        return fit(row, width)
    before = f"  before: {usual}"
    room = min(_BAR, width - length(row) - 2 - len(before))
    if room < 0:  # a part of a time reads as another time
        return fit(row, width)
    filled = round(min(1.0, so_far / usual.median if usual.median else 1.0) * room)
    row += [("  ", ""), (glyphs.done * filled, "curve1"), (glyphs.to_do * (room - filled), "track")]
    return fit([*row, (before, "label")], width)


def _object(now: Snapshot, width: int) -> list[Row]:
    """One row about the model while XLA or TensorFlow compiles it."""
    started = now.started
    if started is None or now.phase != "compiling":
        return []
    what = clean(started.option("workload.entry") or started.option("workload.model") or "the model")
    with_xla = started.actual.get("jit_compile") is True or "XLA" in now.phase_detail
    words = [f"{'XLA compiles' if with_xla else 'TensorFlow traces'} {what}"]
    if (parameters := started.actual.get("parameters")) is not None:
        words.append(f"{abbreviated(parameters)} {named(parameters, 'parameters')}")
    if started.global_batch_size is not None:
        words.append(f"batch {count(started.global_batch_size)}")
    return [fit([("    ", ""), (", ".join([*words, *_together(started)]), "label")], width)]


def _together(started: Started) -> list[str]:
    steps = started.actual.get("steps_per_execution") or 1
    parts = [f"{steps} steps in one graph"] if steps > 1 else []
    return parts + ([f"{started.replicas} replicas"] if (started.replicas or 1) > 1 else [])


def _estimate(
    so_far: Mapping[str, float], now: Snapshot, earlier: EarlierStarts, width: int, glyphs: Glyphs
) -> list[Row]:
    """The estimated time to the first step, and the number of earlier starts on which it is based."""
    if not earlier.phases or now.has_trained or waits_for_others(now.phase, now.phase_detail):
        return []
    left = earlier.left(so_far, now.phase)
    soon = f"about {estimate(left)}" if left >= _FEW_SECONDS else "a few seconds"
    text = f"{soon} to the first step" if left > 0 else "longer than usual"
    starts = f"{counted(earlier.runs, 'earlier starts')}"
    text += f": an estimate from {starts} of this preset on this machine"
    lead = f"    {glyphs.hint} "
    lines = textwrap.wrap(text, max(10, width - len(lead)))
    return [fit(row, width) for row in hanging(lines, "label", [(lead, "value")])]


LABEL = 12  # columns of the names
PURPOSE = "It starts by itself, also if you quit, and is then shown here."
RELEASE = "It does not start until it is released, in the runs or by gputui queue release {run}"


def waiting_rows(waiting: Waiting, now: float, width: int, is_new: bool) -> list[Row]:
    """Return the rows about a waiting run: one row for each item of a new run, else one row in all."""
    if not is_new:
        return [fit([(line, "warn")], width) for line in textwrap.wrap(clean(str(waiting)), max(10, width))]
    items = {
        "place": f"{waiting.place} of {waiting.count}" if waiting.place else "",
        "needs": waiting.needs,
        "begins after": waiting.after,
        "has waited": clock(max(0.0, now - waiting.since)),
        "starts": "" if waiting.held else waiting.when or "not known yet",
        "why": waiting.why,
    }
    purpose = RELEASE.format(run=waiting.run) if waiting.held else PURPOSE
    lines = textwrap.wrap(clean(purpose), max(10, width))
    return [[], *named_rows(items, width), [], *(fit([(line, "label")], width) for line in lines)]


def named_rows(texts: Mapping[str, str], width: int) -> list[Row]:
    """Return each text with its name before it, in several rows if it is long; an empty one is left out."""
    drawn: list[Row] = []
    for name, text in texts.items():
        lines = textwrap.wrap(clean(text), max(10, width - LABEL - 2))
        drawn += [fit(row, width) for row in hanging(lines, "value", [(f"{name:<{LABEL}}  ", "label")])]
    return drawn
