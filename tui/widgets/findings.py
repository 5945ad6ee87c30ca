"""The list of errors, warnings and notes about the form; each entry leads to its option."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from textual.binding import Binding
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from ..base.errors import clean

STYLES = {"error": "bold $text-error", "warning": "$text-warning", "note": "$foreground-muted"}


@dataclass(frozen=True)
class Remark:
    """An error, warning or note about options (the first of `keys` is the one to go to)."""

    level: str
    keys: tuple[str, ...]
    text: str

    def __str__(self) -> str:
        return f"{', '.join(self.keys)}: {self.text}"


class Findings(OptionList):
    """The remarks, errors first; hidden when there are none."""

    BINDINGS = [Binding("enter", "select", "Go to option"), Binding("escape", "screen.to_options", "Back")]

    class Jump(Message):
        """A request to focus the option `key`."""

        def __init__(self, key: str) -> None:
            super().__init__()
            self.key = key

    def __init__(self) -> None:
        super().__init__(id="findings", markup=False, compact=True)
        self.remarks: tuple[Remark, ...] = ()
        self.display = False

    def show(self, remarks: Sequence[Remark]) -> None:
        """Replace the list where it has changed."""
        if tuple(remarks) == self.remarks:
            return
        at = self.highlighted
        self.remarks = tuple(remarks)
        self.set_options([Option(_prompt(remark)) for remark in self.remarks])
        self.display = bool(self.remarks)
        if at is not None and self.remarks:
            self.highlighted = min(at, len(self.remarks) - 1)

    def on_focus(self) -> None:
        if self.highlighted is None:
            self.highlighted = 0

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Jump(self.remarks[event.option_index].keys[0]))


def _prompt(remark: Remark) -> Content:
    return Content.assemble(
        (remark.level.ljust(8), STYLES[remark.level]),
        (", ".join(remark.keys) + " ", "bold"),
        clean(remark.text),
    )
