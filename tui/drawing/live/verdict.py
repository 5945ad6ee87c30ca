"""The diagnosis of a run in one line, for the head of the live view: what limits the speed, and how certain that is.

The full diagnosis is in diagnosis.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ....engine.files.values import number
from ....engine.runs.events import LATER_COMPILING
from ...base.errors import clean
from ...base.glyphs import Glyphs
from ...reading.run.snapshot import Snapshot
from ...reading.run.store import BEFORE_RESUME
from ..rows import Piece, Row, fit, length, whole_words

SURE, LIKELY = 0.8, 0.55
MEASURING = "measuring what holds the training back ..."
_BEGUN = ("training", "evaluating", "saving")


def is_due(now: Snapshot) -> bool:
    """Whether the run has a diagnosis, or training has begun so that a diagnosis will follow."""
    compiles_again = now.phase == "compiling" and now.phase_detail in LATER_COMPILING
    return bool(now.diagnosis) or (now.outcome is None and (now.phase in _BEGUN or compiles_again))


def line(now: Snapshot, width: int, glyphs: Glyphs) -> Row:
    """One row: the sign of the verdict, its sentence and its certainty. Without a diagnosis: a text that says it is
    being measured.
    """
    if not now.diagnosis:
        return [(MEASURING, "label")]
    sign, sure = mark(now.diagnosis, glyphs), confidence(now.diagnosis)
    after: Row = [(f" ({sure})", "label")] if sure else []
    text = whole_words(sentence(now.diagnosis), width - length([sign]) - 1 - length(after), glyphs)
    return fit([sign, (" ", ""), (text, "value"), *after], width)


def sentence(diagnosis: Mapping[str, Any]) -> str:
    return clean(diagnosis.get("sentence") or diagnosis.get("verdict") or "-").replace("\n", " ")


def is_open(diagnosis: Mapping[str, Any]) -> bool:
    """Whether the diagnosis has no verdict yet."""
    return diagnosis.get("verdict") in (None, "undecided")


def mark(diagnosis: Mapping[str, Any], glyphs: Glyphs) -> Piece:
    """The sign of the verdict and the sign's style."""
    if diagnosis.get("verdict") == "healthy":
        return glyphs.ok, "good"
    return (glyphs.more, "label") if is_open(diagnosis) else (glyphs.warn, "warn")


def confidence(diagnosis: Mapping[str, Any]) -> str:
    """The certainty of the verdict in a word; empty if there is no verdict."""
    value = number(diagnosis.get("confidence"))
    if value is None or is_open(diagnosis):
        return ""
    if diagnosis.get(BEFORE_RESUME):
        return "before it was resumed"
    return "sure" if value >= SURE else "likely" if value >= LIKELY else "preliminary"
