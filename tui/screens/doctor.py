"""The doctor: findings about this machine in a table. The machine is examined in a thread that ends with the process:
gputui can be left even if a driver hangs."""

from __future__ import annotations

import os
import textwrap
import threading
from collections.abc import Iterator, Mapping
from functools import partial
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType

from ...engine.doctor import Examination
from ...engine.finding import Finding, errors, worst_first
from ...engine.system.child_process import BackgroundCall
from ..base import keys
from ..base.themes import colour, painted_colour
from ..drawing.rows import Row
from ..widgets.key_footer import KeyFooter
from ..widgets.row_widgets import Panel
from ..widgets.table import ReadTable
from ..wording.doctor import cells, conclusion, sign, terminal
from .base import FollowingScreen, Header
from .table import TableColumn, TableScreen

COLOURS = {"ok": "success", "note": "primary", "warning": "warning", "error": "error"}
LOOKING = "checking ..."
POLL_SECONDS = 0.1
LEAST_WIDTH = 20  # of the findings, however narrow the terminal


class _Findings(ReadTable):
    ROW_HEIGHT = None


class DoctorScreen(TableScreen[Finding], FollowingScreen[list[Finding]]):
    """Shows the findings about this machine. A deep check also imports TensorFlow."""

    CSS_PATH = "doctor.tcss"
    FOLLOWS_COVERED = True  # a deep check takes its time
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("start", "examine(False)", "Check again", meaning="check again"),
        keys.bind("deep", "examine(True)"),
        *keys.back(),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.findings: list[Finding] = []
        self.deep, self.progress_text = False, LOOKING
        self._examination: Examination | None = None

    def compose(self) -> ComposeResult:
        yield Header()
        yield _Findings(cursor_type="row", cell_padding=1)
        yield Panel(self._status_lines, id="status")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.show_table()

    def on_unmount(self) -> None:
        if self._examination is not None:
            self._examination.end()

    def action_examine(self, deep: bool) -> None:
        if not self.progress_text:
            self.deep, self.progress_text = deep, "importing TensorFlow ..." if deep else LOOKING
            self._show_status()
            self.read_again()

    def readings(self, leaving: threading.Event) -> Iterator[list[Finding]]:
        """Yield the findings, made in a daemon thread: a driver that hangs does not keep this one from ending."""
        if leaving.is_set():
            return
        self._examination = Examination(self.deep, self.app.training_python)
        examining = BackgroundCall(self._examination.findings)
        while not leaving.is_set():
            try:
                yield examining.result(POLL_SECONDS)
                return
            except TimeoutError:
                continue

    def watch_latest(self) -> None:
        self.progress_text = ""  # only when an examination has ended, not when a dialog over the screen has closed
        super().watch_latest()

    def show_latest(self) -> None:
        self.show(worst_first([*(self.latest or []), *terminal(os.environ, os.terminal_size(self.app.size))]))

    def show(self, findings: list[Finding]) -> None:
        self.findings = findings
        self.show_table()
        self._show_status()

    @property
    def entries(self) -> Mapping[str, Finding]:
        return {str(number): finding for number, finding in enumerate(self.findings)}

    def columns(self) -> list[TableColumn[Finding]]:
        """The last column gets the rest of the width, and its long texts are wrapped."""
        levels = [f"{sign(finding.level)} {finding.level}" for finding in self.findings]
        names = ["about", *(finding.about for finding in self.findings)]

        def cell(at: int, finding: Finding) -> Text:
            return cells(finding, colour(self.app, COLOURS[finding.level]), painted_colour(self.app, "label"))[at]

        widths = (max(map(len, levels), default=0), max(map(len, names)), 0)
        heads = ("", "about", "what")
        return [TableColumn(head, widths[at], partial(cell, at)) for at, head in enumerate(heads)]

    def _show_status(self) -> None:
        panel = self.query_one("#status", Panel)
        panel.styles.height = len(self._status_lines(self.size.width - 2, 0))
        panel.repaint()

    def _status_lines(self, width: int, _height: int) -> list[Row]:
        text, style = self.progress_text, "label"
        if not text:
            broken = bool(errors(self.findings))  # a missing GPU is no error
            text, style = conclusion(self.findings), "bad" if broken else "value"
            text = f"{sign('error')} {text}" if broken else text
        return [[(line, style)] for line in textwrap.wrap(text, max(LEAST_WIDTH, width))]
