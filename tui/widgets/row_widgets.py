"""Widgets made of rows of styled pieces, which send only the cells that have changed. `Painted`, on Textual's Line API,
keeps the rendered strips, so that a repaint marks only the span of each line that differs."""

from __future__ import annotations

from collections.abc import Callable

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.color import Color
from textual.containers import VerticalScroll
from textual.geometry import Region
from textual.strip import Strip
from textual.widget import Widget

from ..base import keys
from ..base.glyphs import Glyphs, glyphs_of
from ..drawing.rows import Row, differences, edged, fit

STYLES = (
    "title", "label", "value", "track", "good", "warn", "bad", "grid", "cursor", "fill1", "here", "badge", "edge",
    "moderate", "heavy", "curve1", "faint1",
)  # fmt: skip


EDGED_FROM = 4  # rows


class Painted(Widget):
    """The base of painted widgets. Subclasses return `rows`, and call `repaint` after they have changed."""

    COMPONENT_CLASSES = {f"painted--{name}" for name in STYLES}
    DEFAULT_CSS = """
    Painted {
        color: $foreground;
        & > .painted--title { color: $foreground; text-style: bold; }
        & > .painted--label { color: $foreground-muted; }
        & > .painted--value { color: $foreground; }
        & > .painted--track { color: $foreground 35%; }
        & > .painted--good { color: $text-success; }
        & > .painted--warn { color: $text-warning; text-style: bold; }
        & > .painted--bad { color: $text-error; text-style: bold; }
        & > .painted--curve1 { color: $primary; }
        & > .painted--moderate { color: $moderate; }
        & > .painted--heavy { color: $heavy; }
        & > .painted--edge { color: $border; }
        & > .painted--here { color: $text-primary; background: $here; text-style: bold; }
        & > .painted--badge { color: $text-success; text-style: bold; }
        & > .painted--faint1 { color: $primary 40%; }
        & > .painted--fill1 { color: $primary 25%; }
        & > .painted--grid { color: $grid; }
        & > .painted--cursor { color: $foreground; }
    }
    """
    can_focus = False

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._rows: list[Row] = []
        self._width = self._height = 0  # that the rows were made for
        self._strips: dict[int, Strip] = {}
        self._styles: dict[str, Style] = {}
        self.has_edge = False  # the first of its rows is then a headline in the upper edge

    @property
    def glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    def rows(self, width: int, height: int) -> list[Row]:
        raise NotImplementedError

    def repaint(self) -> None:
        """Make the rows again, and send only the cells that have changed to the terminal."""
        width, height = self.size
        if not width or not height:
            return
        self._height = height
        if self.is_edged and any(rows := self.rows(width - 2, height - 1)):
            rows = edged(rows, width - 2, self.glyphs)
        else:
            rows = [fit(row, width) for row in self.rows(width, height)]
        rows = rows[:height]
        if len(rows) != len(self._rows) or width != self._width:
            self._rows, self._strips, self._width = rows, {}, width
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

    @property
    def is_edged(self) -> bool:
        """True if the widget has an edge now: it has at least EDGED_FROM rows, and `has_edge` is set."""
        return self.has_edge and self.size.height >= EDGED_FROM

    def on_resize(self) -> None:
        self._rows, self._strips = [], {}
        self.repaint()

    def notify_style_update(self) -> None:
        super().notify_style_update()
        self._styles.clear()
        self._strips.clear()

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the kept strips of `crop`. Textual's method would make several new strips for each line."""
        if (self._width, self._height) != self.size:  # Textual (8.2) sends no Resize for some layouts
            self.call_next(self.repaint)
        if self.styles.gutter:
            return super().render_lines(crop)
        width, (begin, end) = self.size.width, crop.column_span
        strips = [self._line(y, width) for y in crop.line_range]
        return strips if (begin, end) == (0, width) else [strip.crop(begin, end) for strip in strips]

    def render_line(self, y: int) -> Strip:
        return self._line(y, self.size.width)

    def _line(self, y: int, width: int) -> Strip:
        strip = self._strips.get(y)
        if strip is None:
            row = self._rows[y] if y < len(self._rows) else []
            styles = self._styles
            segments = [Segment(text, styles[name] if name in styles else self._style(name)) for text, name in row]
            made = Strip(segments, self._width if row else 0)
            fits = bool(row) and self._width == width
            strip = self._strips[y] = made if fits else made.adjust_cell_length(width, self._style(""))
        return strip

    def _style(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None and name.startswith("#"):  # pixels: too many to be kept
            return self._filtered(Style.parse(name))
        if style is None:
            has_class = name in STYLES
            style = self.get_component_rich_style(f"painted--{name}") if has_class else self._further_curve(name)
            style = self._styles[name] = self._filtered(style)
        return style

    def _further_curve(self, name: str) -> Style:
        """From the second on without a component class: Textual computes the styles of all classes per widget."""
        is_faint = name.startswith("faint")
        curve = name.replace("faint", "curve")
        if not curve.startswith("curve") or curve not in self.app.theme_variables:
            return self.rich_style
        ink = Color.parse(self.app.theme_variables[curve])
        if is_faint:
            ink = self.background_colors[1].blend(ink, 0.4)
        return self.rich_style + Style(color=ink.rich_color)

    def _filtered(self, style: Style) -> Style:
        # For terminals with no colours or their own colours.
        segments = [Segment(" ", style)]
        for line_filter in self.get_line_filters():
            segments = line_filter.apply(segments, self.background_colors[1])
        return segments[0].style or style


class Panel(Painted):
    """Shows the rows that `make(width, height)` returns. Call `repaint` after their content has changed."""

    DEFAULT_CSS = "Panel { height: 1; }"

    def __init__(self, make: Callable[[int, int], list[Row]], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._make = make

    def rows(self, width: int, height: int) -> list[Row]:
        return self._make(width, height)


class Page(VerticalScroll):
    """Shows all rows that `make(width)` returns, and scrolls. Call `repaint` after their content has changed."""

    BINDINGS = keys.scrolls()
    DEFAULT_CSS = """
    Page { height: 1fr; scrollbar-size-vertical: 1; scrollbar-gutter: stable; }
    """

    def __init__(self, make: Callable[[int], list[Row]], *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._make = make
        self._made: list[Row] = []

    def compose(self) -> ComposeResult:
        yield Panel(lambda _width, _height: self._made)

    def on_resize(self) -> None:
        self.repaint()

    def repaint(self) -> None:
        """Make the rows again. The scroll position stays."""
        width = self.scrollable_content_region.width
        if width > 0:
            panel, self._made = self.query_one(Panel), self._make(width)
            panel.styles.height = max(1, len(self._made))
            panel.repaint()
