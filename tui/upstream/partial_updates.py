"""Writes partial updates of the screen in few bytes, for views that change constantly over a slow line. Textual (8.2)
sends every changed line from the left edge of its widget on, and repeats the colours with each piece: for a live view
of 120 x 40 some 15 kB a second. This sends only the changed cells, and each look once: about a tenth of the bytes.
Waits for a compositor that does so. It relies on private parts of textual/_compositor.py: `Screen._compositor`, used
for nothing before the screen is composed; `Compositor.render_partial_update`, whose update has the `spans` of changed
cells and, for each line, the strips (`chops`) that cover it with their ends; the application writes what its
`render_segments` returns. And on `Strip.render_ansi` for the codes of a style. `tests/tui/test_painting.py` compares
with the output of Rich itself."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.style import Style
from textual._compositor import ChopsUpdate, Compositor
from textual.screen import Screen
from textual.strip import Strip

_PLAIN = Style()


def send_changed_cells(screen: Screen[Any]) -> None:
    """Make a screen send only changed cells in its partial updates. To be called before the screen is composed."""
    screen._compositor = ChangedCellsCompositor()


class ChangedCellsCompositor(Compositor):
    """Textual's compositor, except that its partial updates contain only changed cells."""

    def render_partial_update(self) -> ChopsUpdate | None:
        update = super().render_partial_update()
        return ChangedCellsUpdate(update.chops, update.spans, update.chop_ends) if update is not None else None


class ChangedCellsUpdate(ChopsUpdate):
    """An update that writes only the cells of its spans, in the order of their looks: they do not overlap."""

    def render_segments(self, console: Console) -> str:
        system = console._color_system
        by_look: dict[str, list[str]] = {}
        for y, first, last in self.spans:
            for end, (begin, strip) in zip(self.chop_ends[y], self.chops[y].items(), strict=False):
                x, after = max(begin, first), min(end, last)
                if strip is None or x >= after:
                    continue
                for segment in strip.crop(x - begin, after - begin):
                    look = Strip.render_ansi(segment.style or _PLAIN, system) if system is not None else ""
                    by_look.setdefault(look, []).append(f"\x1b[{y + 1};{x + 1}H{segment.text}")
                    x += segment.cell_length
        return "".join(f"\x1b[0;{look}m{''.join(texts)}" for look, texts in by_look.items()) + "\x1b[0m"
