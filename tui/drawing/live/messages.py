"""The messages of a run as rows: the error that ended it, with its hint, and its warnings."""

from __future__ import annotations

import textwrap

from ....engine.trials import sentences
from ....engine.units import counted
from ...base.errors import clean
from ...base.glyphs import Glyphs
from ...form.state import proposed
from ...reading.run.snapshot import Message, Snapshot
from ..rows import Piece, Row, fit, length, spread


def rows(now: Snapshot, width: int, height: int, glyphs: Glyphs, apply_key: str = "") -> list[Row]:
    """The error that ended the run with its hint, then the warnings, the newest last. Warnings without room are
    counted.

    `apply_key` is the key that puts the values proposed by the hint into the form.
    """
    drawn = error(now, width, glyphs, apply_key)
    warnings = [_message(warning, glyphs.warn, "warn", width, glyphs) for warning in now.warnings]
    room = height - len(drawn)
    if sum(map(len, warnings)) <= room:
        return [*drawn, *(row for warning in warnings for row in warning)]
    newest = [warning[0] for warning in warnings[max(0, len(warnings) - room) :]] if room > 0 else []
    hidden = f"  {counted(len(warnings), 'warnings')}: m shows all"
    newest[-1:] = [spread(row, [(hidden, "label")], width) for row in newest[-1:]]
    return (drawn + newest)[:height]


def error(now: Snapshot, width: int, glyphs: Glyphs, apply_key: str = "") -> list[Row]:
    """The error that ended the run, its hint, and the key that puts the values proposed by the hint into the form.
    Empty without an error.
    """
    if now.error is None:
        return []
    return _with_offer(_message(now.error, glyphs.failed, "bad", width, glyphs), now.error.hint, apply_key, width)


def _with_offer(rows: list[Row], hint: str, apply_key: str, width: int) -> list[Row]:
    """The rows, followed by the key and the values that it puts into the form: after the hint if they fit, else in a
    row below it. Unchanged if the hint proposes no values.
    """
    changes = proposed(hint) if apply_key else {}
    if not changes:
        return rows
    offer: Row = [(apply_key, "title"), (f" puts {clean(sentences.changes(changes))} into the form", "value")]
    if length(rows[-1]) + 2 + length(offer) <= width:
        return [*rows[:-1], [*rows[-1], ("  ", ""), *offer]]
    return [*rows, fit([("  ", ""), *offer], width)]


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
    """The text as lines of at most `width` characters, without control characters."""
    return [line for part in clean(text).split("\n") for line in textwrap.wrap(part, max(10, width))]
