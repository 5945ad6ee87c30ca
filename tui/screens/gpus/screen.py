"""The screen of all GPUs and the host as they are now, with or without a run.

A thread asks the driver while this screen is in front. A driver that is slow or never answers delays nothing.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType

from ....engine.figures import GPU
from ....engine.telemetry import hardware
from ...base import keys
from ...base.errors import clean
from ...base.settings import Charts
from ...drawing import charts
from ...drawing.host import host, host_line
from ...drawing.live import messages
from ...drawing.live.layout import EDGES_HEIGHT, EDGES_WIDTH, Cards, arrange_whole
from ...drawing.plot.curves import Plot
from ...drawing.plot.scales import soon
from ...drawing.rows import Row, length, spread, whole_words
from ...reading.machine_reader import MachineReader
from ...reading.run.snapshot import Snapshot
from ...upstream.partial_updates import send_changed_cells
from ...widgets.gpu_cards import GpuCards
from ...widgets.key_footer import KeyFooter
from ...widgets.painted import Panel
from ..base import FollowingScreen
from ..header import Header
from ..help import NOT_OFFERED

STUCK_SECONDS = 5.0
MESSAGE_ROWS = 4
NOTHING_READ = Snapshot()


class GpusScreen(FollowingScreen[Snapshot]):
    """Shows all GPUs and the host. It reads while it is in front, also if a dialog or the help lies over it."""

    CSS_PATH = "gpus.tcss"
    HELP_SECTIONS = (
        ("Marks", (("•", "a GPU that your run uses"), ("!", "throttled, and by what"), NOT_OFFERED)),
        (
            "Figures",
            (
                ("mem", GPU["memory_busy"].about),
                ("slowed", "the part of the time since the first reading in which each cause has held the clock down"),
                ("in all", "since the driver was loaded"),
                (
                    "lease",
                    "who has the GPU, for what and since when",
                ),
                ("idle", "since when a process was not seen to use the GPU"),
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
        self.reader = MachineReader()
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
        self.reader = MachineReader()
        yield from self.reader.follow(leaving)

    def read_again(self) -> None:
        """Begin new readings, and forget the old readings, which would be outdated when the screen is
        in front again.
        """
        self.latest = None
        super().read_again()

    def show_latest(self) -> None:
        self.show_now()

    def on_resize(self) -> None:
        self.show_now()

    def show_now(self) -> None:
        """Show the newest readings, arranged for the size of the screen."""
        now = self.now
        width, height = self.size.width - 2, self.size.height - 2
        messages = len(self._messages(width, MESSAGE_ROWS))
        self._room("#messages", messages)
        edges = width >= EDGES_WIDTH and height >= EDGES_HEIGHT
        self._room("#devices", max(0, height - messages - 1) if now.gpus else 0)
        self._room("#host", 1 if now.gpus else max(0, height - messages))
        around = 2 * edges
        cards = Cards()
        if now.gpus:
            cards = arrange_whole(width - around, height - messages - 1 - around, len(now.gpus))
        self.query_one(GpuCards).show(now.gpus, soon(now.elapsed), cards, edges)
        for panel in self.query(Panel):
            panel.repaint()
        if self._detailed != bool(cards.detail):
            self._detailed = bool(cards.detail)
            self.refresh_bindings()

    def _room(self, name: str, rows: int) -> None:
        part = self.query_one(name)
        part.display = rows > 0
        part.styles.height = max(1, rows)

    def _messages(self, width: int, height: int) -> list[Row]:
        """Return the reason why there is no GPU or no reading, which is no error, then the messages of the reader."""
        rows: list[Row] = []
        if reason := self.now.no_gpu_reason:
            doctor = f"{self.app.key('doctor')} (doctor)"
            what, then = ("no GPU", f"training runs on the CPU; {doctor} shows why")
            if hardware.has_device_nodes():
                what, then = ("no GPU readings", f"CUDA may work without NVML; {doctor} says what to do")
            rows = [[(line, "value")] for line in messages.wrapped(f"{what}: {reason}", width)]
            rows.append([(f"{self.glyphs.hint} {then}", "label")])
        return [*rows, *messages.rows(self.now, width, max(0, height - len(rows)), self.glyphs)][:height]

    def _title(self, width: int, _height: int) -> list[Row]:
        names = Counter(clean(gpu.name or "GPU").removeprefix("NVIDIA ") for gpu in self.now.gpus)
        kinds = ", ".join(f"{count} x {name}" for name, count in names.items())
        right = [("  ", ""), (self._pace(), "label")]
        text = whole_words(kinds or "the host", width - length(right), self.glyphs)
        return [spread([(text, "title")], right, width)]

    def _pace(self) -> str:
        """Return in words how often the GPUs are read, or that the driver has not answered."""
        if self.reader.stuck_seconds > STUCK_SECONDS:
            return f"the NVIDIA driver has not answered for {self.reader.stuck_seconds:.0f} s"
        if self.now.gpu_seconds is not None:
            run = f"{clean(self.reader.run.id)} is running, " if self.reader.run else ""
            return f"{run}read every {self.now.gpu_seconds:.1f} s"
        return "" if self.now.no_gpu_reason else "asking the NVIDIA driver ..."

    def _host(self, width: int, height: int) -> list[Row]:
        alone = self.reader.run is None
        if height == 1:
            return [host_line(self.now, width, self.glyphs, alone)]
        return host(self.now, width, height, self.glyphs, alone)

    # ---- keys -------------------------------------------------------------------------------------

    def check_action(self, action: str, _parameters: tuple[object, ...]) -> bool | None:
        """Allow selecting a GPU only if the cards do not show all figures."""
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

    def axes(self) -> tuple[str, ...]:
        return ("time",)

    def foot(self, width: int) -> Row:
        return host_line(self.now, width, self.glyphs, self.reader.run is None)

    def action_processes(self) -> None:
        from .processes import ProcessesScreen  # only when it is asked for

        self.app.push_screen(ProcessesScreen(self))

    def action_chart(self) -> None:
        from ..chart import ChartScreen  # only when it is asked for

        if self.latest is not None:
            self.app.push_screen(ChartScreen(self, ""))
