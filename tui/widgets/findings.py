"""The list of errors, warnings and notes about the form. Enter on an entry goes to its option."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ...engine.finding import Finding, errors
from ..base import keys
from ..base.errors import clean
from ..drawing.rows import with_short_paths

LEVEL_WIDTH = 8
STYLES = {"error": "bold $text-error", "warning": "$text-warning", "note": "$foreground-muted"}


class Findings(OptionList):
    """The list of remarks, errors first, which is hidden if there are none. Errors are shown whole, as they name the
    valid values."""

    BINDINGS = [
        keys.bind("open", "select", "Go to option", meaning="go to the option"),
        *keys.moves(),
        keys.bind("back", "screen.to_options", meaning="back to the options"),
    ]

    @dataclass
    class Jump(Message):
        """A request to focus the option `key`."""

        key: str

    def __init__(self) -> None:
        super().__init__(id="findings", markup=False, compact=True)
        self.remarks: tuple[Finding, ...] = ()
        self.display = False

    def show(self, remarks: Sequence[Finding]) -> None:
        if tuple(remarks) == self.remarks:
            return
        self.remarks = tuple(remarks)
        self.display = bool(self.remarks)
        self.set_class(bool(errors(self.remarks)), "-errors")
        self._fill()

    def on_resize(self) -> None:
        self._fill()

    def _fill(self) -> None:
        at, width = self.highlighted, (self.size.width or self.app.size.width) - 2
        wraps = self.styles.text_wrap == "wrap"
        self.set_options([Option(_prompt(remark, width, wraps)) for remark in self.remarks])
        if at is not None and self.remarks:
            self.highlighted = min(at, len(self.remarks) - 1)

    def on_focus(self) -> None:
        if self.highlighted is None:
            self.highlighted = 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Jump(self.remarks[event.option_index].options[0]))


def _prompt(remark: Finding, width: int, wraps: bool) -> Content:
    # Long paths in its message are shortened; the remedy never is.
    keys = ", ".join(remark.options) + " "
    room = width - LEVEL_WIDTH - cell_len(keys) - (cell_len(remark.remedy) + 2 if remark.remedy else 0)
    message = with_short_paths(clean(remark.what), room)
    text = f"{message}; {clean(remark.remedy)}" if remark.remedy else message
    lines = textwrap.wrap(keys + text, max(16, width - LEVEL_WIDTH), break_on_hyphens=False) if wraps else [keys + text]
    body = Content(("\n" + " " * LEVEL_WIDTH).join(lines)).stylize("bold", 0, len(keys))
    return Content.assemble((remark.level.ljust(LEVEL_WIDTH), STYLES[remark.level]), body)
