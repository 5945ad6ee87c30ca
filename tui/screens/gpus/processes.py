"""The processes that use the GPUs: for each user a tree of them, with the processes above and below them.

The screen shows processes and ends none.
"""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Iterator
from typing import ClassVar, Protocol

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType

from ....engine.units import counted, size
from ...base import keys
from ...base.errors import clean
from ...base.themes import painted_colour
from ...drawing.gpu_details import doing
from ...drawing.rows import Row, fitting
from ...reading.gpu_leases import overview
from ...reading.gpu_users import Line, Users, numbers, read
from ...reading.run.snapshot import Snapshot
from ...reading.run_list import when_text
from ...widgets.key_footer import KeyFooter
from ...widgets.painted import Panel
from ...widgets.table import Column, Table
from ..base import FollowingScreen
from ..header import Header

READ_SECONDS = 2.0
LEASE_ROWS = 3
WIDTHS = {"process": 0, "pid": 8, "GPU": 6, "memory": 9, "since": 7, "use": 22}
RIGHT = ("pid", "GPU", "memory", "since")
RICH_EDGES, PLAIN_EDGES = ("│ ", "  ", "├ ", "└ "), ("| ", "  ", "|-", "`-")


class Source(Protocol):
    """The screen of the GPUs."""

    @property
    def now(self) -> Snapshot: ...


class ProcessTable(Table):
    """A table in which Enter on a row has no effect."""

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool | None:
        return action != "select_cursor"


class ProcessesScreen(FollowingScreen[Users]):
    """Shows the readings of the GPU screen below it, which continues to read."""

    DEFAULT_CSS = """
    ProcessesScreen { layout: vertical; background: $background; }
    ProcessesScreen #status { padding: 0 1; height: 2; }
    ProcessesScreen #leases { padding: 0 1; display: none; }
    """
    AUTO_FOCUS = "DataTable"
    HELP_SECTIONS = (
        (
            "Columns",
            (
                ("memory", "what a process takes of the GPUs' memory"),
                ("since", "when it was started"),
                ("busy", "how much of the time it has used the GPU's multiprocessors in the last second"),
                ("idle", "since when it has not used the GPU, by what gputui has seen each second since it looks"),
                (
                    "GPU 0: free",
                    "above the table: who has leased a GPU, for what and since when, or why it is not free",
                ),
                ("not visible", "of another user, whom the system hides, or outside of this container"),
            ),
        ),
    )
    BINDINGS: ClassVar[list[BindingType]] = [*keys.back()]

    def __init__(self, source: Source) -> None:
        super().__init__()
        self.source = source

    def compose(self) -> ComposeResult:
        yield Header()
        yield Panel(self._leases, id="leases")
        yield ProcessTable(cursor_type="row", cell_padding=0)
        yield Panel(self._status, id="status")
        yield KeyFooter()

    def readings(self, leaving: threading.Event) -> Iterator[Users]:
        while not leaving.is_set():
            yield read(self.source.now.gpus)
            leaving.wait(READ_SECONDS)

    def show_latest(self) -> None:
        widths = WIDTHS | {"process": max(10, self.size.width - sum(WIDTHS.values()) - 1)}  # a scrollbar may come
        columns = [Column(name, _heading(name), width) for name, width in widths.items()]
        lines = self.latest.lines if self.latest else ()
        self.query_one(Table).fill(columns, {line.key: self._cells(line, widths["process"]) for line in lines})
        self._show_leases()
        self.query_one("#status", Panel).repaint()

    def _show_leases(self) -> None:
        panel = self.query_one("#leases", Panel)
        rows = len(self._leases(self.size.width - 2, LEASE_ROWS))
        panel.display = rows > 0
        panel.styles.height = max(1, rows)
        panel.repaint()

    def on_resize(self) -> None:
        if self.latest is not None:
            self.show_latest()

    def on_data_table_row_highlighted(self) -> None:
        self.query_one("#status", Panel).repaint()

    def _leases(self, width: int, height: int) -> list[Row]:
        """Return who has leased which GPU, in at most `height` rows."""
        lines = textwrap.wrap(clean(overview(self.source.now.gpus)), max(10, width))
        if len(lines) > height:
            lines[height - 1] = fitting(" ".join(lines[height - 1 :]), width, self.glyphs)
        return [[(line, "value")] for line in lines[:height]]

    def _cells(self, line: Line, width: int) -> list[Text]:
        process, user = line.process, line.process is None
        strong = "bold" if user else "" if line.gpus else painted_colour(self.app, "label")
        own = f"{self.glyphs.point} this run  " if process is not None and process.own else ""
        cells = {
            "process": f" {'' if user else ' '}{self._edges(line)}{own}{clean(line.text)}",
            "pid": "" if process is None or line.alike > 1 else str(process.pid),
            "GPU": numbers(line.gpus),
            "memory": size(line.memory_bytes) if line.gpus else "",
            "since": when_text(process.started) if process is not None and process.started else "",
            "use": f"  {doing(process)}" if process is not None and line.gpus else "",
        }
        return [
            Text(
                fitting(text, width if name == "process" else WIDTHS[name], self.glyphs),
                style=strong,
                no_wrap=True,
                justify="right" if name in RIGHT else "left",
            )
            for name, text in cells.items()
        ]

    def _edges(self, line: Line) -> str:
        """Return the lines that connect a process with its parents in the tree, as characters."""
        on, none, more, last = RICH_EDGES if self.glyphs.braille else PLAIN_EDGES
        above = "".join(on if goes_on else none for goes_on in line.edges[:-1])
        return above + "".join(more if goes_on else last for goes_on in line.edges[-1:])

    def _status(self, width: int, height: int) -> list[Row]:
        """Return two rows if there is room: the GPUs whose processes are unknown, and the whole command of the process
        under the cursor.
        """
        rows: list[Row] = []
        users = self.latest or Users()
        if users.unknown:
            rows.append([(fitting(f"processes not known of {clean(users.unknown)}", width, self.glyphs), "warn")])
        key = self.query_one(Table).current_key
        line = next((line for line in users.lines if line.key == key), None)
        text = "" if line is None else clean(line.text)
        if line is None and not users.unknown:
            now = self.source.now
            text = now.no_gpu_reason or ("no process uses a GPU" if now.gpus else "asking the NVIDIA driver ...")
        if line is not None and line.process is None:
            text = f"{text}: {counted(line.count, 'processes')} on GPU {numbers(line.gpus)}"
        room = max(0, height - len(rows))
        pieces = [text[at : at + width] for at in range(0, len(text), max(1, width))][:room]
        return [*rows, *([(piece, "label")] for piece in pieces)]


def _heading(name: str) -> Text:
    text = f" {name}" if name == "process" else f"  {name}" if name == "use" else name
    return Text(text, justify="right" if name in RIGHT else "left")
