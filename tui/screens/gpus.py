"""The screen of all GPUs and the host as they are now, with or without a run. A thread asks the driver while this
screen is in front. A driver that is slow or never answers delays nothing."""

from __future__ import annotations

import textwrap
import threading
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from ...engine.figures import GPU
from ...engine.leases.gpu_use import HOW_IDLE
from ...engine.telemetry import chips
from ...engine.units import counted, size
from ..base import keys
from ..base.errors import clean
from ..base.settings import Charts
from ..drawing import charts
from ..drawing.gpu_details import doing, host, host_line
from ..drawing.live import head
from ..drawing.live.layout import EDGES_HEIGHT, EDGES_WIDTH, Cards, arrange_whole
from ..drawing.live.phases import CATCHING_UP
from ..drawing.plot.axes import soon
from ..drawing.plot.curves import Plot
from ..drawing.rows import Row, fitting, spread, whole_words
from ..reading.machine import Line, MachineReader, not_known, overview, users_of
from ..reading.run.gpu_reading import numbers
from ..reading.run.snapshot import Snapshot
from ..reading.run_list import when_text
from ..upstream.partial_updates import send_changed_cells
from ..widgets.gpu_cards import GpuCards
from ..widgets.key_footer import KeyFooter
from ..widgets.row_widgets import Panel
from ..widgets.table import ReadTable
from .base import FollowingScreen, Header
from .chart import ChartSource
from .help import NOT_OFFERED
from .table import TableColumn, TableScreen

if TYPE_CHECKING:
    from .live.screen import LiveScreen

LEASE_ROWS = 3


class ProcessesScreen(TableScreen[Line]):
    """Shows the processes that use the GPUs of `source`, the screen below it, which continues to read."""

    DEFAULT_CSS = """
    ProcessesScreen { layout: vertical; background: $background; }
    ProcessesScreen #detail { padding: 0 1; height: 2; }
    ProcessesScreen #leases { padding: 0 1; display: none; }
    """
    HELP_SECTIONS = (
        (
            "Columns",
            (
                ("memory", "what a process takes of the GPUs' memory"),
                ("since", "when it was started"),
                ("busy", "how much of the time it has used the GPU's multiprocessors in the last second"),
                ("idle", "since when it has not used the GPU, by what gputui has seen each second since it looks"),
                ("idle for 3 h", HOW_IDLE),
                (
                    "GPU 0: free",
                    "above the table: who has leased a GPU, for what and since when, or why it is not free",
                ),
                ("not visible", "of another user, whom the system hides, or outside of this container"),
            ),
        ),
    )
    BINDINGS: ClassVar[list[BindingType]] = [*keys.back()]

    def __init__(self, source: GpusScreen) -> None:
        super().__init__()
        self.source = source

    def compose(self) -> ComposeResult:
        yield Header()
        yield Panel(self._leases, id="leases")
        yield ReadTable(cursor_type="row", cell_padding=0)
        yield Panel(self._status, id="detail")
        yield KeyFooter()

    def on_mount(self) -> None:
        self.watch(self.source, "latest", self.show_table)

    @property
    def entries(self) -> Mapping[str, Line]:
        return {line.key: line for line in users_of(self.source.now.gpus)}

    def columns(self) -> list[TableColumn[Line]]:
        return [
            TableColumn(" process", 0, self._process),
            TableColumn("pid", 8, lambda row: str(row.process.pid) if row.process else "", "right"),
            TableColumn("GPU", 7, lambda row: f" {numbers(row.gpus)}", "right"),
            TableColumn("memory", 9, lambda row: size(row.memory_bytes), "right"),
            TableColumn("since", 7, _since, "right"),
            TableColumn("  use", 22, lambda row: f"  {doing(row.process)}" if row.process else ""),
        ]

    def style_of(self, line: Line) -> str:
        return "bold" if line.process is None else ""

    def _process(self, line: Line) -> str:
        own = f"{self.glyphs.point} this run  " if line.process is not None and line.process.own else ""
        return f" {'' if line.process is None else '  '}{own}{clean(line.text)}"

    def show_table(self) -> None:
        leases, rows = self.query_one("#leases"), len(self._leases(self.size.width - 2, LEASE_ROWS))
        leases.display, leases.styles.height = rows > 0, max(1, rows)
        super().show_table()

    def _leases(self, width: int, height: int) -> list[Row]:
        lines = textwrap.wrap(clean(overview(self.source.now.gpus)), max(10, width))
        if len(lines) > height:
            lines[height - 1] = fitting(" ".join(lines[height - 1 :]), width, self.glyphs)
        return [[(line, "value")] for line in lines[:height]]

    def _status(self, width: int, height: int) -> list[Row]:
        """The GPUs whose processes are not known, then the process' whole command or the reason why there is none."""
        rows: list[Row] = []
        if unknown := not_known(self.source.now.gpus):
            rows.append([(fitting(f"processes not known of {clean(unknown)}", width, self.glyphs), "warn")])
        line = self.current
        text = "" if line is None else clean(line.text)
        if line is None and not unknown:
            now = self.source.now
            text = now.no_gpu_reason or ("no process uses a GPU" if now.gpus else "asking the NVIDIA driver ...")
        if line is not None and line.process is None:
            text = f"{text}: {counted(line.count, 'processes')} on GPU {numbers(line.gpus)}"
        room = max(0, height - len(rows))
        pieces = [text[at : at + width] for at in range(0, len(text), max(1, width))][:room]
        return [*rows, *([(piece, "label")] for piece in pieces)]


