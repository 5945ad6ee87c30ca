"""A row of the form with one option: marks, name, value and unit, and below the error of the value. It draws itself,
and holds an input only while its value is edited: a form of sixty options is sixty widgets, and letters remain free for
commands."""

from __future__ import annotations

from dataclasses import dataclass

from textual import events
from textual.content import Content
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input

from ...engine.options import OptionInfo
from ...engine.units import NONE, named
from ..base import keys
from ..base.errors import clean
from ..base.glyphs import glyphs_of
from ..base.themes import with_marks
from ..form.form_state import INFO, FormState, kind, to_text
from ..form.option_search import around
from ..word_search import Hit

LABEL_WIDTH, NARROW_LABEL_WIDTH = 22, 20
FULL_WIDTH = 56  # a narrower row shows less
KEY_WIDTH = 28
ROOM_FOR_TEXT = 48  # cells for a text such as flags or a path, which else is written below in the whole width
MARK_WIDTH = 3
ASIDE_COLUMN, FOUND_COLUMN, ASIDE_WIDTH = 48, 46, 16
YOURS = "your code"  # the user's code decides, not the option


class ValueInput(Input):
    """The field in which a row's value is edited. Enter and the arrow keys accept the value, Escape discards it."""

    BINDINGS = [
        keys.bind("cancel", "leave(False)", "Discard"),
        keys.bind("accept", "leave(True)"),
        keys.bind("field_up", "step(-1)", show=False),
        keys.bind("field_down", "step(1)", show=False),
    ]

    def action_leave(self, take: bool) -> None:
        row = self.parent
        assert isinstance(row, OptionRow)
        row.finish(take)
        row.focus()

    def action_step(self, by: int) -> None:
        row = self.parent
        assert isinstance(row, OptionRow)
        row.finish(True)
        row.post_message(OptionRow.Step(row, by))


