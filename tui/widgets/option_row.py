"""A row of the form with one option: marks, name, value and unit, and in a second line what is wrong with the value.

A row draws itself, and holds an input only while its value is edited. So a form of sixty options is sixty widgets, and
single letters remain free for commands.
"""

from __future__ import annotations

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.suggester import SuggestFromList
from textual.widget import Widget
from textual.widgets import Input

from ..base.errors import clean
from ..form.state import INFO, FormState, kind, to_text

LABEL_WIDTH = 22
MARK_WIDTH = 3
ASIDE_COLUMN = 48
NOT_GIVEN = "not given"
YOURS = "your code"  # the user's code decides, not the option


class ValueInput(Input):
    """The input of the row that is edited: Enter and the arrow keys accept the value, Escape discards it."""

    BINDINGS = [
        Binding("escape", "leave(False)", "Discard"),
        Binding("enter", "leave(True)", "Accept"),
        Binding("up", "step(-1)", "Previous", show=False),
        Binding("down", "step(1)", "Next", show=False),
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
    """A row of the form. The screen handles its messages: Changed, Choose (open the list of choices) and Step."""

    BINDINGS = [
        Binding("enter", "edit", "Change"),
        Binding("space", "edit", "Change", show=False),
        Binding("left,h", "cycle(-1)", "Previous choice", show=False),
        Binding("right,l", "cycle(1)", "Next choice", show=False),
        Binding("delete,backspace,d", "reset", "Default", key_display="d"),
        Binding("u", "undo", "Undo", show=False),
    ]

    class Changed(Message):
        """The option `key` has the new text `text`."""

        def __init__(self, key: str, text: str) -> None:
            super().__init__()
            self.key, self.text = key, text

    class Choose(Message):
        """A request to list the choices beside the row."""

        def __init__(self, row: OptionRow) -> None:
            super().__init__()
            self.row = row

    class Step(Message):
        """A request to move the focus to the row before (-1) or after (1) this one."""

        def __init__(self, row: OptionRow, by: int) -> None:
            super().__init__()
            self.row, self.by = row, by

    def __init__(self, key: str, state: FormState) -> None:
        super().__init__(id="row-" + key.replace(".", "-"))
        self.key, self.state = key, state
        self.info = INFO[key]
        self.kind = kind(self.info)
        self.locked = ""
        self._before = ""

    # ---- drawing ------------------------------------------------------------------------------

    def render(self) -> Content:
        width = self.size.width
        line = Content.assemble(*self._parts())
        aside = self._aside()
        if aside:
            gap = " " * max(2, ASIDE_COLUMN - line.cell_length)
            line = Content.assemble(line, gap, (aside, "$foreground-muted"))
        error = self.state.errors.get(self.key)
        if error is None:
            return line.truncate(width, ellipsis=True)
        told = Content.assemble((" " * MARK_WIDTH + clean(error), "bold $text-error"))
        return Content("\n").join((line.truncate(width, ellipsis=True), told.truncate(width, ellipsis=True)))

    def _parts(self) -> list[Content | tuple[str, str]]:
        style = "$foreground-muted" if self.locked or self.state.decides(self.key) == YOURS else ""
        changed = not self.state.is_default(self.key)
        return [
            ((">" if self.has_focus else " ") + self._mark().ljust(MARK_WIDTH - 1), "bold $text-warning"),
            (self.info.name.ljust(LABEL_WIDTH), style or "$foreground"),
            *self._value(style, changed),
        ]

    def _mark(self) -> str:
        if self.key in self.state.errors:
            return "!"
        if self.state.is_unsaved(self.key):
            return "+"
        return "" if self.state.is_default(self.key) else "*"

    def _value(self, style: str, changed: bool) -> list[Content | tuple[str, str]]:
        text = clean(self.state.texts[self.key])
        strong = ("bold " if changed else "") + (style or ("$text-accent" if changed else "$foreground"))
        if self.kind == "bool":
            return [("[x] on" if text == "true" else "[ ] off", strong)]
        if not text:
            return [(NOT_GIVEN, "$foreground-muted")]
        unit = self.info.about.unit if text[:1].isdigit() else ""
        arrows = self.has_focus and bool(self._words())
        shown = f"‹ {text} ›" if arrows else text
        return [(shown, strong), (f" {unit}" if unit else "", "$foreground-muted")]

    def _aside(self) -> str:
        """The text at the right end: why the option has no effect, who else decides, or the default."""
        if self.locked:
            return "no GPU"
        who = self.state.decides(self.key)
        return who if who == YOURS else "  ".join(filter(None, (who, self._default())))

    def _default(self) -> str:
        """The default, where the option differs from it."""
        if self.key in self.state.errors or self.state.is_default(self.key):
            return ""
        if self.kind == "bool":
            return "default " + ("on" if self.info.default else "off")
        return f"default {to_text(self.info.default) or NOT_GIVEN}"

    def _words(self) -> tuple[str, ...]:
        return ("false", "true") if self.kind == "bool" else self.info.fixed_values

    def watch_has_focus(self, focused: bool) -> None:
        super().watch_has_focus(focused)
        self.refresh()

    def show(self) -> None:
        """Draw the new state; a second line appears with an error."""
        height = 2 if self.key in self.state.errors else 1
        if height != self.size.height:
            self.styles.height = height
        self.refresh()

    def grey(self, reason: str) -> None:
        """Grey the row out where the option has no effect for this reason; an empty reason restores it."""
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

    def action_undo(self) -> None:
        self.state.undo(self.key)
        self._change(self.state.texts[self.key])

    def write(self, text: str, selected: bool = False) -> None:
        """Open the input on the value's place."""
        if self.children:
            return
        self._before = self.state.texts[self.key]
        field = ValueInput(
            text,
            compact=True,
            select_on_focus=selected,
            suggester=SuggestFromList(self.info.choices) if self.info.choices else None,
        )
        self.mount(field)
        field.focus()

    def finish(self, take: bool) -> None:
        """Close the input; the value it held stays only if it is to be taken."""
        if self.children:
            self.remove_children()
            if not take:
                self._change(self._before)

    def _change(self, text: str) -> None:
        self.post_message(self.Changed(self.key, text))

    def begins_with(self, character: str) -> bool:
        """Whether a value, and no command, begins with the character."""
        return character.isdigit() or (character in (".", "-"))

    def on_key(self, event: events.Key) -> None:
        """A digit typed on a row begins a new value, and does not act as a command."""
        written = event.character if event.is_printable else None
        if self.children or written is None or not self.begins_with(written):
            return
        event.stop()
        if self.kind == "text":
            self.write(written)
            self._change(written)

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()
        if self.children:
            self._change(event.value)

    def on_descendant_blur(self, event: events.DescendantBlur) -> None:
        self.finish(True)

    def on_click(self, event: events.Click) -> None:
        if event.x >= MARK_WIDTH + LABEL_WIDTH and not self.children:
            self.action_edit()

    def compose(self) -> ComposeResult:
        yield from ()
