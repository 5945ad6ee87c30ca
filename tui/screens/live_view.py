"""What the live view of a run shows: progress, speed, what it waits for, the devices, the log.

A thread reads the run folder a few times a second; what differs on the screen is painted anew.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

from textual.app import ComposeResult
from textual.containers import Container

from ...engine.runs import Run
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
from ..widgets.key_footer import KeyFooter
from ..widgets.log_view import LogPanel
from ..widgets.panel import Panel
from ..widgets.partial_updates import ChangedCellsCompositor
from .base import FollowingScreen

READ_SECONDS = 0.25  # the head with its spinner is painted with every reading
ENDED_READ_SECONDS = 2.5
FULL_EVERY = 2  # of the readings; the rest is repainted no faster than figures can be read
NOTHING_READ = Picture()


class LiveView(FollowingScreen[Picture]):
    """The live view without its keys; `replay_speed` replays the recorded events, this many times as fast."""

    CSS_PATH = "live.tcss"
    FOLLOWS_COVERED = True  # its diagnosis lies over it

    def __init__(
        self, run: Run, replay_speed: float | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        super().__init__()
        self._compositor = ChangedCellsCompositor()
        self.run_folder, self.replay_speed, self._clock = run, replay_speed, clock
        self.description, self.stopping = "", False
        self.zoom = ""
        self.page = 0
        self._layout_now: Layout | None = None
        self._times_shown = -1
        self._offered: tuple[object, ...] = ()

    @property
    def picture(self) -> Picture:
        return self.latest or NOTHING_READ

    @property
    def now(self) -> Snapshot:
        return self.picture.snapshot

    @property
    def pages(self) -> int:
        layout = self._layout_now
        return -(-len(plots(self.now)) // (layout.chart_columns * layout.chart_rows)) if layout else 1

    def compose(self) -> ComposeResult:
        yield Panel(self._head, id="head")
        yield Panel(self._messages, id="messages")
        yield Panel(lambda width, height: panels.summary(self.now, width), id="summary")
        yield Container(id="charts")
        yield GpuCards(id="devices")
        yield Panel(self._host, id="host")
        yield LogPanel(id="log")
        yield KeyFooter()

    def readings(self, leaving: threading.Event) -> Iterator[Picture]:
        """A picture a few times a second; what is behind reads on without a pause."""
        self.description = description(self.run_folder)
        reader = RunReader(self.run_folder, self.replay_speed, self._clock)
        picture, due = reader.picture, 0.0
        while not leaving.is_set():
            behind = reader.poll()
            if reader.picture is not picture and (not behind or time.monotonic() >= due):
                picture, due = reader.picture, time.monotonic() + READ_SECONDS
                yield picture
            if not behind:
                leaving.wait(ENDED_READ_SECONDS if reader.ended else READ_SECONDS)

    def show_latest(self) -> None:
        """The head each time, all else less often while the run goes on."""
        self._times_shown += 1
        if self._times_shown % FULL_EVERY and self.now.outcome is None:
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
