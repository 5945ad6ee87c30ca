"""The live view of a run with its keys: stop the run, run it again, change its options, zoom in.
Deferred imports: other screens are needed only when a key asks for them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from textual import work
from textual.binding import BindingType
from textual.widgets import Input

from ....engine import figures
from ....engine.runs import Run, all_runs
from ....engine.units import counted
from ...base import keys
from ...drawing.live import phases
from ...drawing.plot import cursor
from ...drawing.plot.viewport import CLOSER
from ...form.form_state import proposed
from ...widgets.chart_grid import ChartGrid
from ...widgets.charts import Chart
from ...widgets.gpu_cards import GpuCards
from ...widgets.log_view import LogLines, LogPanel
from .. import catalogue, undoing
from ..help import LOSS, NOT_OFFERED, QUEUE
from ..runs import queue_actions
from ..runs.actions import put_into_form
from ..runs.queue_actions import QueueActions
from .view import LiveView

if TYPE_CHECKING:
    from ...reading.queue_places import Waiting
    from ..dialogs import Copyable


SPEED = (
    "Figures of a run",
    tuple(
        (figures.of_run(key).label, figures.of_run(key).about)
        for key in ("step_ms.p50", "step_ms.p95", "input_wait", "mfu", "goodput", "measured_steps")
    ),
)


# Actions without a purpose on a waiting run that has never begun.
NOTHING_BEFORE_IT_BEGINS = (
    "again",
    "diagnosis",
    "zoom",
    "chart",
    "page",
    "move",
    "zoom_axis",
    "all",
    "search",
    "pick",
    "pick_edge",
)


class LiveScreen(LiveView, QueueActions):
    """The live view of a run, which may be running or finished, with its keys. The disk is accessed only in threads."""

    BINDINGS: ClassVar[list[BindingType]] = [
        *queue_actions.BINDINGS,
        keys.bind("stop", meaning="stop the run after its step; a second time: at once"),
        keys.bind("resume"),
        keys.bind("start", "again", "Run again", meaning="run the same preset again"),
        keys.bind("edit", "change", "Edit options", meaning="open the options of the run in the form"),
        keys.bind("note", show=False),
        keys.bind("tags", show=False),
        *undoing.BINDINGS,
        keys.bind("copy", show=False, meaning="copy the run's id, folder, log or chart values, or the selection"),
        keys.bind("apply", show=False),
        keys.bind("compare", show=False, meaning="compare with the run before"),
        keys.bind("why", "diagnosis", "Diagnosis"),
        keys.bind("gpus_of_run", "zoom('gpus')"),
        keys.bind("zoom", "zoom('charts')", show=False),
        keys.bind("log", "zoom('log')", meaning="the log on the whole screen"),
        keys.bind("messages", "zoom('messages')", meaning="errors and warnings of the run on the whole screen"),
        keys.bind("open", "chart", "Chart alone", show=False, meaning="the first chart alone, with a cursor"),
        keys.bind("page_on", "page(1)", "More charts", show=False, meaning="the next page of charts"),
        keys.bind("page_back", "page(-1)", "Charts before", show=False, meaning="the page of charts before"),
        keys.bind("cursor_right", "move(1)", "Cursor", show=False, without="l", meaning="the cursor to the right"),
        keys.bind("cursor_left", "move(-1)", show=False, without="h"),
        keys.bind("zoom_in", "zoom_axis(1)", show=False),
        keys.bind("zoom_out", "zoom_axis(-1)", show=False),
        keys.bind("zoom_all", "all", show=False),
        keys.bind("search", label="Filter the log", show=False, meaning="filter the log"),
        keys.bind("next_match", "found(1)", "Next found", show=False, meaning="the next match in the log"),
        keys.bind("previous_match", "found(-1)", "Found before", show=False, meaning="the match in the log before"),
        keys.bind("down", "pick(1)", "Next GPU", show=False, meaning="the next GPU"),
        keys.bind("up", "pick(-1)", "Previous GPU", show=False, meaning="the GPU before"),
        keys.bind("first", "pick_edge(0)", "First GPU", show=False, meaning="the first GPU"),
        keys.bind("last", "pick_edge(-1)", "Last GPU", show=False, meaning="the last GPU"),
        catalogue.left_out("live"),  # the live view is open already
        *keys.back(),
    ]

    HELP_SECTIONS = (
        ("Marks", (("•", "a GPU that this run uses"), ("!", "throttled, and by what"), NOT_OFFERED)),
        QUEUE,
        LOSS,
        SPEED,
    )

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Return True if the action has an effect now. The footer shows only the keys of such actions."""
        if super().check_action(action, parameters) is False:
            return False
        if self.waiting is not None and not self.now.started and action in NOTHING_BEFORE_IT_BEGINS:
            return False
        running = self.now.outcome is None and not self.replay_speed
        if action == "stop":
            return running
        if action == "resume":
            is_active = self.now.outcome is None and self.goes_on_at_first
            return self.has_checkpoint and not self.replay_speed and self.now.outcome != "ok" and not is_active
        if action == "again":
            return not running
        if action == "change":
            return not self.replay_speed
        if action in ("chart", "move", "zoom_axis"):
            return not phases.is_due(self.now)
        if action == "apply":
            return bool(self.now.error and proposed(self.now.error.hint))
        if action == "zoom" and parameters == ("messages",):
            return bool(self.now.warnings or self.now.error)
        if action in ("pick", "pick_edge"):
            return self.zoom == "gpus"
        if action == "all":
            return self.can_show_all
        if action == "found":
            return any(lines.matches for lines in self.query(LogLines))
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
        self._name_anew()

    @work(thread=True, group="reading")
    def _name_anew(self) -> None:
        self.read_names()
        self.app.call_from_thread(self.show_now)

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
        from ..dialogs import Copyable

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
        self.zoom = "" if self.zoom == part else part
        self.show_now()
        if self.zoom == "log":
            self.query_one(LogLines).focus()

    def action_pick(self, by: int) -> None:
        self.query_one(GpuCards).pick(by)

    def action_pick_edge(self, number: int) -> None:
        self.query_one(GpuCards).pick_edge(number)

    def action_diagnosis(self) -> None:
        from .diagnosis import DiagnosisScreen

        self.app.open_screen(DiagnosisScreen(self))

    def action_page(self, by: int) -> None:
        self.page = (self.page + by) % self.pages
        self.show_now()

    def action_chart(self) -> None:
        """Show the first visible chart alone on a chart screen. Nothing happens if no chart is visible."""
        if shown := self.query_one(ChartGrid).shown:
            self.open_chart(shown[0].key)

    def action_move(self, columns: int) -> None:
        chart = next((chart for chart in self.query(Chart) if chart.display and chart.size.width), None)
        if chart is not None:
            window = self.view.window
            self.view.move(columns, chart.inner)
            self.show_view(self.view.window != window)

    def action_zoom_axis(self, closer: int) -> None:
        self.view.zoom(CLOSER if closer > 0 else 1 / CLOSER)
        self.show_view(True)

    def action_all(self) -> None:
        self.view.all()
        self.show_view(True)

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
