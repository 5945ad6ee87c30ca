"""The parts of the live view as rows: head, messages, summary.

Unknown values are shown as a dash, and foreign text is cleaned.
"""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from ...engine.figures import LOSS, at, shown
from ...engine.text import NONE, abbreviated, amount, clock, percent, seconds
from ..base.errors import clean
from ..base.glyphs import Glyphs
from ..reading.epoch_mean import UNFINISHED, of_result
from ..reading.store import Message, Snapshot, number
from ..text.phases import DOING, ENDED, compiling
from . import verdict
from .rows import Piece, Row, fit, length, spread

NOT_WAITED_FOR = ("training", "ended")


def head(name: str, description: str, note: str, now: Snapshot, width: int, glyphs: Glyphs) -> list[Row]:
    """The run, its progress, its settings, and, as soon as training has begun, what limits its speed."""
    left = [(clean(name), "title"), ("  " + clean(description).replace("\n", " "), "label")]
    right = [("  ", ""), (f"{note}  " if note else "", "warn"), *_state(now, glyphs), (" ", "")]
    rows = [spread(left, right, width), _progress(now, width, glyphs), _facts(now, width)]
    return [*rows, verdict.line(now, width, glyphs)] if verdict.is_due(now) else rows


def _state(now: Snapshot, glyphs: Glyphs) -> Row:
    if now.outcome is None:
        doing = DOING.get(now.phase, clean(now.phase))
        if now.phase == "compiling":
            doing = compiling(now.phase_detail)
        if now.phase in NOT_WAITED_FOR:
            return [(doing, "good")]
        turn = glyphs.spinner[int(now.elapsed * 5) % len(glyphs.spinner)]
        return [(f"{turn} ", "curve2"), (doing, "value"), (f" {clock(now.phase_seconds):>5}", "value")]
    mark, style = (glyphs.ok, "good") if now.outcome == "ok" else (glyphs.failed, "bad")
    return [(f"{mark} {ENDED.get(now.outcome, clean(now.outcome))}", style)]


def _progress(now: Snapshot, width: int, glyphs: Glyphs) -> Row:
    step, steps = number(now.progress.get("step")), number(now.progress.get("steps"))
    done = step / steps if step is not None and steps else None
    left = [("epoch ", "label"), (_of(now.progress.get("epoch"), now.progress.get("epochs")), "value")]
    left += [("  step ", "label"), (_of(step, steps), "value"), ("  ", "")]
    right = [(f" {percent(done)}  ", "value"), (f"{clock(now.elapsed):>7}", "value"), (" elapsed", "label")]
    if now.outcome is None:
        eta = number(now.progress.get("eta_seconds"))
        right += [(f" {clock(eta):>7}", "value"), (" left ", "label")]
    room = max(0, width - length(left) - length(right))
    filled = round((done or 0) * room)
    return fit([*left, (glyphs.done * filled, "curve1"), (glyphs.to_do * (room - filled), "track"), *right], width)


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
        parts.append(f"batch {_count(started.get('global_batch_size'))}")
    if now.first_step_seconds is not None:
        parts.append(f"first step (tracing, compiling) {seconds(now.first_step_seconds)}")
    actual = started.get("actual")
    parameters = number(actual.get("parameters")) if isinstance(actual, Mapping) else None
    if parameters is not None:
        parts.append(f"{abbreviated(parameters)} parameters")
    while len(", ".join(parts)) > width and len(parts) > 1:
        parts.pop()
    return fit([(", ".join(parts), "label")], width)


def _devices(started: Mapping[str, Any]) -> str:
    names = started.get("devices")
    kinds = [clean(name).split("device:")[-1].partition(":")[0] for name in names] if isinstance(names, list) else []
    return f"{len(kinds)} {kinds[0]}s" if len(kinds) > 1 else kinds[0] if kinds else "-"


def messages(now: Snapshot, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """The error that ended the run with its hint, then warnings, the newest last; counts those without room."""
    rows: list[Row] = []
    if now.error is not None:
        rows += _message(now.error, glyphs.failed, "bad", width, glyphs)
    warnings = [_message(warning, glyphs.warn, "warn", width, glyphs) for warning in now.warnings]
    room = height - len(rows)
    if sum(map(len, warnings)) <= room:
        return [*rows, *(row for warning in warnings for row in warning)]
    newest = [warning[0] for warning in warnings[max(0, len(warnings) - room) :]] if room > 0 else []
    hidden = f"  {_counted(len(warnings), 'warning')}: w shows all"
    newest[-1:] = [spread(row, [(hidden, "label")], width) for row in newest[-1:]]
    return (rows + newest)[:height]


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" + ("s" if count != 1 else "")


def _message(message: Message, mark: str, style: str, width: int, glyphs: Glyphs) -> list[Row]:
    about = f"{message.option}: " if message.option else ""
    rows: list[Row] = []
    for text, sign, look in ((about + message.message, mark, style), (message.hint, glyphs.hint, "value")):
        for number_, line in enumerate(wrapped(text, width - len(sign) - 2)):
            lead: Piece = (f"{sign} " if number_ == 0 else " " * (len(sign) + 1), style)
            rows.append([lead, (line, look)])
    return rows


def wrapped(text: str, width: int) -> list[str]:
    """Lines of at most `width` characters, without control characters."""
    return [line for part in clean(text).split("\n") for line in textwrap.wrap(part, max(10, width))]


def summary_items(now: Snapshot) -> list[tuple[str, str]]:
    """The results of a finished run."""
    of = now.summary
    items = {figure: figure.item(at(of, figure.key)) for figure in shown("summary")}
    if of_result(of).steps == UNFINISHED:
        items[LOSS] = (f"{LOSS.name} so far", items[LOSS][1])
    return [(name, value) for name, value in items.values() if value != NONE]


SUMMARY_CELL = 24


def summary(now: Snapshot, width: int) -> list[Row]:
    """The items side by side, in columns."""
    items = summary_items(now)
    columns = max(1, width // SUMMARY_CELL)
    cell = width // columns
    rows: list[Row] = []
    for start in range(0, len(items), columns):
        row: Row = []
        for label, value in items[start : start + columns]:
            row += fit([(f"{label:<12}", "label"), (f"{value:>9}", "value")], cell)
        rows.append(row)
    return rows


def summary_height(now: Snapshot, width: int) -> int:
    return len(summary(now, width)) if now.summary else 0
