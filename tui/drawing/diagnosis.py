"""The full diagnosis of a run as rows: verdict, evidence, input stages as bars, remedies in their order. The figures
come from engine/diagnosis. Foreign text is cleaned, and missing values are left out."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from ...engine.diagnosis import label
from ...engine.diagnosis.measurements import stage_ms
from ...engine.figures import evidence, of_run
from ...engine.runs.events import Diagnosis, InputStages
from ...engine.trials import proof_sentences
from ...engine.units import NONE, counted, share, times
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.run.snapshot import Snapshot
from ..wording.run import next_step
from .live.head import confidence, error, mark, sentence
from .rows import Row, fit, fitting, gauge, hanging, headline, length

SIGNAL, WIDE_SIGNAL, VALUE, THRESHOLD, WIDE_SOURCE = 16, 24, 10, 11, 42
WIDE = 140  # from this width on the explanation of a figure stands in the same row
NARROW = 100  # below this width the names are shorter
_STAGE_WORDS = {"pass": "epochs"}  # the stage that begins each pass over the data
STAGE, OPERATION, FIGURE = 10, 22, 9
FILLING = 2.0  # times the step: the mean time of a stage that is longer includes more than steady work
ROOMY = 70  # cells for a stage, below which TensorFlow's name of it is left out


def rows(diagnosis: Diagnosis, now: Snapshot, width: int, glyphs: Glyphs, step_ms: float | None = None) -> list[Row]:
    """Return the diagnosis: error, verdict, remedies (early, to be seen without scrolling), evidence, stages."""
    parts = (
        _verdict(diagnosis, now.diagnosed_before_resume, width, glyphs),
        _remedies(diagnosis, width, glyphs) if diagnosis.remedies or now.error is None else [],
        _evidence(diagnosis, width, glyphs),
        stage_rows(now.input_stages, diagnosis.verdict == "input_bound", step_ms, width, glyphs),
    )
    judgement = clean(diagnosis.learning)
    drawn = error(now, width, glyphs)
    drawn += _wrapped(f"{glyphs.warn} {judgement}", width, 0, "warn") if judgement else []
    drawn += _wrapped(diagnosis.learning_remedy, width, 2, "value")
    for part in parts:
        drawn += ([[]] if drawn and part else []) + part
    return drawn


def _wrapped(text: str, width: int, indent: int, style: str) -> list[Row]:
    return hanging(textwrap.wrap(clean(text), max(10, width - indent)), style, [(" " * indent, "")])


# ---- the verdict -----------------------------------------------------------------------------------


def _verdict(diagnosis: Diagnosis, before_resume: bool, width: int, glyphs: Glyphs) -> list[Row]:
    sign = mark(diagnosis, glyphs)
    indent = length([sign]) + 1
    lines = hanging(textwrap.wrap(sentence(diagnosis), max(10, width - indent)), "title", [sign, (" ", "")])
    on = f"from {counted(diagnosis.steps, of_run('measured_steps').label)}" if diagnosis.steps else ""
    rests_on = ", ".join(filter(None, (confidence(diagnosis, before_resume), on)))
    lines += [[(" " * indent, ""), (rests_on, "label")]] if rests_on else []
    names = [clean(label(name)) for name in diagnosis.others]
    if names:
        listed = ", ".join(name[:1].lower() + name[1:] for name in names)
        lines += _wrapped(f"also found, but weaker: {listed}", width, indent, "value")
    return lines


# ---- the evidence ----------------------------------------------------------------------------------


def _evidence(diagnosis: Diagnosis, width: int, glyphs: Glyphs) -> list[Row]:
    """Each figure, its threshold with the source, and the same in words, next to it if there is room, else below it."""
    if not diagnosis.evidence:
        return []
    wide, name = width >= WIDE, WIDE_SIGNAL if width >= NARROW else SIGNAL
    room = WIDE_SOURCE + 2 if wide else max(10, width - name - VALUE - THRESHOLD - 2)
    heads: Row = [(f"{'measured':>{VALUE}}{'threshold':>{THRESHOLD}}  {'source':<{room}}", "label")]
    drawn = [[*fit([("evidence", "title")], name), *heads, *([("says", "label")] if wide else [])]]
    for piece in diagnosis.evidence:
        figure = evidence(piece["signal"] or NONE, piece["unit"])
        signal = fitting(clean(figure.label), name - 1, glyphs)
        source = fitting(clean(piece["source"] or NONE), room - 2 * wide, glyphs)
        row: Row = [
            (f"{signal:<{name}}", "value"),
            (f"{figure.text(piece['value']):>{VALUE}}", "title"),
            (f"{figure.text(piece['threshold']):>{THRESHOLD}}", "value"),
            (f"  {source:<{room}}", "label"),
        ]
        text = clean(piece["text"])
        row += [(fitting(text, width - length(row), glyphs), "value")] if wide else []
        drawn += [row, *([] if wide else _wrapped(text, width, 2, "label"))]
    return drawn


# ---- the input -------------------------------------------------------------------------------------


def stage_rows(event: InputStages | None, warns: bool, step_ms: float | None, width: int, glyphs: Glyphs) -> list[Row]:
    """Return the stages, which work at the same time: the sum of their times has no meaning."""
    if event is None or not event.stages:
        return []
    listed, fill = event.stages, event.buffer_fill
    right: Row = [("  prefetch buffer ", "label"), (f"{share(fill)} full", "value")] if fill is not None else []
    head: Row = [("input stages", "title"), ("  time from one batch to the next", "label")]
    out = [headline(head, right, width, glyphs.rule)]
    times = [stage_ms(stage) for stage in listed]
    most = max(time or 0.0 for time in (*times, step_ms))
    slowest = max(time or 0.0 for time in times)
    calls = [_calls(stage, width) for stage in listed]
    room = width - max(map(len, calls))
    for stage, time, calls_text in zip(listed, times, calls, strict=True):
        style = "" if not time or time < slowest else "warn" if warns else "value"
        out.append([*_stage(stage, time, most, style, room, glyphs), (calls_text, "label")])
    if step_ms is not None:
        out.append(_stage({"name": "step", "op": "the training"}, step_ms, most, "", room, glyphs, bar="curve2"))
        if slowest > FILLING * step_ms:  # the mean of a steady pipeline cannot be so much longer
            out.append([("  longer than a step: this includes the start, when buffers are filled", "label")])
    return out


def _stage(
    stage: Mapping[str, Any],
    time: float | None,
    most: float,
    slowest: str,
    width: int,
    glyphs: Glyphs,
    bar: str = "curve1",
) -> Row:
    """The row of an input stage, whose time for a batch is `time` ms; a full bar means `most` ms."""
    name = clean(stage.get("name") or NONE)
    name = fitting(_STAGE_WORDS.get(name, name), STAGE - 1, glyphs)
    operation = fitting(clean(stage.get("op") or ""), OPERATION - 1, glyphs)
    sign = glyphs.warn if slowest == "warn" else " " * len(glyphs.warn)
    tail: Row = [
        (f"{_ms(time):>{FIGURE}} {'ms' if time is not None else '  '} ", "title" if slowest else "value"),
        (f"{sign} slowest " if slowest else " " * (9 + len(sign)), slowest),
    ]
    lead: Row = [(f"{name:<{STAGE}}", "value"), *([(f"{operation:<{OPERATION}}", "label")] if width >= ROOMY else [])]
    room = max(4, width - length(lead) - length(tail))
    style = "warn" if slowest == "warn" else bar
    drawn = [(" " * room, "")] if time is None else gauge(room, time, most or 1.0, glyphs, style=style)
    return [*lead, *drawn, *tail]


def _calls(stage: Mapping[str, Any], width: int) -> str:
    parallel = stage.get("parallelism")
    if parallel is None or parallel <= 1:
        return ""
    several = f"{parallel:.0f} at a time"
    return f"{several}: {_ms(stage['ms_per_batch'])} ms of work" if width >= NARROW else several


def _ms(time: float | None) -> str:
    return NONE if time is None else f"{time:,.1f}" if time >= 0.05 else "<0.1"


# ---- what to do ------------------------------------------------------------------------------------


def changing(diagnosis: Diagnosis | None) -> list[Mapping[str, Any]]:
    return [remedy for remedy in diagnosis.remedies if remedy["changes"]] if diagnosis else []


def _remedies(diagnosis: Diagnosis, width: int, glyphs: Glyphs) -> list[Row]:
    if not diagnosis.remedies:
        return _wrapped(next_step(diagnosis), width, 0, "label")
    changes = changing(diagnosis)
    advice = [remedy for remedy in diagnosis.remedies if not remedy["changes"]]
    which = "1 puts it" if len(changes) == 1 else f"1 to {min(len(changes), 9)} put one"
    keys: Row = [(f" {which} into the form", "label")] if changes else []
    out = [headline([("remedies", "title"), ("  in the order to try them", "label")], keys, width, glyphs.rule)]
    for order, remedy in enumerate(changes, 1):  # its changes with the greatest possible gain, below them the reason
        gain = remedy.get("expected_gain")
        most = f"at most {times(gain)} as fast" if gain is not None else "gain unknown until measured"
        learns = ", changes what is learnt" if remedy.get("changes_learning") else ""
        lead: Row = [(f"{order:>2} ", "label"), (clean(proof_sentences.changes(remedy["changes"])), "title")]
        row = [*lead, (f"  {most}", "value"), (learns, "warn")]
        below = length(row) > width
        out += [lead, *_wrapped(f"{most}{learns}", width, 3, "value")] if below else [row]
        out += _wrapped(remedy["reason"], width, 3, "label")
    for remedy in advice:
        lines = textwrap.wrap(clean(remedy["reason"]), max(10, width - 3))
        out += hanging(lines, "value", [(f"{glyphs.hint:<3}", "label")])
    out += [[(f"   {clean(line)}", "title")] for line in proof_sentences.code_of(diagnosis.remedies)]
    return out
