"""The layout of the live view: progress, speed, the causes of waiting, the devices, the log. A thread reads the run
folder a few times a second; only differences are painted."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from textual import on, work
from textual.app import ComposeResult
from textual.worker import get_current_worker

from ....engine.runs import Run, title
from ....engine.runs.checkpoint_files import steps_in
from ....engine.runs.titles import read_notes
from ...base.errors import clean
from ...base.settings import Charts
from ...drawing.charts import on_one_axis
from ...drawing.host import host, host_line, no_gpu
from ...drawing.live import chart_foot, head, phases
from ...drawing.live import waiting as waiting_rows
from ...drawing.live.layout import HEAD, Cards, Demand, Layout, share_out
from ...drawing.plot.curves import Plot
from ...drawing.plot.scales import soon
from ...drawing.plot.viewport import Viewport, Window
from ...drawing.rows import Row, length, spread
from ...reading import earlier_starts
from ...reading.queue_places import Waiting
from ...reading.run import closer
from ...reading.run.reader import Picture, RunReader
from ...reading.run.snapshot import Snapshot
from ...reading.run_list import description, queue_place
from ...upstream.partial_updates import send_changed_cells
from ...widgets.chart_grid import ChartGrid
from ...widgets.charts import Chart, PlotArea
from ...widgets.gpu_cards import GpuCards
from ...widgets.key_footer import KeyFooter
from ...widgets.log_view import LogPanel
from ...widgets.row_widgets import Panel
from ...wording import run as wording
from ..base import FollowingScreen, Header

QUEUE_SECONDS = 1.0  # between two readings of the run's place in the queue
READ_SECONDS = 0.25  # the head with its spinner is painted with every reading
ENDED_READ_SECONDS = 2.5
FULL_EVERY = 2  # of the readings; the rest is repainted no faster than figures can be read
CLOSER_SECONDS = 0.2  # until the visible part is read, which a turn of the wheel changes several times
LINES_OF_HOST = 2  # more rows show its history too
PANELS = ("head", "messages", "summary", "host")
NOTHING_READ = Picture(Snapshot(phase=phases.READING))
NOT_GIVEN = Picture()


class LiveView(FollowingScreen[Picture]):
    """The live view without its keys, for the run in the folder `run`. With `replay_speed`, the recorded events of the
    run are replayed this many times as fast as they happened. `clock` returns the time in seconds and is replaced in
    tests."""

    CSS_PATH = "live.tcss"
    KEPT = 3  # each has the curves of its run

    def __init__(
        self, run: Run, replay_speed: float | None = None, *, clock: Callable[[], float] | None = None
    ) -> None:
        super().__init__()
        send_changed_cells(self)
        self.run_folder, self.replay_speed, self._clock = run, replay_speed, clock
        self.kept_as = "" if replay_speed else run.id
        self.reader: RunReader | None = None  # made by the first reading
        self.title_now, self.description, self.stopping = "", "", False
        self.number: int | None = None
        self.has_checkpoint = True  # until it has been read: a key that is pressed too early gets a message
        self.goes_on_at_first = False  # when the readings began; the events have its end a moment later
        self.zoom = ""
        self.waiting: Waiting | None = None  # its place in the queue, if it waits there
        self._earlier, self._earlier_due = earlier_starts.NONE, True
        self.page = 0
        self.view = Viewport()  # of all charts
        self._window_read: Window | None = None
        self._closer = closer.Closer()  # the lines of its visible part
        self._layout_now: Layout | None = None
        self._charts_count = 0
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
        return -(-self._charts_count // (layout.chart_columns * layout.chart_rows)) if layout else 1

    def compose(self) -> ComposeResult:
        yield Header()
        yield Panel(self._head, id="head")
        yield Panel(self._messages, id="messages")
        yield Panel(lambda width, _height: head.result_rows(self.now, width), id="summary")
        yield ChartGrid(self.view, id="charts")
        yield GpuCards(id="devices")
        yield Panel(self._host, id="host")
        yield LogPanel(id="log")
        yield KeyFooter()

    def readings(self, leaving: threading.Event) -> Iterator[Picture]:
        """Yield a picture several times a second, every 2.5 s after the end. None while many events wait, as a past
        state is not the present one. A screen that was hidden reads on."""
        self.read_names()
        self.goes_on_at_first = self.run_folder.is_active
        reader = self.reader = self.reader or RunReader(self.run_folder, self.replay_speed, self._clock)
        picture, given, queue_due = NOT_GIVEN, self.latest or NOTHING_READ, 0.0
        while not leaving.is_set():
            behind = reader.poll()
            if time.monotonic() >= queue_due and not self.replay_speed:
                queue_due = time.monotonic() + QUEUE_SECONDS
                self._read_queue()
            if reader.picture.snapshot.outcome is not None or not self.goes_on_at_first:
                self.has_checkpoint = bool(steps_in(self.run_folder.file("checkpoints")))
            if behind and not given.reading:
                given = replace(given, reading=True)
                yield given
            elif not behind and reader.picture is not picture:
                picture = given = reader.picture
                yield picture
                self._read_earlier_starts()
            if not behind:
                leaving.wait(ENDED_READ_SECONDS if reader.ended else READ_SECONDS)

    def _read_queue(self) -> None:
        # In the reading thread.
        waited, self.waiting = self.waiting, queue_place(self.run_folder)
        if waited is not None and self.waiting is None:
            self.goes_on_at_first = self.run_folder.is_active

    def _read_earlier_starts(self) -> None:
        # In the reading thread, once, and only before the first measured step.
        if self._earlier_due and self.latest is not None:
            self._earlier_due = False
            if phases.is_due(self.now) and self.now.outcome is None:
                self._earlier = earlier_starts.of(self.run_folder)

    def read_names(self) -> None:
        """Read the title of the run, its note, tags, commit and description, and store them in the screen. To be called
        in a thread."""
        self.title_now, self.number = title(self.run_folder), self.run_folder.number
        self.stopping = self.is_running and self.app.is_stopping(self.run_folder)
        notes = read_notes(self.run_folder)
        note = f"note: {' '.join(notes.note.split())}" if notes.note.strip() else ""
        tags = " ".join(f"#{tag}" for tag in notes.tags)
        self.description = "  ".join(filter(None, (tags, note, description(self.run_folder))))

    def show_latest(self) -> None:
        """Paint the newest picture; while the run goes on, every second time only the head."""
        self._times_shown += 1
        if self.now.outcome is not None:
            self.show_now()
        elif self._times_shown % FULL_EVERY:
            self.query_one("#head", Panel).repaint()
        else:
            self.show_now(self._times_shown // FULL_EVERY)

    def show_again(self) -> None:
        self._times_shown = -1  # the next picture is painted whole
        self._window_read = None
        self.show_now()

    def on_resize(self) -> None:
        self.show_now()

    def show_now(self, turn: int | None = None) -> None:
        """Show the newest picture in a suitable layout. `turn` counts repaints: each draws half of the curves, None
        all."""
        charts = self.charts(self.app.settings.charts)
        self._charts_count = len(charts)
        layout = self._arranged(self._charts_count)
        grid = self.query_one(ChartGrid)
        grid.earlier = self._earlier
        grid.show(self.now, charts, self.page, turn)
        self._show_gpus(layout, turn)
        for name in PANELS:
            if (panel := self.query_one(f"#{name}", Panel)).display:
                panel.repaint()
        if layout.log:
            self.query_one(LogPanel).show(self.picture)
        self._offer()

    @work(thread=True, exclusive=True, group="closer")
    def _read_closer(self, window: Window | None) -> None:
        """Read the visible part of the charts with all its readings, while it stays the same and the run goes on."""
        worker, axis = get_current_worker(), self.view.axis

        def is_due() -> bool:
            return not worker.is_cancelled and self.view.window == window and not self._leaving.is_set()

        time.sleep(CLOSER_SECONDS)
        if window is None or self.replay_speed or not is_due():
            return
        for read in closer.read(self.run_folder, self.now, axis, window, is_due):
            self.app.call_from_thread(self._show_closer, read)
            time.sleep(READ_SECONDS)

    def _show_closer(self, read: closer.Closer) -> None:
        self._closer = read
        self.latest = self.latest  # a chart alone over this screen shows it, too
        if self.in_front:
            self.show_now()

    @property
    def can_show_all(self) -> bool:
        """True if a part of the axis is selected, or a key has placed the cursor."""
        return self.view.window is not None or (self.view.cursor is not None and not self.view.hovers)

    def _offer(self) -> None:
        """Make the footer again if a fact has changed on which the offered keys depend."""
        has_messages = bool(self.now.warnings or self.now.error)
        held = self.waiting.held if self.waiting is not None else None
        offered = (
            self.now.outcome,
            self.goes_on_at_first,
            self.has_checkpoint,
            has_messages,
            self.pages > 1,
            held,
            self.can_show_all,
        )
        if offered != self._offered:
            self._offered = offered
            self.refresh_bindings()

    # ---- its charts ---------------------------------------------------------------------------------

    @property
    def about(self) -> str:
        name = f"r{self.number} " if self.number else ""
        return f"{name}{self.title_now}" if self.title_now else self.run_folder.id

    def charts(self, drawn: Charts) -> list[Plot]:
        whole = on_one_axis(self.now, drawn)
        self.view.suit(whole)
        window = self.view.window
        if window != self._window_read:
            self._window_read = window
            self._read_closer(window)
        return (
            on_one_axis(self.now, drawn, window, self._closer.of(self.now, self.view.axis, window)) if window else whole
        )

    def axes(self) -> tuple[str, ...]:
        return self.now.pace.axes()

    def foot(self, width: int) -> Row:
        plots = self.charts(self.app.settings.charts)
        back = self.app.key("zoom_all")
        return phases.failure(self.now, width, self.glyphs) or chart_foot.row(
            self.now, plots, self.view, width, self.glyphs, back, alone=True
        )

    @on(Chart.Opened)
    def _chart_clicked(self, event: Chart.Opened) -> None:
        event.stop()
        self.open_chart(event.key)

    def open_chart(self, key: str) -> None:
        from ..chart import ChartScreen  # only when it is asked for

        self.app.open_screen(ChartScreen(self, key, self.view))

    @on(Chart.Turned)
    def _page_clicked(self, event: Chart.Turned) -> None:
        event.stop()
        self.page = (self.page + event.by) % self.pages
        self.show_now()

    @on(PlotArea.Moved)
    def _view_moved(self, event: PlotArea.Moved) -> None:
        event.stop()
        self.show_view(event.visible)

    def show_view(self, visible: bool) -> None:
        if visible:
            self.show_now()
        self.query_one(ChartGrid).show_view()
        self._offer()

    # ---- the rows of the panels -----------------------------------------------------------------

    def _head(self, width: int, height: int) -> list[Row]:
        note = "stopping" if self.stopping and self.now.outcome is None else ""
        behind = self.is_stale and self.now.outcome is None
        if (self.picture.reading or behind) and self.now.phase != phases.READING:  # the phase says so itself
            note = phases.CATCHING_UP
        if self.replay_speed:
            note = f"replay {self.glyphs.hint} {self.replay_speed:g} times as fast"
        name = head.RunName(self.title_now, self.run_folder.id, self.description, self.number)
        if self.waiting is not None:
            state: Row = [("  ", ""), (waiting_rows.state(self.waiting), "warn"), (" ", "")]
            first = spread(name.row(width - length(state), self.glyphs), state, width)
            return [first, *head.rows(name, note, self.now, width, self.glyphs, height)[1:]]
        return head.rows(name, note, self.now, width, self.glyphs, height)

    def _messages(self, width: int, height: int) -> list[Row]:
        rows = self._queue_rows(width)
        rows += head.message_rows(self.now, width, height - len(rows), self.glyphs, self.app.key("apply"))
        others: list[Row] = [[(clean(line)[:width], "value")] for line in wording.worker_lines(self.now.workers)]
        return rows + others if len(rows) + len(others) <= height else rows

    def _queue_rows(self, width: int) -> list[Row]:
        if (waiting := self.waiting) is None:
            return []
        return waiting_rows.rows(waiting, time.time(), width, not self.now.started)

    def _host(self, width: int, height: int) -> list[Row]:
        if height <= LINES_OF_HOST:
            return [*no_gpu(self.now, width)[: height - 1], host_line(self.now, width, self.glyphs)]
        return host(self.now, width, height, self.glyphs)

    # ---- their arrangement ----------------------------------------------------------------------

    def _arranged(self, charts: int) -> Layout:
        width, height = self.size.width - 2, self.size.height - 2
        needs = Demand(
            charts=charts,
            gpus=len(self.now.gpus),
            messages=len(self._messages(width, 1000)),
            summary=head.height(self.now, width),
            head=HEAD + len(head.verdict_rows(self.now, width, self.glyphs)),
            error=len(self._queue_rows(width)) + len(head.error(self.now, width, self.glyphs, self.app.key("apply"))),
        )
        layout = share_out(width, height, needs, self.zoom)
        if self.waiting is not None and not self.now.started:  # it has nothing else to show
            layout = Layout(1, max(0, height - 1), 0, 0, 1, 1, 0, Cards(), 0, 0)
        if layout != self._layout_now:
            self._layout_now = layout
            self._apply(layout)
        return layout

    def _apply(self, layout: Layout) -> None:
        for name in ("messages", "summary", "charts", "devices", "host", "log"):
            part, height = self.query_one(f"#{name}"), getattr(layout, name)
            part.display = height > 0
            part.styles.height = height
        self.query_one("#head").styles.height = layout.head
        self.query_one(ChartGrid).lay_out(layout)
        self.query_one(LogPanel).show_edge(layout.edges)

    def _show_gpus(self, layout: Layout, turn: int | None) -> None:
        end = max(1.0, self.now.elapsed) if self.now.outcome else soon(self.now.elapsed)
        ended = self.now.outcome is not None
        self.query_one(GpuCards).show(self.now.gpus, end, layout.cards, layout.edges, turn, ended)
