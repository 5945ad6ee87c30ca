"""The help: all keys of the screen below, and what the marks mean."""

from __future__ import annotations

from typing import Any

from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.content import Content
from textual.screen import ModalScreen, Screen
from textual.widgets import Static

# A section of the help that several screens have.
LOSS = (
    "Loss and metrics",
    (("running run", "mean of the current epoch so far"), ("ended run", "mean of the last complete epoch")),
)
# Actions that are not listed.
UNLISTED = ("app.focus_next", "app.focus_previous", "screen.copy_text", "command_palette")


class HelpScreen(ModalScreen[None]):
    """Any of the keys that open it also closes it."""

    DEFAULT_CSS = """
    HelpScreen {
        align: center middle;
        background: $background 60%;
        VerticalScroll { width: 76; max-width: 96%; height: auto; max-height: 90%; border: round $border;
                         background: $panel; padding: 0 2; scrollbar-size-vertical: 1; }
    }
    """
    BINDINGS = [Binding("escape,q,f1,question_mark,enter", "dismiss", "Close")]

    def __init__(self, below: Screen[Any]) -> None:
        super().__init__()
        self.below = below

    def compose(self) -> ComposeResult:
        with VerticalScroll():
            yield Static(self._text(), markup=False)

    def _text(self) -> Content:
        own = getattr(self.below, "HELP_SECTIONS", ())
        parts = [*(_section(title, lines) for title, lines in own), _section("Here", self._keys())]
        parts.append(
            _section("Everywhere", (("ctrl+p", "all commands, including themes"), ("ctrl+q", "quit; runs continue")))
        )
        return Content("\n\n").join(parts)

    def _keys(self) -> list[tuple[str, str]]:
        """The keys of the screen and the application, one line for each action."""
        found: dict[str, tuple[list[str], str]] = {}
        for bindings in (self.below._bindings, self.app._bindings):
            for key, several in bindings.key_to_bindings.items():
                for binding in several:
                    name = binding.description
                    if name and not binding.system and binding.action not in UNLISTED:
                        shown = self.app.get_key_display(binding.with_key(key, None))
                        keys = found.setdefault(binding.action.removeprefix("app."), ([], name))[0]
                        if shown not in keys:
                            keys.append(shown)
        return [(", ".join(keys), name) for keys, name in found.values()]


def _section(title: str, lines: object) -> Content:
    assert isinstance(lines, list | tuple)
    rows = [Content.assemble((keys.ljust(14), "bold $text-warning"), text) for keys, text in lines]
    return Content("\n").join([Content.styled(title, "bold $text-primary"), *rows])
