"""The live view of a run with its keys: stop the run, run it again, change its options, zoom in.
Deferred imports: other screens are needed only when a key asks for them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.widgets import Input

from ....engine import figures
from ....engine.diagnosis import of_run
from ....engine.runs import Run, all_runs, previews, title
from ....engine.runs.checkpoint_files import steps_in
from ....engine.runs.events import Diagnosis
from ....engine.runs.titles import read_notes
from ....engine.units import counted
from ...base import keys
from ...base.errors import clean
from ...base.settings import Charts
from ...drawing import charts as foot
from ...drawing.charts import on_one_axis
from ...drawing.diagnosis import changing, rows, stage_rows
from ...drawing.gpu_details import host, host_line, no_gpu
from ...drawing.live import head, phases
from ...drawing.live.head import MEASURING, MOST_ROWS, is_due
from ...drawing.live.layout import Cards, Demand, Layout, share_out
from ...drawing.plot import cursor
from ...drawing.plot.axes import soon
from ...drawing.plot.curves import Plot
from ...drawing.plot.viewport import Viewport
from ...drawing.rows import Row, length, spread
from ...form.form_state import proposed
from ...reading import earlier_starts
from ...reading.queue_places import Waiting
from ...reading.run.reader import Picture, RunReader
from ...reading.run.snapshot import Snapshot
from ...reading.run_list import description, queue_place
from ...upstream.partial_updates import send_changed_cells
from ...upstream.thread_imports import in_background
from ...widgets.charts import ChartGrid
from ...widgets.gpu_cards import GpuCards
from ...widgets.key_footer import KeyFooter
from ...widgets.log_view import LogLines, LogPanel
from ...widgets.row_widgets import Page, Panel
from ...wording import run as wording
from .. import catalogue
from ..base import AppScreen, FollowingScreen, Header
from ..chart import AXIS_BINDINGS, AxisKeys, ChartSource
from ..dialogs import UNDO_BINDINGS, Copyable
from ..help import LOSS, NOT_OFFERED, QUEUE
from ..runs import actions
from ..runs.actions import NO_CHECKPOINT, RunActions, put_into_form

QUEUE_SECONDS = 1.0  # between two readings of the run's place in the queue
READ_SECONDS = 0.25  # the head with its spinner is painted with every reading
ENDED_READ_SECONDS = 2.5
FULL_EVERY = 2  # of the readings; the rest is repainted no faster than figures can be read
LINES_OF_HOST = 2  # more rows show its history too
PANELS = ("head", "messages", "details", "summary", "host")
NOTHING_READ = Picture(Snapshot(phase=phases.READING))
NOT_GIVEN = Picture()


SPEED = (
    "Figures of a run",
    tuple(
        (figures.of_run(key).label, figures.of_run(key).about)
        for key in ("step_ms.p50", "step_ms.p95", "input_wait", "mfu", "goodput", "measured_steps")
    ),
)


# Actions without a purpose on a waiting run that has never begun.
NOTHING_BEFORE_IT_BEGINS = (
    "again", "diagnosis", "gpus", "zoom", "chart", "page", "move", "zoom_axis", "logarithmic", "all", "search",
)  # fmt: skip


class LiveScreen(AxisKeys, ChartSource, FollowingScreen[Picture], RunActions):
    """The live view of the run in the folder `run`, which may be running or finished. With `replay_speed`, its recorded
    events are replayed this many times as fast as they happened. `clock` returns the time in seconds and is replaced
    in tests."""

    CSS_PATH = "live.tcss"
    KEPT = 3  # each has the curves of its run
    BINDINGS: ClassVar[list[BindingType]] = [
        *actions.BINDINGS,
        keys.bind("stop", meaning="stop the run after its step; a second time: at once"),
        keys.bind("tell", show=False),
        keys.bind("resume"),
        keys.bind("start", "again", "Run again", meaning="run the same preset again"),
        keys.bind("edit", "change", "Edit options", meaning="open the options of the run in the form"),
        keys.bind("note", show=False),
        keys.bind("tags", show=False),
        keys.bind("name", show=False),
        *UNDO_BINDINGS,
        keys.bind("copy", show=False, meaning="copy the run's id, folder, log or chart values, or the selection"),
        keys.bind("apply", show=False),
        keys.bind("compare", show=False, meaning="compare with the run before"),
        keys.bind("why", "diagnosis", "Diagnosis"),
        keys.bind("gpus_of_run", "gpus"),
        keys.bind("previews", show=False),
        keys.bind("zoom", "zoom('charts')", show=False),
        keys.bind("log", "zoom('log')", meaning="the log on the whole screen"),
        keys.bind("details", "zoom('details')", show=False),
        keys.bind("open", "chart", "Chart alone", show=False, meaning="the first chart alone, with a cursor"),
        keys.bind("page_on", "page(1)", "More charts", show=False, meaning="the next page of charts"),
        keys.bind("page_back", "page(-1)", "Charts before", show=False, meaning="the page of charts before"),
        keys.bind("cursor_right", "move(1)", "Cursor", show=False, without="l", meaning="the cursor to the right"),
        keys.bind("cursor_left", "move(-1)", show=False, without="h"),
        *AXIS_BINDINGS,
        keys.bind("search", label="Filter the log", show=False, meaning="filter the log"),
        keys.bind("next_match", "found(1)", "Next found", show=False, meaning="the next match in the log"),
        keys.bind("previous_match", "found(-1)", "Found before", show=False, meaning="the match in the log before"),
        *keys.back(),
    ]

    HELP_SECTIONS = (
        ("Marks", (("•", "a GPU that this run uses"), ("!", "throttled, and by what"), NOT_OFFERED)),
        QUEUE,
        LOSS,
        SPEED,
    )

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
        self.has_previews = False
        self.has_checkpoint = True  # until it has been read: a key that is pressed too early gets a message
        self.goes_on_at_first = False  # when the readings began; the events have its end a moment later
        self.zoom = ""
        self.waiting: Waiting | None = None  # its place in the queue, if it waits there
        self._earlier, self._earlier_due = earlier_starts.NONE, True
        self.page = 0
        self.view: Viewport = Viewport()  # of all charts
        self._layout_now: Layout | None = None
        self._charts_count = 0
        self._times_shown = -1

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
        yield Panel(lambda width, _height: head.detail_rows(self._run_name, self.now, width), id="details")
        yield Panel(lambda width, _height: head.result_rows(self.now, width), id="summary")
        yield ChartGrid(self.view, id="charts")
        yield GpuCards(id="devices")
        yield Panel(self._host, id="host")
        yield LogPanel(id="log")
        yield KeyFooter()

    def readings(self, leaving: threading.Event) -> Iterator[Picture]:
        """Yield a picture several times a second, every 2.5 s after the end. While many events wait, only the last is
        yielded, marked as `reading`, as a past state is not the present one. A screen that was hidden reads on."""
        self.read_names()
        self.goes_on_at_first = self.run_folder.is_active
        reader = self.reader = self.reader or RunReader(self.run_folder, self.replay_speed, self._clock)
        picture, given, queue_due = NOT_GIVEN, self.latest or NOTHING_READ, 0.0
        while not leaving.is_set():
            behind = reader.poll()
            if time.monotonic() >= queue_due and not self.replay_speed:
                queue_due = time.monotonic() + QUEUE_SECONDS
                self.has_previews = previews.are_in(self.run_folder.path)
                waited, self.waiting = self.waiting, queue_place(self.run_folder)
                if waited is not None and self.waiting is None:
                    self.goes_on_at_first = self.run_folder.is_active
            if reader.picture.snapshot.outcome is not None or not self.goes_on_at_first:
                self.has_checkpoint = bool(steps_in(self.run_folder.file("checkpoints")))
            if behind and not given.reading:
                given = replace(given, reading=True)
                yield given
            elif not behind and reader.picture is not picture:
                picture = given = reader.picture
                yield picture
                if self._earlier_due and self.latest is not None:  # once, and only before the first measured step
                    self._earlier_due = False
                    if phases.is_due(self.now) and self.now.outcome is None:
                        self._earlier = earlier_starts.of(self.run_folder)
            if not behind:
                leaving.wait(ENDED_READ_SECONDS if reader.ended else READ_SECONDS)

    def read_names(self) -> None:
        """Read title, number, note, tags, commit and description of the run. To be called in a thread."""
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
            self.show_now()

    def show_again(self) -> None:
        self._times_shown = -1  # the next picture is painted whole
        self.show_now()

    def show_now(self) -> None:
        charts = self.charts(self.app.settings.charts)
        self._charts_count = len(charts)
        layout = self._arranged(self._charts_count)
        grid = self.query_one(ChartGrid)
        grid.earlier = self._earlier
        if not self.now.is_command:
            grid.show(self.now, charts, self.page)
        ended = self.now.outcome is not None
        end = max(1.0, self.now.elapsed) if ended else soon(self.now.elapsed)
        self.query_one(GpuCards).show(self.now.gpus, end, layout.cards, layout.edges, ended)
        for name in PANELS:
            if (panel := self.query_one(f"#{name}", Panel)).display:
                panel.repaint()
        if layout.log:
            self.query_one(LogPanel).show(self.picture)
        self._offer()

    @property
    def can_show_all(self) -> bool:
        """True if a part of the axis is selected, or a key has placed the cursor."""
        return self.view.window is not None or (self.view.cursor is not None and not self.view.hovers)

    def _offer(self) -> None:
        now, held = self.now, self.waiting.held if self.waiting is not None else None
        facts = now.outcome, self.goes_on_at_first, self.has_checkpoint, self.has_previews, self.pages > 1, held
        self.offer_by(*facts, self.can_show_all)

    # ---- its charts ---------------------------------------------------------------------------------

    @property
    def about(self) -> str:
        name = f"r{self.number} " if self.number else ""
        return f"{name}{self.title_now}" if self.title_now else self.run_folder.id

    def charts(self, drawn: Charts) -> list[Plot]:
        if self.now.is_command:
            return []
        whole = on_one_axis(self.now, drawn)
        self.view.suit(whole)
        return on_one_axis(self.now, drawn, self.view.window) if self.view.window else whole

    def axes(self) -> tuple[str, ...]:
        return self.now.pace.axes()

    def foot(self, width: int) -> Row:
        plots = self.charts(self.app.settings.charts)
        back = self.app.key("zoom_all")
        return phases.failure(self.now, width, self.glyphs) or foot.row(
            self.now, plots, self.view, width, self.glyphs, back, alone=True
        )

    def show_view(self, visible: bool) -> None:
        if visible:
            self.show_now()
        self.query_one(ChartGrid).show_view()
        self._offer()

    # ---- the rows of the panels -----------------------------------------------------------------

    @property
    def _run_name(self) -> head.RunName:
        return head.RunName(self.title_now, self.run_folder.id, self.description, self.number)

    def _head(self, width: int, height: int) -> list[Row]:
        note = "stopping" if self.stopping and self.now.outcome is None else ""
        behind = self.is_stale and self.now.outcome is None
        if (self.picture.reading or behind) and self.now.phase != phases.READING:  # the phase says so itself
            note = phases.CATCHING_UP
        if self.replay_speed:
            note = f"replay {self.glyphs.hint} {self.replay_speed:g} times as fast"
        name = self._run_name
        if self.waiting is not None:
            state: Row = [("  ", ""), ("held" if self.waiting.held else "waiting in the queue", "title"), (" ", "")]
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
        return phases.waiting_rows(waiting, time.time(), width, not self.now.started)

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
            summary=len(head.result_rows(self.now, width)) if self.now.summary else 0,
            head=len(self._head(width, MOST_ROWS)),
            error=len(self._queue_rows(width)) + len(head.error(self.now, width, self.glyphs, self.app.key("apply"))),
            reason=phases.is_new(self.now),
            trains=not self.now.is_command,
        )
        layout = share_out(width, height, needs, self.zoom)
        if self.waiting is not None and not self.now.started:  # it has nothing else to show
            layout = Layout(1, max(0, height - 1), 0, 0, 1, 1, 0, Cards(), 0, 0)
        if layout != self._layout_now:
            self._layout_now = layout
            for name in ("messages", "details", "summary", "charts", "devices", "host", "log"):
                part, height = self.query_one(f"#{name}"), getattr(layout, name)
                part.display = height > 0
                part.styles.height = height
            self.query_one("#head").styles.height = layout.head
            self.query_one(ChartGrid).lay_out(layout)
            self.query_one(LogPanel).show_edge(layout.edges)
        return layout

    # ---- keys -----------------------------------------------------------------------------------

    def can(self, action: str) -> bool | str:
        if (of_queue := super().can(action)) is not True:
            return of_queue
        if self.waiting is not None and not self.now.started and action in NOTHING_BEFORE_IT_BEGINS:
            return False
        if self.now.is_command and action == "diagnosis":
            return "a command has no steps to diagnose"
        running = self.now.outcome is None and not self.replay_speed
        if action in ("stop", "tell"):
            return running
        if action == "resume":
            is_active = self.now.outcome is None and self.goes_on_at_first
            can_go_on = self.has_checkpoint and not self.replay_speed and self.now.outcome != "ok" and not is_active
            return can_go_on or NO_CHECKPOINT
        if action == "again":
            return not running
        if action == "change":
            return not self.replay_speed
        if action in ("chart", "move", "zoom_axis", "logarithmic"):
            return not phases.is_due(self.now)
        if action == "apply":
            return bool(self.now.error and proposed(self.now.error.hint))
        if action == "all":
            return self.can_show_all
        if action == "previews":
            return self.has_previews or wording.NO_PREVIEWS
        if action == "found":
            return any(lines.matches for lines in self.query(LogLines)) or "the log has no match of a search"
        return action != "page" or self.pages > 1

    @property
    def labels_now(self) -> dict[str, str]:
        """The labels of keys that have another effect now, by their verbs, for the footer."""
        return {"back": "Show all"} if self.can_show_all else {}

    # ---- the run -------------------------------------------------------------------------------

    @property
    def waiting_now(self) -> Waiting | None:
        return self.waiting

    @property
    def runs_meant(self) -> list[Run]:
        return [self.run_folder]

    def acted(self, run: Run, resumed: bool = False) -> None:
        self.stopping = run.id in self.app.stopping_runs
        if resumed:
            self.reader = None
            self.read_again()
        in_background(self, self.read_names, lambda _: self.show_now())

    @work(thread=True, group="comparing")
    def action_compare(self) -> None:
        """Compare the run with the newest run before it."""
        older = [run for run in all_runs() if run.id < self.run_folder.id]
        if older:
            pair = [max(older, key=lambda run: run.id), self.run_folder]
            self.app.call_from_thread(self.app.open_compare, pair)
        else:
            self.app.call_from_thread(self.notify, "there is no run before this one")

    def copyables(self) -> Iterator[Copyable]:
        log = self.query_one(LogLines)
        if log.count:
            many = f"the last {counted(log.count, 'lines')}" if log.count > 1 else "one line"
            yield Copyable("log", many, log.text)
        for plot in self.charts(self.app.settings.charts):
            if cursor.has_values(plot):
                preview = "the values of the chart, separated by tabs"
                yield Copyable(plot.key, preview, partial(cursor.table, plot))

    @work(exclusive=True, group="apply")
    async def action_apply(self) -> None:
        """Put the values that the hint of the run's error proposes, if any, into the form."""
        if self.now.error is not None and (changes := proposed(self.now.error.hint)):
            await put_into_form(self.app, self.run_folder, changes)

    # ---- zooming --------------------------------------------------------------------------------

    def action_zoom(self, part: str) -> None:
        if part == "charts" and self.now.is_command:
            self.say("a command has no charts")
            return
        self.zoom = "" if self.zoom == part else part
        self.show_now()
        if self.zoom == "log":
            self.query_one(LogLines).focus()

    def action_gpus(self) -> None:
        self.app.open_screen(catalogue.screen("run_gpus", self))

    def action_previews(self) -> None:
        self.app.open_screen(catalogue.screen("previews", self, [self.run_folder]))

    def action_diagnosis(self) -> None:
        self.app.open_screen(DiagnosisScreen(self))

    def action_page(self, by: int) -> None:
        self.page = (self.page + by) % self.pages
        self.show_now()

    def action_chart(self) -> None:
        """Show the first visible chart alone on a chart screen. Nothing happens if no chart is visible."""
        if shown := self.query_one(ChartGrid).shown:
            self.open_chart(shown[0].key)

    def action_search(self) -> None:
        log = self.query_one(LogPanel)
        if not log.display:  # a small screen shows the log only alone
            self.action_zoom("log")
        log.open_search()

    def action_found(self, by: int) -> None:
        self.query_one(LogPanel).step(by)

    def action_back(self) -> None:
        """Close the log's search; else show the whole axis without cursor, end the zoom, or leave."""
        if self.query_one(LogPanel).close_search():
            return
        if self.can_show_all:
            self.action_all()
        elif self.zoom:
            self.action_zoom(self.zoom)
        else:
            super().action_back()

    def on_input_changed(self, event: Input.Changed) -> None:
        event.stop()


