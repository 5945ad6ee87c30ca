"""The live view of a run, running or finished: progress, speed, what it waits for, the devices, the log.

A thread reads the run folder and leaves a snapshot; a timer looks at the newest snapshot a few times a second and
repaints what has changed. Nothing here waits for the disk.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.screen import ModalScreen, Screen
from textual.widgets import Footer

from ...engine.runs import Run
from ..base.glyphs import Glyphs, glyphs_of
from ..drawing import panels, verdict
from ..drawing.charts import plots
from ..drawing.host import host, host_line
from ..drawing.layout import HEAD, Layout, Wanted, share_out
from ..drawing.plot import Plot, soon
from ..drawing.rows import Row
from ..reading.run_list import description
from ..reading.run_reader import Picture, RunReader
from ..reading.store import Snapshot
from ..widgets.chart import EMPTY, Chart
from ..widgets.gpu_cards import GpuCards
from ..widgets.log_view import LogPanel
from ..widgets.panel import Panel
from ..widgets.partial_updates import FrugalCompositor
from .common import LOSS
from .live_actions import LiveActions

REPAINT_SECONDS = 0.25  # repaint interval of the head with its spinner
FULL_EVERY = 2  # of these intervals; the rest is repainted no faster than figures can be read


class LiveScreen(LiveActions, Screen[None]):
    """`replay_speed` replays the recorded events, this many times as fast as they came."""

    CSS_PATH = "live.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "stop", "Stop"),
        Binding("r", "again", "Run again"),
        Binding("e", "change", "Change", show=False),
        Binding("d", "diagnosis", "Diagnosis"),
        Binding("g", "zoom('gpus')", "GPUs"),
        Binding("c", "zoom('charts')", "Charts", show=False),
        Binding("l", "zoom('log')", "Log"),
        Binding("w", "zoom('messages')", "Warnings"),
        Binding("left_square_bracket,right_square_bracket", "page", "More charts", key_display="]", show=False),
        Binding("slash", "search", "Search in the log", key_display="/", show=False),
        Binding("n", "found(1)", "Next found", show=False),
        Binding("N", "found(-1)", "Previous found", show=False),
        Binding("down,j", "pick(1)", "Next GPU", key_display="down", show=False),
        Binding("up,k", "pick(-1)", "Previous GPU", key_display="up", show=False),
        Binding("f3,2", "app.live", "Live", show=False),  # for a binding that already exists
        Binding("escape", "back", "Back"),
    ]

    HELP_SECTIONS = (("Marks", (("•", "a GPU that this run uses"), ("!", "throttled, and by what"))), LOSS)

    def __init__(
        self, run: Run, replay_speed: float | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        super().__init__()
        self._compositor = FrugalCompositor()
        self.run_folder, self.replay_speed, self._clock = run, replay_speed, clock
        self.description = ""
        self.picture = self.picture_read = Picture()
        self.zoom = ""
        self.page = 0
        self._layout_now: Layout | None = None
        self._leaving = threading.Event()
        self._looks = -1
        self._offered: tuple[object, ...] = ()

    @property
    def now(self) -> Snapshot:
        return self.picture.snapshot

    @property
    def latest(self) -> Snapshot:
        """The last picture, even while another screen is in front."""
        return self.picture_read.snapshot

    @property
    def pages(self) -> int:
        layout = self._layout_now
        return -(-len(plots(self.now)) // (layout.chart_columns * layout.chart_rows)) if layout else 1

    @property
    def glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    def compose(self) -> ComposeResult:
        yield Panel(self._head, id="head")
        yield Panel(self._messages, id="messages")
        yield Panel(lambda width, height: panels.summary(self.now, width), id="summary")
        yield Container(id="charts")
        yield GpuCards(id="devices")
        yield Panel(self._host, id="host")
        yield LogPanel(id="log")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.read()
        self.set_interval(REPAINT_SECONDS, self._look)

    def on_unmount(self) -> None:
        self._leaving.set()

    @work(thread=True, group="reading")
    def read(self) -> None:
        """Until the screen is closed: read what is new and leave a picture."""
        self.description = description(self.run_folder)
        feed = RunReader(self.run_folder, self.replay_speed, self._clock)
        while not self._leaving.is_set():
            behind = feed.poll()
            self.picture_read = feed.picture
            if not behind:
                self._leaving.wait(REPAINT_SECONDS * (10 if feed.ended else 1))

    def _look(self) -> None:
        """Show a new picture, unless another screen is in front."""
        seen = self.app.screen
        if self.picture_read is self.picture or (seen is not self and not isinstance(seen, ModalScreen)):
            return
        self.picture = self.picture_read
        self._looks += 1
        if self._looks % FULL_EVERY and self.now.outcome is None:
            self.query_one("#head", Panel).repaint()
        else:
            self.show_now()

    def on_resize(self) -> None:
        self.show_now()

    def show_now(self) -> None:
        """Show the present picture, in a layout that suits it."""
        charts = plots(self.now)
        layout = self._arranged(len(charts))
        self._show_charts(charts, layout)
        self._show_gpus(layout)
        for panel in self.query(Panel):
            if panel.display:
                panel.repaint()
        if layout.log:
            self.query_one(LogPanel).show(self.picture.log, self.picture.log_count)
        self._offer()

    def _offer(self) -> None:
        """Update the keys in the footer that depend on the run."""
        offered = self.now.outcome, bool(self.now.warnings or self.now.error), self.pages > 1
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    # ---- what the panels are made of ------------------------------------------------------------

    def _head(self, width: int, height: int) -> list[Row]:
        note = "stopping" if self.stopping and self.now.outcome is None else ""
        if self.replay_speed:
            note = f"replay {self.glyphs.hint} {self.replay_speed:g} times as fast"
        return panels.head(self.run_folder.id, self.description, note, self.now, width, self.glyphs)

    def _messages(self, width: int, height: int) -> list[Row]:
        return panels.messages(self.now, width, height, self.glyphs)

    def _host(self, width: int, height: int) -> list[Row]:
        if height == 1:
            return [host_line(self.now, width, self.glyphs)]
        return host(self.now, width, height, self.glyphs)

    # ---- their arrangement ----------------------------------------------------------------------

    def _arranged(self, charts: int) -> Layout:
        width, height = self.size.width - 2, self.size.height - 1
        wanted = Wanted(
            charts=charts,
            gpus=len(self.now.gpus),
            messages=len(panels.messages(self.now, width, 1000, self.glyphs)),
            summary=panels.summary_height(self.now, width),
            head=HEAD + verdict.is_due(self.now),
        )
        layout = share_out(width, height, wanted, self.zoom)
        if layout != self._layout_now:
            self._layout_now = layout
            self._apply(layout)
        self.query_one("#head").styles.height = wanted.head
        return layout

    def _apply(self, layout: Layout) -> None:
        for name in ("messages", "summary", "charts", "devices", "host", "log"):
            part, height = self.query_one(f"#{name}"), getattr(layout, name)
            part.display = height > 0
            part.styles.height = height
        self.query_one("#charts").styles.grid_size_columns = layout.chart_columns

    def _show_charts(self, charts: list[Plot], layout: Layout) -> None:
        room = layout.chart_columns * layout.chart_rows
        first = self.page % -(-len(charts) // room) * room
        shown = charts[first:][:room]
        grid = self.query_one("#charts")
        known = list(grid.query(Chart))
        if len(known) < room:
            grid.mount_all(Chart() for _ in range(room - len(known)))
            known = list(grid.query(Chart))
        for position, chart in enumerate(known):
            chart.display = position < room
            if layout.charts and position < room:
                chart.show(shown[position] if position < len(shown) else EMPTY)

    def _show_gpus(self, layout: Layout) -> None:
        end = max(1.0, self.now.elapsed) if self.now.outcome else soon(self.now.elapsed)
        self.query_one(GpuCards).show(self.now.gpus, end, layout.cards)
