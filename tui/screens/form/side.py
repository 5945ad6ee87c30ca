"""The side of the form: the help of an option, its values in the last runs, and the preset's file as saving writes it.
Deferred imports: the runs and the file are read in threads, after the first paint."""

from __future__ import annotations

import re
import textwrap
from typing import TYPE_CHECKING, NamedTuple

from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Static

from ....engine.finding import Finding
from ....engine.units import counted
from ...base.errors import clean
from ...drawing.rows import Row
from ...form.form_state import FormState
from ...upstream.thread_imports import in_background
from ...widgets.option_help import group_text, help_text
from ...widgets.option_row import OptionRow
from ...widgets.options_view import Stop
from ...widgets.row_widgets import Panel

if TYPE_CHECKING:
    from ....engine.presets import Preset
    from ...base.base_app import BaseApp
    from ...form.file_text import FileText
    from ...reading.option_runs import Experience, ExperienceReader

FILE_ROWS = 30  # of the terminal: from these on the file has room
BROAD, WIDE = 160, 172  # columns: from these on the last runs are shown; the side is right of the options
OPTIONS_WIDTH = 118  # columns that the options keep next to the side
LEAST_WIDTH = 54
STYLES = {"+": "good", "-": "label"}  # of lines that differ, by the marks of form/file_text.py
TINY = 14  # below this height of the terminal the help has one row