def _since(line: Line) -> str:
    return when_text(line.process.started) if line.process is not None and line.process.started else ""


STUCK_SECONDS = 5.0
MESSAGE_ROWS = 4
NOTHING_READ = Snapshot()


class GpusScreen(ChartSource, FollowingScreen[Snapshot]):
    """Shows all GPUs and the host. It reads while it is in front, also if a dialog or the help lies over it."""

    CSS_PATH = "gpus.tcss"
    KEPT, kept_as = 1, "gpus"
    HELP_SECTIONS = (
        ("Marks", (("•", "a GPU that your run uses"), ("!", "throttled, and by what"), NOT_OFFERED)),
        (
            "Figures",
            (
                ("mem", GPU["memory_busy"].about),
                ("slowed", "the part of the time since the first reading in which each cause has held the clock down"),
                ("in all", "since the driver was loaded"),
                ("lease", "who has the GPU, for what and since when"),
                ("idle", "since when a process was not seen to use the GPU"),
                ("idle for 3 h", HOW_IDLE),
            ),
        ),
    )
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("down", "pick(1)", "Next GPU", meaning="the next GPU"),
        keys.bind("up", "pick(-1)", "Previous GPU", show=False, meaning="the GPU before"),
        keys.bind("first", "pick_edge(0)", "First GPU", show=False, meaning="the first GPU"),
        keys.bind("last", "pick_edge(-1)", "Last GPU", show=False, meaning="the last GPU"),
        keys.bind("open", "chart", "Charts", meaning="the charts of the GPUs over time"),
        keys.bind("processes"),
        *keys.back(),
    ]

    def __init__(self) -> None:
        super().__init__()
        send_changed_cells(self)
        self.reader, self._run_name = MachineReader(), ""
        self._detailed = False

    @property
    def now(self) -> Snapshot:
        return self.latest or NOTHING_READ

    def compose(self) -> ComposeResult:
        yield Header(Panel(self._title, id="title"))
        yield Panel(self._messages, id="messages")
        yield GpuCards(id="devices")
        yield Panel(self._host, id="host")
        yield KeyFooter()

    def readings(self, leaving: threading.Event) -> Iterator[Snapshot]:
        """Yield snapshots; the first when the driver has answered if GPUs were shown, so that they do not vanish."""
        self.reader = MachineReader()
        for now in self.reader.follow(leaving):
            self._run_name = clean(self.reader.run.name) if self.reader.run else ""
            if now.gpus or now.no_gpu_reason or not self.now.gpus or self.reader.stuck_seconds > STUCK_SECONDS:
                yield now

    def show_again(self) -> None:
        self.show_latest()  # also before the driver has answered

    def show_latest(self) -> None:
        now = self.now
        width, height = self.size.width - 2, self.size.height - 2
        head = len(self._messages(width, MESSAGE_ROWS))
        self._room("#messages", head)
        edges = width >= EDGES_WIDTH and height >= EDGES_HEIGHT
        self._room("#devices", max(0, height - head - 1) if now.gpus else 0)
        self._room("#host", 1 if now.gpus else max(0, height - head))
        around = 2 * edges
        cards = Cards()
        if now.gpus:
            cards = arrange_whole(width - around, height - head - 1 - around, len(now.gpus))
        ended = now.outcome is not None
        end = max(1.0, now.elapsed) if ended else soon(now.elapsed)
        self.query_one(GpuCards).show(now.gpus, end, cards, edges, ended)
        for panel in self.query(Panel):
            panel.repaint()
        self._detailed = bool(cards.detail)
        self.offer_by(self._detailed)

    def _room(self, name: str, rows: int) -> None:
        part = self.query_one(name)
        part.display = rows > 0
        part.styles.height = max(1, rows)

    def _messages(self, width: int, height: int) -> list[Row]:
        """The reason why there is no GPU or no reading (which is no error), then the messages of the reader."""
        rows: list[Row] = []
        if reason := self.now.no_gpu_reason:
            doctor = f"{self.app.key('doctor')} (doctor)"
            what, then = ("no GPU", f"training runs on the CPU; {doctor} shows why")
            if chips.has_device_nodes():
                what, then = ("no GPU readings", f"CUDA may work without NVML; {doctor} says what to do")
            rows = [[(line, "value")] for line in head.wrapped(f"{what}: {reason}", width)]
            rows.append([(f"{self.glyphs.hint} {then}", "label")])
        return [*rows, *head.message_rows(self.now, width, max(0, height - len(rows)), self.glyphs)][:height]

    def _title(self, width: int, _height: int) -> list[Row]:
        kinds = counted(len(self.now.gpus), "GPUs") if self.now.gpus else "the host"
        pace = self.pace if len(self.pace) <= width else self.pace.rpartition(", ")[2]  # without the run
        text = whole_words(kinds, width - len(pace) - 2, self.glyphs)
        return [spread([(text, "title")], [("  ", ""), (pace, "label")], width)]

    @property
    def pace(self) -> str:
        """How often the driver is read, or why not, in words."""
        if self.reader.stuck_seconds > STUCK_SECONDS:
            return f"driver: no answer for {self.reader.stuck_seconds:.0f} s"
        if self.is_stale:
            return CATCHING_UP
        if self.now.gpu_seconds is not None:
            run = f"{self._run_name} is running, " if self._run_name else ""
            return f"{run}read every {self.now.gpu_seconds:.1f} s"
        return "" if self.now.no_gpu_reason else "asking the NVIDIA driver ..."

    def _host(self, width: int, height: int) -> list[Row]:
        alone = self.reader.run is None
        if height == 1:
            return [host_line(self.now, width, self.glyphs, alone)]
        return host(self.now, width, height, self.glyphs, alone)

    # ---- keys -------------------------------------------------------------------------------------

    def can(self, action: str) -> bool | str:
        """True if the action has an effect now. Those that select a GPU have none if the cards show all figures."""
        return action not in ("pick", "pick_edge") or self._detailed

    def action_pick(self, by: int) -> None:
        self.query_one(GpuCards).pick(by)

    def action_pick_edge(self, number: int) -> None:
        self.query_one(GpuCards).pick_edge(number)

    # ---- its charts -----------------------------------------------------------------------------

    @property
    def about(self) -> str:
        return "this machine"

    def charts(self, drawn: Charts) -> list[Plot]:
        picked = self.query_one(GpuCards).picked
        return charts.of_machine(self.now, picked.index if picked else None, drawn)

    def foot(self, width: int) -> Row:
        return host_line(self.now, width, self.glyphs, self.reader.run is None)

    def action_processes(self) -> None:
        self.app.push_screen(ProcessesScreen(self))

    def action_chart(self) -> None:
        if self.latest is not None:
            self.open_chart("")


class RunGpusScreen(GpusScreen):
    """The same of the run of a live view, which is the screen below and continues to read."""

    KEPT, kept_as = 0, ""
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("gpus_of_run", "back", "Back", show=False, meaning="back to the live view")
    ]

    def __init__(self, source: LiveScreen) -> None:
        super().__init__()
        self.source = source
        self.reader.run = source.run_folder

    def on_mount(self) -> None:
        self.watch(self.source, "latest", self._take)

    def _take(self) -> None:
        self.latest = replace(self.source.now, warnings=(), error=None)  # the live view shows these

    def readings(self, _leaving: threading.Event) -> Iterator[Snapshot]:
        yield from ()

    @property
    def about(self) -> str:
        return self.source.about

    @property
    def pace(self) -> str:
        return self.about
