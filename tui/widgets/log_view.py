"""The log of a run, with a filter: the newest line stays in view until the user scrolls up."""

from __future__ import annotations

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region, Size
from textual.selection import Selection
from textual.strip import Strip
from textual.widgets import Input

from ...engine.runs.run_state import Epoch
from ...engine.units import counted
from ..base import keys
from ..base.base_app import BaseApp
from ..base.glyphs import glyphs_of
from ..drawing import log_rows
from ..drawing.live import head
from ..drawing.log_rows import LEVELS, LogRow
from ..drawing.rows import Row, headline
from ..reading.run.reader import Picture
from ..upstream.textual_widgets import ScrollRequests
from .row_widgets import Panel

MOST_MESSAGES = 1000
KEYS_FROM = 60  # columns from which on the title names the keys
STYLES = ("muted", "fold", "epoch", *LEVELS)
NO_MESSAGES = LogRow("no errors and no warnings", "muted")


class LogLines(ScrollRequests, can_focus=True):
    """Shows the rows of the log. Only visible rows are rendered (Textual's Line API). While a text is searched, only
    the rows that contain it are shown, or all rows with `in_context`; with `only_messages`, the run's `messages` and
    the lines that are errors and warnings."""

    DEFAULT_CSS = """
    LogLines { height: 1fr; color: $foreground; scrollbar-size: 1 1; scrollbar-size-horizontal: 0; }
    LogLines > .log--found { text-style: reverse; }
    LogLines > .log--muted { color: $foreground-muted; }
    LogLines > .log--fold { color: $foreground-muted; text-style: italic; }
    LogLines > .log--epoch { color: $text-primary; }
    LogLines > .log--warn { color: $text-warning; }
    LogLines > .log--bad { color: $text-error; text-style: bold; }
    """
    COMPONENT_CLASSES = {f"log--{name}" for name in ("found", *STYLES)}
    BINDINGS = [
        *keys.scrolls(),
        keys.bind("mark", "fold", "Fold", show=False, meaning="fold TensorFlow's own messages, or show them"),
        keys.bind("wrap", show=False),
        keys.bind("open", "context", "In context", show=False, meaning="show what was found among the other lines"),
    ]
    app: BaseApp

    def __init__(self) -> None:
        super().__init__()
        self.lines: tuple[str, ...] = ()
        self.rows: list[LogRow] = []
        self.sought = ""
        self.matches: list[int] = []
        self.at = -1
        self.follows = True
        self.in_context = self.only_messages = False
        self.messages: list[LogRow] = []
        self._arrived: tuple[float, ...] = ()
        self._epochs: tuple[Epoch, ...] = ()
        self._resumes: tuple[float, ...] = ()

    def show(
        self, lines: tuple[str, ...], arrived: tuple[float, ...] = (), epochs: tuple[Epoch, ...] | None = None,
        resumes: tuple[float, ...] = (), messages: list[LogRow] | None = None,
    ) -> None:  # fmt: skip
        epochs, messages = self._epochs if epochs is None else epochs, messages or []
        same = lines is self.lines and epochs is self._epochs and resumes is self._resumes
        if same and messages == self.messages:
            return
        self.lines, self._epochs, self._resumes, self.messages = lines, epochs, resumes, messages
        self._arrived = arrived or (0.0,) * len(lines)
        self.fill()

    def fill(self) -> None:
        """Make the rows again; the view stays at the end if it was there."""
        kept, filtered = self.app.settings.log, bool(self.sought) and not self.in_context
        key = keys.key_of(self.app, "mark")
        fold = kept.fold and not self.sought and not self.only_messages
        rows = self._rows(key, fold=fold, width=self.size.width)
        if self.only_messages:
            rows = [*self.messages, *(row for row in rows if row.style in LEVELS)] or [NO_MESSAGES]
        rows = log_rows.only(rows, self.sought) if filtered else rows
        self.rows = log_rows.wrapped(rows, self.size.width) if kept.wrap else rows
        self.virtual_size = Size(max((cell_len(row.text) for row in self.rows), default=0), len(self.rows))
        sought = self.sought.casefold()
        self.matches = [i for i, row in enumerate(self.rows) if sought and sought in row.text.casefold()]
        self.at = min(self.at, len(self.matches) - 1)
        self.call_after_refresh(self._keep_end)
        self.refresh()

    def _keep_end(self) -> None:
        # Forced, as the first rows may come before the scrollbar that Textual would wait for.
        if self.follows:
            self.scroll_end(animate=False, immediate=True, force=True)
            self.vertical_scrollbar.position = self.scroll_y  # which Textual sets only while the bar is shown

    def render_lines(self, crop: Region) -> list[Strip]:
        if self.follows and self.scroll_offset.y != self.max_scroll_y:  # a later layout has moved the end
            self.call_next(self._keep_end)
        return super().render_lines(crop)

    @property
    def allow_vertical_scroll(self) -> bool:
        """True if keys may scroll the view, also before the first layout, so that an early key has an effect."""
        return super().allow_vertical_scroll or not self.size

    def _rows(self, key: str = "", *, fold: bool, width: int = 0) -> list[LogRow]:
        return log_rows.rows(
            self.lines, self._arrived, self._epochs, glyphs_of(self.app), key, fold=fold, width=width,
            resumes=self._resumes,
        )  # fmt: skip

    @property
    def count(self) -> int:
        return len(self.lines) + len(self._epochs)

    def text(self) -> str:
        return "\n".join(row.text for row in self._rows(fold=False))

    def on_resize(self) -> None:
        self.fill()

    def scroll_requested(self, y: float) -> None:
        self.follows = self.validate_scroll_y(y) >= self.max_scroll_y

    def seek(self, text: str) -> None:
        """Show only the rows that contain the text, with the last of them in view. An empty text shows all rows."""
        self.sought, self.in_context = text, False
        self.follows = True
        self.fill()
        self.at = len(self.matches) - 1
        self.step(0)

    def step(self, by: int) -> None:
        if self.matches:
            self.at = (self.at + by) % len(self.matches)
            self.scroll_to(y=max(0, self.matches[self.at] - self.size.height // 2), animate=False)
        self.refresh()

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool | None:
        return action != "context" or bool(self.sought)

    def action_context(self) -> None:
        """Show the found rows among all others, or again alone."""
        at, self.follows = self.at, False
        self.in_context = not self.in_context
        self.fill()
        self.at = min(at, len(self.matches) - 1)
        self.step(0)

    def action_fold(self) -> None:
        self.app.settings.change("log.fold", not self.app.settings.log.fold)
        self.fill()

    def action_wrap(self) -> None:
        wraps = not self.app.settings.log.wrap
        self.app.settings.change("log.wrap", wraps)
        self.app.notify(f"long lines of the log are {'wrapped' if wraps else 'not wrapped'}")
        self.scroll_to(x=0, animate=False, immediate=True)
        self.fill()

    def on_click(self, event: events.Click) -> None:
        at = self.scroll_offset.y + event.y
        if at < len(self.rows) and self.rows[at].style == "fold":
            self.action_fold()

    def render_line(self, y: int) -> Strip:
        left, top = self.scroll_offset
        number = top + y
        base = self.rich_style
        if number >= len(self.rows):
            return Strip.blank(self.size.width, base)
        row = self.rows[number]
        styled = base + self.get_component_rich_style(f"log--{row.style}", partial=True) if row.style else base
        strip = Strip(self._segments(row.text, styled))
        span = self.text_selection.get_span(number) if self.text_selection is not None else None
        if span is not None:  # selected with the mouse
            start, end = (cell_len(row.text[:at]) if at >= 0 else strip.cell_length for at in span)
            look = self.screen.get_component_rich_style("screen--selection")
            strip = Strip.join((strip.crop(0, start), strip.crop(start, end).apply_style(look), strip.crop(end)))
        return strip.crop_extend(left, left + self.size.width, base).apply_offsets(left, number)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        return selection.extract("\n".join(row.text for row in self.rows)), "\n"

    def selection_updated(self, _selection: Selection | None) -> None:
        self.refresh()

    def _segments(self, line: str, base: Style) -> list[Segment]:
        sought, low = self.sought.casefold(), line.casefold()
        if not sought or sought not in low or len(low) != len(line):
            return [Segment(line, base)]
        look = base + self.get_component_rich_style("log--found", partial=True)
        segments, start = [], 0
        while (at := low.find(sought, start)) >= 0:
            end = at + len(sought)
            segments += [Segment(line[start:at], base), Segment(line[at:end], look)]
            start = end
        return [*segments, Segment(line[start:], base)]


class LogPanel(Vertical):
    """The title and the lines of a log, and a field for the text to search."""

    DEFAULT_CSS = """
    LogPanel Input { dock: bottom; height: 1; display: none; background: $panel; }
    LogPanel.-seeking Input { display: block; }
    LogPanel.-edge {
        border: round $border; border-title-color: $foreground; border-title-style: bold;
        border-subtitle-color: $foreground-muted;
    }
    LogPanel.-edge.-plain { border: ascii $border; }
    LogPanel.-edge Panel { display: none; }
    """

    BINDINGS = [keys.bind("messages", show=False)]
    _count = 0  # of all lines, with those that are no longer kept
    left = right = ""  # of the title

    def compose(self) -> ComposeResult:
        yield Panel(self._title)
        yield LogLines()
        yield Input(placeholder="filter the log; Enter: keep, Escape: all lines", compact=True)

    @property
    def lines(self) -> LogLines:
        return self.query_one(LogLines)

    def show_edge(self, edge: bool) -> None:
        """Draw the title into an edge around the lines or, if `edge` is False, as a line above them."""
        self.set_class(edge, "-edge")
        self.set_class(edge and not glyphs_of(self.app).braille, "-plain")

    def show(self, picture: Picture) -> None:
        now = picture.snapshot
        width, apply = self.lines.size.width, keys.key_of(self.app, "apply")
        messages = log_rows.of_messages(head.message_rows(now, width, MOST_MESSAGES, glyphs_of(self.app), apply))
        self.lines.show(picture.log, picture.log_arrived, now.epochs, now.resumes, messages)
        self._count = picture.log_count + len(now.epochs)
        self._show_title()

    def _show_title(self) -> None:
        view = self.lines
        place = f"{view.at + 1} of {len(view.matches)}" if view.matches else "not found"
        steps = f"{keys.key_of(self.app, 'next_match')} {keys.key_of(self.app, 'previous_match')}"
        sought = f"{view.sought!r}: {place}  {steps}  " if view.sought else ""
        effects = (("search", "filters"), ("messages", "only errors"), ("wrap", "wraps"))
        ways = "".join(f"{keys.key_of(self.app, verb)} {does}  " for verb, does in effects)
        many = counted(self._count, "lines")
        right = f"{sought or (ways if self.size.width >= KEYS_FROM else '')}{many}"
        left = "log: errors and warnings" if view.only_messages else "log"
        if (left, right) != (self.left, self.right):  # setting a title repaints the whole widget
            self.left, self.right = left, right
            self.query_one(Panel).repaint()
            self.border_title, self.border_subtitle = left, Content(right)

    def _title(self, width: int, _height: int) -> list[Row]:
        return [headline([(self.left, "title")], [(self.right, "label")], width, glyphs_of(self.app).rule)]

    def action_messages(self) -> None:
        self.lines.only_messages, self.lines.follows = not self.lines.only_messages, True
        self.lines.fill()
        self._show_title()

    def open_search(self) -> None:
        self.add_class("-seeking")
        self.query_one(Input).focus()

    def close_search(self) -> bool:
        """End the search and show all lines. Return True if only some of them were shown."""
        if not self.has_class("-seeking") and not self.lines.sought and not self.lines.only_messages:
            return False
        self.lines.only_messages = False
        self._seek("")
        return True

    def _seek(self, text: str, ends: bool = True) -> None:
        self.lines.seek(text)
        self._show_title()
        if ends:
            self.remove_class("-seeking")
            self.lines.focus()

    def step(self, by: int) -> None:
        self.lines.step(by)
        self._show_title()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.has_class("-seeking"):
            self._seek(event.value, ends=False)

    def on_input_submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self._seek(event.value)