class OptionRow(Widget, can_focus=True):
    """A row of the form with one option. The screen handles its messages Changed, Choose and Step."""

    BINDINGS = [
        keys.bind("open", "edit", "Change", meaning="change: switch, choose or write a value"),
        keys.bind("mark", "edit", "Change", show=False, meaning="change: switch, choose or write a value"),
        keys.bind("previous_choice", "cycle(-1)", show=False),
        keys.bind("next_choice", "cycle(1)", show=False),
        keys.bind("delete", "reset", "Default", meaning="back to the default"),
    ]

    @dataclass
    class Changed(Message):
        """The text of the option `key` has changed; all changes while a field is open have the same `edit`."""

        key: str
        text: str
        edit: object = None

    @dataclass
    class Choose(Message):
        """A request to open the list of the option's values next to the row."""

        row: OptionRow

    @dataclass
    class Step(Message):
        """A request to move the focus to the row before (-1) or after (1) this row."""

        row: OptionRow
        by: int

    def __init__(self, key: str, state: FormState) -> None:
        super().__init__(id="row-" + key.replace(".", "-"))
        self.key, self.state = key, state
        self.info = INFO[key]
        self.kind = kind(self.info)
        self.locked = ""
        self.hit: Hit[OptionInfo] | None = None  # of a search
        self._before = ""
        self._width = 0  # when it was painted last; Textual looks the size up in a table of all widgets
        self._edit: object = None  # while the input is open

    @property
    def value_column(self) -> int:
        return MARK_WIDTH + self._label_width

    @property
    def _label_width(self) -> int:
        if self.hit is not None:
            return KEY_WIDTH
        return NARROW_LABEL_WIDTH if self.is_narrow else LABEL_WIDTH

    @property
    def _aside_column(self) -> int:
        # In a narrow row the column in which it has to end.
        if self.hit is not None:
            return FOUND_COLUMN
        width = self._width or self.size.width
        return width if self.is_narrow else min(ASIDE_COLUMN, width - ASIDE_WIDTH)

    @property
    def is_narrow(self) -> bool:
        return (self._width or self.size.width) < FULL_WIDTH

    @property
    def group(self) -> str:
        return self.info.group

    # ---- drawing ------------------------------------------------------------------------------

    def render(self) -> Content:
        width = self._width = self.size.width
        line = Content.assemble(*self._parts())
        column = self._aside_column
        aside = self._aside() if self.hit is None else self._where(width - max(column, line.cell_length + 2))
        least_gap = 1 if self.is_narrow else 2
        if self.hit is None and line.cell_length + least_gap + len(aside) > width:
            aside = self._who()  # the help names the default
        room = width - (len(aside) + least_gap if aside else 0)
        if line.cell_length > room:
            line = Content.assemble(*self._parts(unit=False))
            if line.cell_length > room and self.is_narrow:  # with fewer blanks after the name, too
                line = Content.assemble(*self._parts(unit=False, less=line.cell_length - room))
        if aside:
            gap = " " * max(least_gap, min(column, width - len(aside)) - line.cell_length)
            line = Content.assemble(line, gap, (aside, "$foreground-muted"))
        if self.hit is not None:
            line = with_marks(line, self.hit)
        error = self.state.errors.get(self.key)
        if error is None:
            return line.truncate(width, ellipsis=True)
        error_line = Content.assemble((" " * MARK_WIDTH + clean(error), "bold $text-error"))
        return Content("\n").join((line.truncate(width, ellipsis=True), error_line.truncate(width, ellipsis=True)))

    def _parts(self, unit: bool = True, less: int = 0) -> list[Content | tuple[str, str]]:
        style = "$foreground-muted" if self.locked or self.state.no_effect(self.key) else ""
        name = self.info.about.label or self.info.name if self.hit is None else self.key
        mark = (">" if self.has_focus else " ") + self.state.mark(self.key).ljust(MARK_WIDTH - 1)
        return [
            (mark, "bold $text-error" if self.key in self.state.errors else "bold $text-primary"),
            (f"{name} ".ljust(self._label_width - less), style or "$foreground"),
            *self._value(style, unit),
        ]

    def _where(self, width: int) -> str:
        # The words that a search found outside the name, after the name of that place; else the usual text.
        match = self.hit.elsewhere if self.hit is not None else None
        if match is None or self.hit is None:
            return self._aside()
        glyphs = glyphs_of(self.app)
        return f"{match.place} {around(clean(match.text), self.hit.words, width - len(match.place) - 1, glyphs.more)}"

    def _value(self, style: str, with_unit: bool) -> list[Content | tuple[str, str]]:
        if self.children:
            return []  # the input shows it
        text, changed = clean(self.state.texts[self.key]), not self.state.is_default(self.key)
        strong = ("bold " if changed else "") + (style or ("$text-accent" if changed else "$foreground"))
        if self.kind == "bool":
            return [("[x] on" if text == "true" else "[ ] off", strong)]
        if not text or (not changed and self.key in (self.state.preset.options.workload.left_to_fit or ())):
            return [("as in its fit" if text else NONE, "$foreground-muted")]
        unit = self.info.about.unit if with_unit and text[:1].isdigit() else ""
        arrows = self.has_focus and bool(self._words())
        shown = f"‹ {text} ›" if arrows else text
        unit = named(1 if text == "1" else None, unit)
        return [(shown, strong), (f" {unit}" if unit else "", "$foreground-muted")]

    def _aside(self) -> str:
        who = self._who()
        if who == YOURS:
            return self.state.no_effect(self.key)
        if self.locked or self.key in self.state.errors or self.state.is_default(self.key):
            return who
        default = to_text(self.info.default)
        if self.kind == "bool":
            default = "on" if self.info.default else "off"
        return f"default {default}" if default else ""

    def _who(self) -> str:
        return YOURS if self.state.no_effect(self.key) else "no GPU" if self.locked else ""

    def _words(self) -> tuple[str, ...]:
        return ("false", "true") if self.kind == "bool" else self.info.fixed_values

    def watch_has_focus(self, focused: bool) -> None:
        super().watch_has_focus(focused)
        self.refresh()

    def show(self) -> None:
        """Draw the row again with its present value and, in a second line, its error."""
        height = 2 if self.key in self.state.errors else 1
        if height != self.size.height:
            self.styles.height = height
        for field in self.query(".-below") if self.children else ():
            self._put_below(field, height)
        self.refresh()

    def grey(self, reason: str) -> None:
        """Grey the row out. `reason` says why the option has no effect. An empty reason restores the row."""
        if reason != self.locked:
            self.locked = reason
            self.refresh()

    # ---- changing -----------------------------------------------------------------------------

    def action_edit(self) -> None:
        if self.kind == "bool":
            self.action_cycle(1)
        elif self.kind == "choice":
            self.post_message(self.Choose(self))
        else:
            self.write(self.state.texts[self.key], selected=True)

    def action_cycle(self, by: int) -> None:
        words = self._words()
        if not words:
            return
        text = self.state.texts[self.key]
        at = words.index(text) + by if text in words else (0 if by > 0 else -1)
        self._change(words[at % len(words)])

    def action_reset(self) -> None:
        self._change(to_text(self.info.default))

    def write(self, text: str, selected: bool = False) -> None:
        """Open a field with `text`, selected or not, in place of the value, if none is open."""
        if self.children:
            return
        self._before, self._edit = self.state.texts[self.key], object()
        offered = (*self.info.choices, *self.info.about.examples)
        suggester = SuggestFromList(offered) if offered else None
        field = ValueInput(text, compact=True, select_on_focus=selected, suggester=suggester)
        free = not (self.info.choices or self.info.is_number)
        if free and self.size.width - self.value_column < ROOM_FOR_TEXT:
            field.add_class("-below")
            self._put_below(field, self.size.height)
        else:
            field.styles.margin = (0, 0, 0, self.value_column)
        self.mount(field)
        self.add_class("-open")
        field.focus()

    def _put_below(self, field: Widget, height: int) -> None:
        whole = self.parent.scrollable_content_region if isinstance(self.parent, Widget) else self.region
        field.styles.offset = (whole.x - self.region.x, height)
        field.styles.width = whole.width

    def finish(self, take: bool) -> None:
        """Close the field, and take its text as the option's value if `take`."""
        if self.children:
            self.remove_children()
            self.remove_class("-open")
            if not take:
                self._change(self._before)
            self._edit = None

    def _change(self, text: str) -> None:
        self.post_message(self.Changed(self.key, text, self._edit))

    def on_key(self, event: events.Key) -> None:
        """Take a digit, a point or a minus, no commands here, as the beginning of a new value of free text."""
        written = event.character if event.is_printable else None
        if self.children or written is None or not (written.isdigit() or written in ".-"):
            return
        event.stop()
        if self.kind == "text":
            self.write(written)
            self._change(written)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.children:
            self._change(event.value)

    def on_descendant_blur(self) -> None:
        self.finish(True)

    def on_click(self, event: events.Click) -> None:
        if event.x >= self.value_column and not self.children:
            self.action_edit()
