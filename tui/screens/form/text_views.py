"""The form's values as text to read and copy: YAML, the command line, and plain TensorFlow code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static, TextArea

from ....engine.units import counted
from ...base import keys
from ...base.errors import clean
from ...form.state import FormState
from ...widgets.key_footer import KeyFooter
from ..header import Header

if TYPE_CHECKING:
    from ...base.base_app import BaseApp

TITLES = {
    "yaml": "YAML: the preset with every value",
    "command": "Command line: the same run without the screen",
    "python": "Python: the same training in plain TensorFlow",
}


class Reading(TextArea):
    """A text area that cannot be edited: keys scroll it, and the mouse selects text."""

    BINDINGS = keys.scrolls()


class TextScreen(Screen[None]):
    """Shows one of three texts of the form: YAML, command line or Python code."""

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
        """Show the next (1) or the previous (-1) of the three texts."""
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
        """The text that is shown and copied."""
        if self.what == "yaml":
            return self.state.preset.to_yaml()
        if self.what == "command":
            return self.state.command() + "\n"
        from ....engine.export import script  # only the Python text needs it

        return script.to_script(self.state.preset)

    def action_copy_shown(self) -> None:
        """Copy the selected part of the text, or the whole text without a selection. Not named `copy`: the text area
        has such an action.
        """
        area = self.query_one(TextArea)
        text = area.selected_text or self.text()
        self.app.copy(text, "the selection" if area.selected_text else counted(len(text.splitlines()), "lines"))
