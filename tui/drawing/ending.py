"""The mark and the style of an end: done, stopped on request, or failed. A stop is no failure, and looks neutral."""

from __future__ import annotations

from ..base.glyphs import Glyphs
from ..wording.run import ASKED_FOR
from .rows import Piece


def ending(state: str | None, glyphs: Glyphs) -> Piece:
    if state in ("ok", "done"):
        return glyphs.ok, "good"
    return (glyphs.stopped, "value") if state in ASKED_FOR else (glyphs.failed, "bad")
