"""The end of a log, with search: the newest line stays in view until the user scrolls up."""

from __future__ import annotations

from typing import Any

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.geometry import Size
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Input

from ..drawing.rows import Row, headline
from .painted import Painted


class LogLines(ScrollView, can_focus=True):
    """Lines of text on Textual's Line API; only visible lines are rendered."""

    DEFAULT_CSS = """
    LogLines { height: 1fr; color: $foreground 80%; scrollbar-size: 1 1; scrollbar-size-horizontal: 0; }
    LogLines > .log--found { text-style: reverse; }
    """
    COMPONENT_CLASSES = {"log--found"}

    def __init__(self) -> None:
        super().__init__()
        self.lines: tuple[str, ...] = ()
        self.sought = ""
        self.found: list[int] = []
        self.at = -1
        self.follows = True

    def show(self, lines: tuple[str, ...]) -> None:
        if lines is self.lines:
            return
        self.lines = lines
        self.virtual_size = Size(max((len(line) for line in lines), default=0), len(lines))
        if self.sought:
            self._search()
        if self.follows:
            self.scroll_end(animate=False)
        self.refresh()

    def on_resize(self) -> None:
        if self.follows:
            self.scroll_end(animate=False)

    def _scroll_to(self, x: float | None = None, y: float | None = None, **how: Any) -> bool:
        """Every requested scroll of Textual 8.2 passes here; the clamping of the offset on a resize does not."""
        if y is not None:
            self.follows = self.validate_scroll_y(y) >= self.max_scroll_y
        return super()._scroll_to(x, y, **how)

    def seek(self, text: str) -> None:
        """Mark all lines with the text, and go to the last of them."""
        self.sought = text
        self._search()
        self.at = len(self.found) - 1
        self.step(0)

    def step(self, by: int) -> None:
        if self.found:
            self.at = (self.at + by) % len(self.found)
            self.scroll_to(y=max(0, self.found[self.at] - self.size.height // 2), animate=False)
        self.refresh()

    def _search(self) -> None:
        wanted = self.sought.casefold()
        self.found = [i for i, line in enumerate(self.lines) if wanted and wanted in line.casefold()]
        self.at = min(self.at, len(self.found) - 1)

    def render_line(self, y: int) -> Strip:
        left, top = self.scroll_offset
        number = top + y
        base = self.rich_style
        if number >= len(self.lines):
            return Strip.blank(self.size.width, base)
        segments = self._segments(self.lines[number], base)
        return Strip(segments).crop_extend(left, left + self.size.width, base)

    def _segments(self, line: str, base: Style) -> list[Segment]:
        wanted, low = self.sought.casefold(), line.casefold()
        if not wanted or wanted not in low or len(low) != len(line):
            return [Segment(line, base)]
        found = base + self.get_component_rich_style("log--found", partial=True)
        segments, start = [], 0
        while (at := low.find(wanted, start)) >= 0:
            end = at + len(wanted)
            segments += [Segment(line[start:at], base), Segment(line[at:end], found)]
            start = end
        return [*segments, Segment(line[start:], base)]


class LogTitle(Painted):
    DEFAULT_CSS = "LogTitle { height: 1; }"
    right = ""

    def rows(self, width: int, height: int) -> list[Row]:
        return [headline([("log", "title")], [(self.right, "label")], width, self.glyphs.rule)]


class LogPanel(Vertical):
    """Title, lines, and an input for the text to search for."""

    DEFAULT_CSS = """
    LogPanel Input { dock: bottom; height: 1; display: none; background: $panel; }
    LogPanel.-seeking Input { display: block; }
    """

    def compose(self) -> ComposeResult:
        yield LogTitle()
        yield LogLines()
        yield Input(placeholder="find in the log; Enter: find, Escape: done", compact=True)

    @property
    def lines(self) -> LogLines:
        return self.query_one(LogLines)

    def show(self, lines: tuple[str, ...], count: int) -> None:
        self.lines.show(lines)
        self._say(count)

    def _say(self, count: int) -> None:
        view, title = self.lines, self.query_one(LogTitle)
        place = f"{view.at + 1} of {len(view.found)}" if view.found else "not found"
        sought = f"{view.sought!r}: {place}  n N  " if view.sought else ""
        title.right = f"{sought}{count:,} lines"
        title.repaint()

    def open_search(self) -> None:
        self.add_class("-seeking")
        self.query_one(Input).focus()

    def close_search(self) -> bool:
        """Whether there was a search to close."""
        if not self.has_class("-seeking") and not self.lines.sought:
            return False
        self.remove_class("-seeking")
        self.lines.seek("")
        self._say(len(self.lines.lines))
        self.lines.focus()
        return True

    def step(self, by: int) -> None:
        self.lines.step(by)
        self._say(len(self.lines.lines))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.remove_class("-seeking")
        self.lines.seek(event.value)
        self._say(len(self.lines.lines))
        self.lines.focus()
