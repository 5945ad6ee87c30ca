"""What this machine can do and what is wrong with it, as a table.

The machine is looked at in a thread that ends with the process: a driver that hangs keeps nobody from leaving.
"""

from __future__ import annotations

import os
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen
from textual.widgets import DataTable, Footer

from ...engine.doctor import Examination, Finding
from ...engine.telemetry.background_call import BackgroundCall
from ..base.errors import clean
from ..drawing.rows import Row
from ..text.doctor import conclusion, sign, terminal
from ..widgets.panel import Panel
from .common import OpeningTable, colour

COLOURS = {"ok": "success", "note": "primary", "warning": "warning", "error": "error"}
POLL_SECONDS = 0.1


class _Findings(OpeningTable):
    """There is nothing to open."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", show=False)]


class DoctorScreen(Screen[None]):
    """The findings; `d` looks again and imports TensorFlow for it."""

    CSS_PATH = "doctor.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("r", "look(False)", "Check again"),
        Binding("d", "look(True)", "Deep check"),
        Binding("escape", "back", "Back"),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.found: list[Finding] = []
        self.looking = ""
        self._examination: Examination | None = None
        self._examining: BackgroundCall[list[Finding]] | None = None

    def compose(self) -> ComposeResult:
        yield _Findings(cursor_type="row", cell_padding=1)
        yield Panel(self._said, id="said")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.query_one(DataTable).add_columns("", "about", "what")
        self.set_interval(POLL_SECONDS, self._take)
        self.action_look(False)

    def on_unmount(self) -> None:
        if self._examination is not None:
            self._examination.end()

    def action_look(self, deep: bool) -> None:
        if self._examining is None:
            self.looking = "importing TensorFlow ..." if deep else "checking ..."
            self.query_one("#said", Panel).repaint()
            self._examination = Examination(deep)
            self._examining = BackgroundCall(self._examination.findings)

    def _take(self) -> None:
        """Show the findings once they are there."""
        if self._examining is None:
            return
        try:
            found = self._examining.result(0)
        except TimeoutError:
            return
        self._examining = None
        self.show([*found, *terminal(os.environ, os.terminal_size(self.app.size))])

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
