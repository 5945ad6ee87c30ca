"""The parts of the live view as rows: head, messages, summary.

Unknown values are shown as a dash, and foreign text is cleaned.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...engine.figures import LOSS, at, of_run, summed_up
from ...engine.runs.events import waits_for_others
from ...engine.trials import sentences
from ...engine.units import NONE, abbreviated, amount, clock, counted, named, percent, seconds
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..form.state import proposed
from ..reading.epoch_mean import UNFINISHED, of_result
from ..reading.store import Message, Snapshot, number
from ..text.learning_rate import scaled
from ..text.phases import ASKED_FOR, DOING, ENDED, ENDLESS, compiling, is_early
from . import stage, verdict
from .rows import Piece, Row, fit, kept_items, length, spread, whole_words

MFU = of_run("mfu")
NOT_WAITED_FOR = ("training", "ended")


class Named(NamedTuple):
    """What a run is called, and its preset's description."""

    title: str
    id: str
    description: str

    def row(self, width: int, glyphs: Glyphs) -> Row:
        """The title, the id and the description; what does not fit is left out."""
        title, id_, about = clean(self.title), clean(self.id), clean(self.description).replace("\n", " ")
        row: Row = [(whole_words(title, width, glyphs), "title")]
        if title != id_ and length(row) + len(id_) + 2 <= width:
            row.append((f"  {id_}", "label"))
        return [*row, (whole_words(f"  {about}", width - length(row), glyphs), "label")]


def head(named: Named, note: str, now: Snapshot, width: int, glyphs: Glyphs) -> list[Row]:
    """The run, its progress, its settings, and, as soon as training has begun, what limits its speed."""
    right = [("  ", ""), (f"{note}  " if note else "", "warn"), *_state(now, glyphs), (" ", "")]
    left = named.row(width - length(right), glyphs)
    rows = [spread(left, right, width), _progress(now, width, glyphs), _facts(now, width)]
    return [*rows, verdict.line(now, width, glyphs)] if verdict.is_due(now) else rows


def _state(now: Snapshot, glyphs: Glyphs) -> Row:
    if now.outcome is None:
        doing = DOING.get(now.phase, clean(now.phase))
        if now.phase == "compiling":
            doing = compiling(now.phase_detail)
        if waits_for_others(now.phase, now.phase_detail):
            doing = "waiting for other workers"
        if now.phase in NOT_WAITED_FOR:
            return [(doing, "good")]
        if now.phase == stage.READING:
            return [(stage.CATCHING_UP, "label")]
        turn = glyphs.spinner[int(now.elapsed * 5) % len(glyphs.spinner)]
        return [(f"{turn} ", "curve2"), (doing, "value"), (f" {clock(now.phase_seconds):>5}", "value")]
    mark = glyphs.ok if now.outcome == "ok" else glyphs.stopped if now.outcome in ASKED_FOR else glyphs.failed
    style = "good" if now.outcome == "ok" else "warn" if now.outcome in ASKED_FOR else "bad"
    early = is_early(now.outcome, number(now.progress.get("step")), number(now.progress.get("steps")))
    return [(f"{mark} {ENDED.get(now.outcome, clean(now.outcome))}{' early, by a callback' * early}", style)]


def _progress(now: Snapshot, width: int, glyphs: Glyphs) -> Row:
    step, steps = number(now.progress.get("step")), number(now.progress.get("steps"))
    done = step / steps if step is not None and steps else None
    epoch = _of(now.progress.get("epoch"), now.progress.get("epochs"))
    left = [("epoch ", "label"), (epoch, "value"), ("  step ", "label"), (_of(step, steps), "value")]
    if (steps or 0) >= ENDLESS:  # ended by its time
        left, done = [("step ", "label"), (_count(step), "value")], None
    share: list[Row] = [] if done is None and step is not None else [[(f"  {percent(done)}", "value")]]
    right = kept_items([*share, *_times(now)], width - length(left))
    room = max(0, width - length(left) - sum(map(length, right)) - 2)
    filled = round((done or 0) * room)
    bar: Row = [("  ", ""), (glyphs.done * filled, "curve1"), (glyphs.to_do * (room - filled), "track")] if room else []
    return fit([*left, *bar, *(piece for item in right for piece in item)], width)


def _times(now: Snapshot) -> list[Row]:
    elapsed: Row = [(f"{clock(now.elapsed):>9}", "value"), (" elapsed", "label")]
    if now.outcome is not None:
        return [elapsed]
    left = clock(number(now.progress.get("eta_seconds")))
    return [elapsed, [(f"{left:>9}", "value"), (" left", "label")]]


def _of(part: Any, whole: Any) -> str:
    """` 12/300`, in the width that it will need at the end."""
    most = amount(number(whole))
    return f"{_count(part):>{len(_count(whole))}}/{_count(whole)}" if most != "-" else "-"


def _count(value: Any) -> str:
    return "-" if number(value) is None else f"{value:,.0f}"


def _facts(now: Snapshot, width: int) -> Row:
    """What is trained on what data and devices, and the cost of the first step."""
    started = now.started
    parts: list[str] = []
    if started:
        versions = started.get("versions") if isinstance(started.get("versions"), Mapping) else {}
        parts.append(f"TensorFlow {clean((versions or {}).get('tensorflow', '-'))}")
        parts.append(_devices(started))
        parts += _together(started)
        parts.append(f"batch {_count(started.get('global_batch_size'))}")
        parts += filter(None, [scaled(started)])
    reached = number(now.progress.get(MFU.progress)) if now.outcome is None else None
    if reached is not None:
        parts.append(f"{MFU.label} {percent(reached)}")
    if now.first_step_seconds is not None:
        parts.append(f"first step (tracing, compiling) {seconds(now.first_step_seconds)}")
    actual = started.get("actual")
    parameters = number(actual.get("parameters")) if isinstance(actual, Mapping) else None
    if parameters is not None:
        parts.append(f"{abbreviated(parameters)} {named(parameters, 'parameters')}")
    while len(", ".join(parts)) > width and len(parts) > 1:
        parts.pop()
    return fit([(", ".join(parts), "label")], width)


