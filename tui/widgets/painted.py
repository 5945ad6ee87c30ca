"""The base of every picture: a widget on Textual's Line API that sends only the cells that have changed.

A subclass makes rows of styled pieces. The rendered strips are kept, so that a repaint marks only the span of each line
that differs.
"""

from __future__ import annotations

from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ..base.glyphs import Glyphs, glyphs_of
from ..drawing.rows import Row, differences, fit

STYLES = ("title", "label", "value", "track", "good", "warn", "bad", "curve1", "curve2", "curve3", "curve4")


class Painted(Widget):
    """Subclasses make `rows`; call `repaint` when their content has changed."""

    COMPONENT_CLASSES = {f"painted--{name}" for name in STYLES}
    DEFAULT_CSS = """
    Painted {
        color: $foreground;
        & > .painted--title { color: $foreground; text-style: bold; }
        & > .painted--label { color: $foreground 60%; }
        & > .painted--value { color: $foreground; }
        & > .painted--track { color: $foreground 35%; }
        & > .painted--good { color: $text-success; }
        & > .painted--warn { color: $text-warning; text-style: bold; }
        & > .painted--bad { color: $text-error; text-style: bold; }
        & > .painted--curve1 { color: $primary; }
        & > .painted--curve2 { color: $warning; }
        & > .painted--curve3 { color: $success; }
        & > .painted--curve4 { color: $error; }
    }
    """
    can_focus = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: list[Row] = []
        self._strips: dict[int, Strip] = {}
        self._styles: dict[str, Style] = {}

    @property
    def glyphs(self) -> Glyphs:
        """The characters that the application has chosen for its terminal."""
        return glyphs_of(self.app)

    def rows(self, width: int, height: int) -> list[Row]:
        """The rows to show, at most `height` of them."""
        raise NotImplementedError

    def repaint(self) -> None:
        """Make the rows again and send what differs."""
        width, height = self.size
        if not width or not height:
            return
        rows = [fit(row, width) for row in self.rows(width, height)[:height]]
        if len(rows) != len(self._rows):
            self._rows, self._strips = rows, {}
            self.refresh()
            return
        changed: list[Region] = []
        for y, (old, new) in enumerate(zip(self._rows, rows, strict=True)):
            if spans := differences(old, new):
                changed += [Region(x, y, width, 1) for x, width in spans]
                self._strips.pop(y, None)
        self._rows = rows
        if changed:
            self.refresh(*changed)

    def on_resize(self) -> None:
        self._rows, self._strips = [], {}
        self.repaint()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles.clear()
        self._strips.clear()

    def render_line(self, y: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            strip = self._strips[y] = self._strip(self._rows[y] if y < len(self._rows) else [])
        return strip

    def _strip(self, row: Row) -> Strip:
        segments = [Segment(text, self._style(name)) for text, name in row]
        return Strip(segments).adjust_cell_length(self.size.width, self._style(""))

    def _style(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            known = name in STYLES
            style = self.get_component_rich_style(f"painted--{name}") if known else self.rich_style
            self._styles[name] = style
        return style