class FormSide(Vertical):
    """Shows the option or group under the cursor: `show`. `load` gives it another preset."""

    app: BaseApp

    def __init__(self, state: FormState, last_runs: Static) -> None:
        """`last_runs` is the line that shows the last runs of the preset, if the terminal is high enough."""
        super().__init__(id="side")
        self._last_runs = last_runs
        self.state = state
        self._stop: Stop | None = None
        self._experience: Experience | None = None
        self._reader: ExperienceReader | None = None
        self._file: FileText | None = None
        self._written: Preset | None = None  # the preset of `_file`
        self._top = 0  # the first row of the file that is shown

    def compose(self) -> ComposeResult:
        with VerticalScroll(id="help-scroll", can_focus=False):
            yield Static(id="help", markup=False)
        yield Static(id="experience", markup=False)
        if self.has_class("-file"):
            yield self._file_panel()

    def _file_panel(self) -> Panel:
        return Panel(self._file_rows, id="file")

    def fit(self, terminal: Size) -> None:
        """Set width and parts for the terminal, before `compose` too. The file's widget is made when first shown."""
        wide = terminal.width >= WIDE
        self.styles.width = max(LEAST_WIDTH, terminal.width - OPTIONS_WIDTH) if wide else "1fr"
        if (broad := terminal.width >= BROAD and terminal.height >= TINY) != self.has_class("-broad"):
            self._experience = None  # a broad side shows more of it
        self.set_class(broad, "-broad")
        self.set_class(wide and terminal.height >= FILE_ROWS and self.app.settings.form.file_view, "-file")
        if self.is_attached and self.has_class("-file") and not self.query("#file"):
            self.mount(self._file_panel())

    # ---- reading ----------------------------------------------------------------------------------

    def load(self, state: FormState) -> None:
        self.state, self._experience = state, None
        self.read()

    def read(self) -> None:
        if self._experience is None:
            self.read_runs()
        self.read_file()

    def read_runs(self) -> None:
        """Read the runs of the preset in a thread, and all proofs, if they are shown."""
        preset, broad = self.state.name, self.has_class("-broad")

        def read() -> Experience:
            from ...reading.option_runs import LAST_RUNS, ExperienceReader

            self._reader = self._reader or ExperienceReader()
            return self._reader.read(preset, None if broad else LAST_RUNS)

        def take(experience: Experience) -> None:
            if preset == self.state.name:
                self._experience = experience
                self._show_experience()

        if broad or self._last_runs.display:
            in_background(self, read, take)

    def read_file(self) -> None:
        """Make the text of the preset's file in a thread, if it is shown and the options have changed."""
        state, preset = self.state, self.state.preset

        def read() -> FileText:
            from ...form.file_text import file_text

            return file_text(preset, state.path, state.opened_text)

        def take(text: FileText) -> None:
            if preset is self._written:
                self._file = text
                self._show_file()

        if self.has_class("-file") and preset is not self._written:
            self._written = preset
            in_background(self, read, take)

    # ---- showing ----------------------------------------------------------------------------------

    def show(self, stop: Stop, remarks: list[Finding]) -> None:
        self._stop = stop
        scroll = self.query_one("#help-scroll")
        width = (scroll.size.width or self.app.size.width - 2) - 1  # one for a scrollbar
        if not isinstance(stop, OptionRow):
            text = group_text(stop.group, stop.applicable, width)
        elif self.app.size.height < TINY:
            text = Content.assemble((stop.key, "bold $text-primary"), f"  {stop.info.about.help}")
        else:
            text = help_text(stop.key, self.state, stop.locked, remarks, width)
        self.query_one("#help", Static).update(text)
        self._show_experience()
        self._show_file()

    @property
    def _key(self) -> str:
        return self._stop.key if isinstance(self._stop, OptionRow) else ""

    def _show_experience(self) -> None:
        panel = self.query_one("#experience", Static)
        line, text = Content(), Content()
        if self._experience is not None:
            from ...widgets.option_experience import experience_text, last_runs

            line = last_runs(self._experience, self._last_runs.content_size.width)
            width = panel.content_size.width or LEAST_WIDTH
            text = experience_text(self._experience, self._key, self.state, width) if self._key else text
        self._last_runs.update(line)
        panel.update(text)

    def _show_file(self) -> None:
        if self.has_class("-file"):
            self.query_one("#file", Panel).repaint()

    def _file_rows(self, width: int, height: int) -> list[Row]:
        """The name of the file, the number of changed lines, and the part of the file with the option."""
        if (file := self._file) is None:
            return []
        at = file.places.get(self._key)
        notes = [counted(file.changes, "changed lines") if file.changes else "as saved"]
        notes += [f"without {self._key}"] if self._key and at is None else []
        name = self.state.path.name if self.state.path is not None else f"{self.state.name}.yaml"
        head: Row = [(clean(name), "title"), (f"  {file.problem or ', '.join(notes)}", "label")]
        rows: list[_FileRow] = []
        for number, (mark, line) in enumerate(file.lines):
            text = clean(line)
            style = STYLES.get(mark) or ("label" if text.lstrip().startswith("#") else "value")
            indent = " " * (len(text) - len(text.lstrip()) + 2)  # from the second of its rows on
            wrapped = textwrap.wrap(text, max(16, width - 2), subsequent_indent=indent, break_on_hyphens=False) or [""]
            rows += [_FileRow("" if part else mark, row, style, number == at) for part, row in enumerate(wrapped)]
        selected = [number for number, row in enumerate(rows) if row.selected]
        room = height - 1
        if selected and not self._top <= selected[0] <= selected[-1] < self._top + room:
            self._top = selected[0] - room // 2
        self._top = max(0, min(self._top, len(rows) - room))
        name = self._key.partition(".")[2]
        return [head, *(row.pieces(name) for row in rows[self._top : self._top + room])]


class _FileRow(NamedTuple):
    """A row of the file: its mark (empty if it goes on with a line), its text and style, and whether its line has the
    option under the cursor."""

    mark: str
    text: str
    style: str
    selected: bool

    def pieces(self, name: str) -> Row:
        row: Row = [(f"{'>' if self.selected and self.mark else ' '}{self.mark or ' '}", "title")]
        option = re.search(rf"\b{name}\s*:[^,}}#]*", self.text) if self.selected else None
        begin, end = option.span() if option else (0, 0)
        pieces = (self.text[:begin], self.style), (self.text[begin:end], "here"), (self.text[end:], self.style)
        return [*row, *(piece for piece in pieces if piece[0])]
