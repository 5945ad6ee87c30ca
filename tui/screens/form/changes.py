"""The list of all changes of the form, and its texts: YAML, command line and Python. The list has the value in the
form, the value in the file and the default of each changed option. Each change can be undone."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from rich.cells import cell_len
from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static, TextArea

from ....engine.units import NONE, counted
from ...base import keys
from ...base.errors import clean
from ...base.themes import colour
from ...drawing.rows import Row, fitting
from ...form.form_state import INFO, FormState, to_text
from ...widgets.key_footer import KeyFooter
from ...widgets.table import Table
from ..base import Header
from ..table import TableColumn, TableScreen
from .screen import FormScreen

if TYPE_CHECKING:
    from ...base.base_app import BaseApp

MARK, OPTION, LEAST = 1, 27, 10  # widths of the columns; the values share the rest
NOTHING = "nothing differs from the file, and nothing from the defaults"


class ChangesTable(Table):
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", "select_cursor", "Go to it", meaning="go to the option in the form")
    ]


class ChangesScreen(TableScreen[str]):
    """Lists the options that differ from the file, then those whose value in the file differs from the default."""

    DEFAULT_CSS = """
    ChangesScreen {
        overflow: hidden;
        #title { padding: 0 1; text-overflow: ellipsis; text-wrap: nowrap; }
        #nothing { margin: 1; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("mark", "take_back", "Take back", meaning="take the change back, or make it again"),
        keys.bind("delete", "default", "Default", meaning="back to the default"),
        keys.bind("undo"),
        keys.bind("redo", show=False),
        *keys.back(),
        keys.bind("compare", "back", "Back", show=False, meaning="back to the form"),
    ]

    def __init__(self, form: FormScreen) -> None:
        super().__init__()
        self.form = form
        self._listed: list[str] = []  # an option whose change was taken back stays in its place
        self._taken_back: dict[str, str] = {}

    def compose(self) -> ComposeResult:
        yield Header(Static(id="title", markup=False))
        yield Static(NOTHING, id="nothing", markup=False)
        yield ChangesTable(cursor_type="row", cell_padding=1)
        yield KeyFooter()

    @property
    def entries(self) -> Mapping[str, str]:
        return {key: key for key in self._listed}

    def show_table(self) -> None:
        state = self.form.state
        changed = state.changed()
        self._listed += [key for key in changed if key not in self._listed]
        super().show_table()
        self.table.display, self.query_one("#nothing").display = bool(self._listed), not self._listed
        other = sum(not state.is_default(key) for key in changed)
        unsaved = len(state.unsaved())
        self.query_one("#title", Static).update(
            Content.assemble(
                (clean(state.source), "bold $text-primary"),
                ("  +" if unsaved else " ", "bold $text-primary"),
                f" {unsaved} not saved" if unsaved else " all saved",
                ("  *", "bold $text-primary"),
                f" {other} not the default",
            )
        )

    def columns(self) -> list[TableColumn[str]]:
        """The three columns of values share the width that the column of names leaves."""
        heads, state, texts = ("now", "in the file", "default"), self.form.state, dict[str, list[str]]()
        for key in self._listed:
            of_key = (state.texts[key], state.text_of_file(key), to_text(INFO[key].default))
            texts[key] = [clean(text.strip()) or NONE for text in of_key]
        longest = [max(map(cell_len, column)) for column in zip(heads, *texts.values(), strict=True)]
        room, widths = self.size.width - MARK - OPTION - 2 * 5 - 1, [LEAST] * len(heads)
        for left, at in zip((3, 2, 1), sorted(range(3), key=lambda at: longest[at]), strict=True):
            widths[at] = max(LEAST, min(longest[at], room // left))  # at most an equal part of what is left
            room -= widths[at]
        warning, accent = (f"bold {colour(self.app, name)}" for name in ("warning", "accent"))

        def cell(at: int, key: str) -> Row:
            style = warning if state.is_unsaved(key) else accent
            return [(fitting(texts[key][at], widths[at], self.glyphs), style if state.mark(key) and not at else "")]

        values = [TableColumn(head, widths[at], partial(cell, at)) for at, head in enumerate(heads)]
        return [
            TableColumn("", MARK, lambda key: [(state.mark(key), warning)]),
            TableColumn("option", OPTION, lambda key: [(key, "")]),
            *values,
        ]

    # ---- acting -----------------------------------------------------------------------------------

    @on(Table.RowSelected)
    def _go_to(self, event: Table.RowSelected) -> None:
        event.stop()
        key = event.row_key.value
        self.app.pop_screen()
        if key is not None:
            self.form.go_to(key)

    def _put(self, key: str, text: str) -> None:
        self.form.put({key: text}, key)
        self.show_table()

    def action_take_back(self) -> None:
        """Put the file's value of the option into the form, and the changed value back at the next press."""
        key, state = self.current, self.form.state
        if key is None:
            return
        if state.is_unsaved(key):
            self._taken_back[key] = state.texts[key]
            self._put(key, state.text_of_file(key))
        elif key in self._taken_back:
            self._put(key, self._taken_back[key])
        else:
            message = f"that is how it stands in the file; {self.app.key('delete')} sets it to the default"
            self.app.notify(message, markup=False)

    def action_default(self) -> None:
        if key := self.current:
            self._put(key, to_text(INFO[key].default))

    def action_undo(self) -> None:
        self.form.action_undo()
        self.show_table()

    def action_redo(self) -> None:
        self.form.action_redo()
        self.show_table()


# ---- views of text --------------------------------------------------------------------------------


TITLES = {
    "yaml": "YAML: the preset with every value",
    "command": "Command line: the same run without the screen",
    "python": "Python: the same training in plain TensorFlow",
}


class Reading(TextArea, inherit_bindings=False):
    """A text area to read: keys scroll it, and the mouse selects text."""

    BINDINGS: ClassVar[list[BindingType]] = [*keys.scrolls(), Binding("ctrl+c", "copy", "Copy", show=False)]


OF_OWN_CODE = "# The script of your own code has what your function returns. This calls it, and writes the script:\n"


class TextScreen(Screen[None]):
    """Shows one of three texts of the form: `what` is "yaml", "command" or "python"."""

    DEFAULT_CSS = """
    TextScreen {
        overflow: hidden;
        TextArea, TextArea:focus { height: 1fr; border: none; padding: 0 1; background: $background; }
        TextArea { scrollbar-size-vertical: 1; }
        #title { text-overflow: ellipsis; text-wrap: nowrap; }
    }
    """
    app: BaseApp
    BINDINGS = [
        keys.bind("copy", "copy_shown", meaning="copy the text, or what is selected of it"),
        keys.bind("open", "copy_shown", "Copy", show=False, meaning="copy the text, or what is selected of it"),
        keys.bind("page_on", "turn(1)", "Next text"),
        keys.bind("page_back", "turn(-1)", "Text before", show=False),
        *keys.back("app.pop_screen"),
    ]

    def __init__(self, state: FormState, what: str) -> None:
        super().__init__()
        self.state, self.what = state, what

    def compose(self) -> ComposeResult:
        yield Header(Static(id="title", markup=False))
        yield Reading(read_only=True, soft_wrap=True, show_cursor=False, highlight_cursor_line=False)
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(TextArea).focus()
        self._show()

    def action_turn(self, by: int) -> None:
        names = list(TITLES)
        self.what = names[(names.index(self.what) + by) % len(names)]
        self._show()

    def _show(self) -> None:
        errors = len(self.state.errors)
        note = f"  {errors} invalid field(s) replaced by the values of the file" if errors else ""
        self.query_one("#title", Static).update(
            Content.assemble((TITLES[self.what], "bold $text-primary"), (note, "bold $text-error"))
        )
        self.query_one(TextArea).load_text(clean(self.text()))

    def text(self) -> str:
        if self.what == "yaml":
            return self.state.preset.to_yaml()
        if self.what == "command":
            return self.state.command() + "\n"
        if self.state.preset.options.workload.command:
            return "# A command has no script.\n"
        if self.state.preset.options.workload.entry is not None:
            command = self.state.command().replace("gputui", "gputui export", 1)
            return f"{OF_OWN_CODE}{command} -o plain.py\n"
        from ....engine.export import script  # only the Python text needs it

        return script.to_script(self.state.preset)

    def action_copy_shown(self) -> None:
        """Copy the selected part of the text, or all of it. Not named `copy`, an action of the text area."""
        area = self.query_one(TextArea)
        text = area.selected_text or self.text()
        self.app.copy(text, "the selection" if area.selected_text else counted(len(text.splitlines()), "lines"))