def _together(started: Mapping[str, Any]) -> list[str]:
    """Of a training on several machines, which worker this is, and how many replicas all of them train."""
    workers, index = started.get("workers"), number(started.get("worker"))
    if not isinstance(workers, list | tuple) or not workers or index is None:
        return []
    replicas = number(started.get("replicas"))
    return [f"worker {index:.0f} of {len(workers)}", f"{_count(replicas)} {named(replicas, 'replicas')} on all"]


def _devices(started: Mapping[str, Any]) -> str:
    names = started.get("devices")
    kinds = [clean(name).split("device:")[-1].partition(":")[0] for name in names] if isinstance(names, list) else []
    return f"{len(kinds)} {kinds[0]}s" if len(kinds) > 1 else kinds[0] if kinds else "-"


def messages(now: Snapshot, width: int, height: int, glyphs: Glyphs, apply_key: str = "") -> list[Row]:
    """The error that ended the run with its hint, then warnings, the newest last; counts those without room.

    `apply_key` puts what the hint proposes into the form.
    """
    rows = error(now, width, glyphs, apply_key)
    warnings = [_message(warning, glyphs.warn, "warn", width, glyphs) for warning in now.warnings]
    room = height - len(rows)
    if sum(map(len, warnings)) <= room:
        return [*rows, *(row for warning in warnings for row in warning)]
    newest = [warning[0] for warning in warnings[max(0, len(warnings) - room) :]] if room > 0 else []
    hidden = f"  {counted(len(warnings), 'warnings')}: m shows all"
    newest[-1:] = [spread(row, [(hidden, "label")], width) for row in newest[-1:]]
    return (rows + newest)[:height]


def error(now: Snapshot, width: int, glyphs: Glyphs, apply_key: str = "") -> list[Row]:
    """The error that ended the run, its hint, and the key that puts what that proposes into the form."""
    if now.error is None:
        return []
    return _with_offer(_message(now.error, glyphs.failed, "bad", width, glyphs), now.error.hint, apply_key, width)


def _with_offer(rows: list[Row], hint: str, apply_key: str, width: int) -> list[Row]:
    """With what the key sets, behind the hint or below it."""
    changes = proposed(hint) if apply_key else {}
    if not changes:
        return rows
    told: Row = [(apply_key, "title"), (f" puts {clean(sentences.changes(changes))} into the form", "value")]
    if length(rows[-1]) + 2 + length(told) <= width:
        return [*rows[:-1], [*rows[-1], ("  ", ""), *told]]
    return [*rows, fit([("  ", ""), *told], width)]


def _message(message: Message, mark: str, style: str, width: int, glyphs: Glyphs) -> list[Row]:
    names_it = message.message.startswith(message.option)
    about = "" if names_it else f"{message.option}: "
    rows: list[Row] = []
    for text, sign, look in ((about + message.message, mark, style), (message.hint, glyphs.hint, "value")):
        for number_, line in enumerate(wrapped(text, width - len(sign) - 2)):
            lead: Piece = (f"{sign} " if number_ == 0 else " " * (len(sign) + 1), style)
            rows.append([lead, (line, look)])
    return rows


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters, without control characters."""
    return [line for part in clean(text).split("\n") for line in textwrap.wrap(part, max(10, width))]


def _names_of_devices(now: Snapshot) -> list[str]:
    told = now.started.get("devices")
    return [str(name) for name in told] if isinstance(told, list | tuple) else []


def summary_items(now: Snapshot) -> list[tuple[str, str]]:
    """The results of a finished run."""
    of = now.summary
    items = {figure: figure.item(at(of, figure.key)) for figure in summed_up(_names_of_devices(now))}
    if of_result(of).steps == UNFINISHED:
        items[LOSS] = (f"{LOSS.name} so far", items[LOSS][1])
    return [(name, value) for name, value in items.values() if value != NONE]


SUMMARY_CELL = 24


def summary(now: Snapshot, width: int) -> list[Row]:
    """The items side by side, in columns."""
    items = summary_items(now)
    cell = max([SUMMARY_CELL, *(max(len(label), 12) + max(len(value), 9) + 2 for label, value in items)])
    columns = max(1, width // cell)
    cell = width // columns
    rows: list[Row] = []
    widths = [_label_width(items[column::columns], cell) for column in range(columns)]
    for start in range(0, len(items), columns):
        row: Row = []
        for (label, value), broad in zip(items[start : start + columns], widths, strict=False):
            row += fit([(f"{label:<{broad}}", "label"), (f"{value:>9}", "value")], cell)
        rows.append(row)
    return rows


def _label_width(items: list[tuple[str, str]], cell: int) -> int:
    """Of the labels below each other, so that their values end below each other, too, where there is room for that."""
    widest = max([12, *(len(label) for label, _ in items)])
    return widest if widest + max([9, *(len(value) for _, value in items)]) < cell else 12


def summary_height(now: Snapshot, width: int) -> int:
    return len(summary(now, width)) if now.summary else 0
