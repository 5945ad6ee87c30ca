"""What this machine can do and what is wrong with it, as a table; the driver is asked in a thread."""

from __future__ import annotations

from typing import ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer

from ...engine.doctor import Finding
from ..drawing.rows import Row
from ..errors import clean
from ..listing_doctor import conclusion, examine, sign
from ..widgets.panel import Panel
from .common import OpeningTable, colour

COLOURS = {"ok": "success", "note": "primary", "warning": "warning", "error": "error"}


class _Findings(OpeningTable):
    """There is nothing to open."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", show=False)]


class DoctorScreen(Screen[None]):
    """The findings; `d` looks again and imports TensorFlow for it."""

    CSS_PATH = "doctor.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "look(False)", "Look again"),
        Binding("d", "look(True)", "Deep look"),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Finding] = []
        self.looking = ""

    def compose(self) -> ComposeResult:
        yield _Findings(cursor_type="row", cell_padding=1)
        yield Panel(self._said, id="said")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns("", "about", "what")
        self.action_look(False)

    def action_look(self, deep: bool) -> None:
        if not self.looking:
            self.looking = "importing TensorFlow ..." if deep else "looking ..."
            self.query_one("#said", Panel).repaint()
            self.look(deep)

    @work(thread=True)
    def look(self, deep: bool) -> None:
        found = examine(deep)
        self.app.call_from_thread(self.show, found)

    def show(self, found: list[Finding]) -> None:
        self.found, self.looking = found, ""
        table = self.query_one(DataTable)
        table.clear()
        for finding in found:
            style = colour(self.app, COLOURS[finding.level])
            level = Text(f"{sign(finding.level)} {finding.level}", style=style)
            what = Text(clean(finding.what))
            if finding.remedy:
                what.append(f"\n{clean(finding.remedy)}", style="dim")
            table.add_row(level, Text(finding.about), what, height=None)
        self.query_one("#said", Panel).repaint()

    def _said(self, width: int, height: int) -> list[Row]:
        return [[(self.looking or conclusion(self.found), "label")]]

    def action_back(self) -> None:
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()
