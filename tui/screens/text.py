"""The form's values as text to read and copy: YAML, the command line, and plain TensorFlow code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from textual.app import ComposeResult
from textual.binding import Binding
from textual.content import Content
from textual.screen import Screen
from textual.widgets import Static, TextArea

from ..base.errors import clean
from ..form.state import FormState
from ..widgets.key_footer import KeyFooter

if TYPE_CHECKING:
    from ..base.services import Host

TITLES = {
    "yaml": "YAML: the preset with every value",
    "command": "Command line: the same run without the screen",
    "python": "Python: the same training in plain TensorFlow",
}


class TextScreen(Screen[None]):
    """One of the three texts; the form's keys switch between them."""

    DEFAULT_CSS = """
    TextScreen {
        overflow: hidden;
        #title { height: 1; padding: 0 1; background: $panel; }
        TextArea, TextArea:focus { height: 1fr; border: none; padding: 0 1; background: $background; }
        TextArea { scrollbar-size-vertical: 1; }
    }
    """
    app: Host
    BINDINGS = [
        Binding("enter", "copy", "Copy"),
        Binding("y", "text('yaml')", "YAML"),
        Binding("c", "text('command')", "Command"),
        Binding("p", "text('python')", "Python"),
        Binding("escape,q", "app.pop_screen", "Back", key_display="esc"),
    ]

    def __init__(self, state: FormState, what: str) -> None:
        super().__init__()
        self.state, self.what = state, what

    def compose(self) -> ComposeResult:
        yield Static(id="title", markup=False)
        yield TextArea(read_only=True, soft_wrap=False, show_cursor=False, highlight_cursor_line=False)
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(TextArea).focus()
        self._show()

    def action_text(self, what: str) -> None:
        self.what = what
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
        from ...engine.export import script  # only the Python text needs it

        return script.to_script(self.state.preset)

    def action_copy(self) -> None:
        area = self.query_one(TextArea)
        text = area.selected_text or self.text()
        self.app.copy_to_clipboard(text)
        what = "the selection" if area.selected_text else f"{len(text.splitlines())} lines"
        self.app.notify(f"{what}, if your terminal allows copying (OSC 52)", title="Copied", markup=False)
