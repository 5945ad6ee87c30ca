"""All options as rows in their sections, with moving between rows and filtering them by words.

A single row is in option_row.py, what the form does with it in screens/form.py.
"""

from __future__ import annotations

from itertools import groupby

from textual import events, on
from textual.app import ComposeResult
from textual.binding import Binding
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import Static

from ...engine.options import OPTIONS
from ..form.state import FormState, about_group, matches
from .option_row import OptionRow


class OptionsView(Vertical):
    """The rows in two columns of sections, which narrow terminals show one below the other."""

    BINDINGS = [
        Binding("up,k", "step(-1)", "Previous option", show=False),
        Binding("down,j", "step(1)", "Next option", show=False),
        Binding("pageup", "section(-1)", "Previous section", show=False),
        Binding("pagedown", "section(1)", "Next section", show=False),
        Binding("home", "edge(0)", "First option", show=False),
        Binding("end", "edge(-1)", "Last option", show=False),
    ]

    class Moved(Message):
        """Another option, `last_key`, has the focus."""

    def __init__(self, state: FormState) -> None:
        super().__init__(id="options")
        self.state = state
        self.last_key = OPTIONS[0].key
        self.rows = {info.key: OptionRow(info.key, state) for info in OPTIONS}

    def compose(self) -> ComposeResult:
        for groups in _columns():
            with Vertical(classes="column"):
                for group in groups:
                    title, told = (f"{group} ", "bold $text-primary"), (about_group(group), "$foreground-muted")
                    yield Static(Content.assemble(title, told), classes="heading", id=f"heading-{group}")
                    yield from (row for row in self.rows.values() if row.info.group == group)

    @property
    def last_row(self) -> OptionRow:
        """The row that has, or last had, the focus."""
        return self.rows[self.last_key]

    @property
    def shown(self) -> list[OptionRow]:
        return [row for row in self.rows.values() if row.display]

    def load(self, state: FormState) -> None:
        """Show another state of the form."""
        for row in self.rows.values():
            row.finish(True)
            row.state = state
            row.show()

    def grey(self, reason: str) -> None:
        """Grey out options that need a GPU, for this reason; an empty reason restores them."""
        for row in self.rows.values():
            row.grey(reason if row.info.about.gpu_only else "")

    def narrow(self, words: str) -> None:
        """Show only the options that match the words, with their headings."""
        for row in self.rows.values():
            row.display = matches(row.info, words)
        groups = {f"heading-{row.info.group}" for row in self.shown}
        for heading in self.query(".heading"):
            heading.display = heading.id in groups

    @on(events.DescendantFocus)
    def _focus_moved(self, event: events.DescendantFocus) -> None:
        row = event.widget if isinstance(event.widget, OptionRow) else event.widget.parent
        if isinstance(row, OptionRow) and row.key != self.last_key:
            self.last_key = row.key
            self._show_heading(row)
            self.post_message(self.Moved())

    def _show_heading(self, row: OptionRow) -> None:
        """Scroll the heading of a section into view with its first option."""
        heading = self.query_one(f"#heading-{row.info.group}")
        if next(r for r in self.shown if r.info.group == row.info.group) is row:
            self.call_after_refresh(heading.scroll_visible, animate=False)

    # ---- moving -------------------------------------------------------------------------------

    def focus_last(self) -> None:
        """Focus the option that last had the focus, or the first that is shown."""
        if self.last_row.display:
            self.last_row.focus()
        else:
            self.action_edge(0)

    @on(OptionRow.Step)
    def _stepped(self, event: OptionRow.Step) -> None:
        self.action_step(event.by)

    def action_step(self, by: int) -> None:
        shown = self.shown
        if shown:
            at = shown.index(self.last_row) + by if self.last_row in shown else 0
            shown[_within(at, shown)].focus()

    def action_section(self, by: int) -> None:
        firsts = [next(rows) for _, rows in groupby(self.shown, key=lambda row: row.info.group)]
        groups = [row.info.group for row in firsts]
        if firsts:
            group = self.last_row.info.group
            at = groups.index(group) + by if group in groups else 0
            firsts[_within(at, firsts)].focus()

    def action_edge(self, at: int) -> None:
        if self.shown:
            self.shown[at].focus()


def _columns() -> list[list[str]]:
    """The groups in two columns of about the same length, in their order."""
    columns: list[list[str]] = [[], []]
    filled = 0
    for group, infos in groupby(OPTIONS, key=lambda info: info.group):
        columns[0 if filled < len(OPTIONS) / 2 else 1].append(group)
        filled += len(list(infos))
    return columns


def _within(at: int, rows: list[OptionRow]) -> int:
    return max(0, min(len(rows) - 1, at))