NOT_BEGUN = "training has not begun: there is nothing to diagnose yet"
READING = "reading the run folder ..."


class DiagnosisScreen(AppScreen):
    """Shows the diagnosis of a run from the readings of the live view, which is the screen below it."""

    CSS_PATH = "diagnosis.tcss"
    KEPT = 3
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("prove", meaning="measure whether the remedies help"),
        *keys.numbered("remedy"),
        *keys.back(),
        keys.bind("why", "back", "Back", show=False, meaning="back to the live view"),
    ]

    def __init__(self, live: LiveScreen) -> None:
        super().__init__()
        self.source, self.run_folder = live, live.run_folder
        self.kept_as, self._run_name = live.kept_as, clean(live.run_folder.name)
        self._of_folder: Diagnosis | None = None  # of a run that has ended
        self._folder_read = False
        self._shown: tuple[object, ...] = ()

    @property
    def now(self) -> Snapshot:
        return self.source.now

    @property
    def diagnosis(self) -> Diagnosis | None:
        return self.now.diagnosis or (self._of_folder if self.now.outcome is not None else None)

    def can(self, action: str) -> bool | str:
        """True if the action has an effect now: to prove or apply remedies only if one changes options."""
        is_possible = action not in ("prove", "remedy") or bool(changing(self.diagnosis))
        return is_possible or "there is no remedy that changes options"

    def compose(self) -> ComposeResult:
        yield Header(Panel(self._title, id="title"))
        yield Page(self._rows)
        yield KeyFooter()

    def on_mount(self) -> None:
        self.query_one(Page).focus()
        self.watch(self.source, "latest", self._show_new)

    def _show_new(self) -> None:
        """Show the newest reading. If the run has ended without a diagnosis, make one from its folder, in a thread."""
        now = self.now
        if now.outcome is not None and not now.diagnosis and not self._folder_read:
            self._folder_read = True
            in_background(self, partial(of_run, self.run_folder), self._take)
        shown = (self.diagnosis, now.diagnosed_before_resume, now.input_stages, now.outcome, is_due(now))
        if any(new is not old for new, old in zip(shown, self._shown, strict=False)) or not self._shown:
            self._shown = shown
            self.query_one(Page).repaint()
            self.query_one(Panel).repaint()
            self.refresh_bindings()

    def _take(self, diagnosis: Diagnosis) -> None:
        self._of_folder = diagnosis
        self._show_new()

    # ---- drawing ----------------------------------------------------------------------------------

    def _title(self, width: int, _height: int) -> list[Row]:
        left: Row = [("diagnosis", "title"), (f"  {self._run_name}", "label")]
        right: Row = [] if self.now.outcome else [("updated while the run goes on", "label")]
        fits = length(left) + 2 + length(right) <= width
        return [spread(left, right if fits else [], width)]

    def _rows(self, width: int) -> list[Row]:
        now = self.now
        if self.diagnosis:
            return rows(self.diagnosis, now, width, self.glyphs, _step_ms(now))
        text = MEASURING if is_due(now) else READING if now.outcome else NOT_BEGUN
        stages = stage_rows(now.input_stages, False, _step_ms(now), width, self.glyphs)
        return [[(text, "label")], *stages]

    @work(exclusive=True, group="prove")
    async def action_prove(self) -> None:
        from .. import starting  # proofs are needed only for this

        await starting.prove(self.app, self.run_folder, self.diagnosis)

    # ---- remedies into the form -------------------------------------------------------------------

    @work(exclusive=True, group="apply")
    async def action_remedy(self, number: int) -> None:
        """Put a remedy's changes into the form; `number` counts from 1 those that change options."""
        remedies = changing(self.diagnosis)
        if number > len(remedies):
            numbers = f"1 to {min(len(remedies), 9)}" if len(remedies) > 1 else "1"
            self.app.notify(f"there is no remedy {number}, only {numbers}")
        else:
            await put_into_form(self.app, self.run_folder, remedies[number - 1]["changes"])


def _step_ms(now: Snapshot) -> float | None:
    if now.outcome is None:
        return now.progress.step_ms_p50 if now.progress else None
    return (now.summary.step_ms or {}).get("p50") if now.summary else None
