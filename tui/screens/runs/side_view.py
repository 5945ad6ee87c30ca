"""The side view of the table of runs: state, verdict, curves, figures and changed options of the run under the cursor.
A thread reads the run. The readers of the last runs are kept, so that the cursor may return to one at once."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, cast

from textual.app import ComposeResult
from textual.containers import Vertical

from ....engine.files.values import EMPTY
from ....engine.runs import Run
from ....engine.runs.run import WAITING
from ...base.errors import clean
from ...base.glyphs import Glyphs, glyphs_of
from ...drawing.charts import plots
from ...drawing.live import head, phases
from ...drawing.plot.cursor import named_last
from ...drawing.plot.curves import Plot
from ...drawing.rows import Row, wrapped
from ...reading.run.reader import Picture, RunReader
from ...reading.run.snapshot import Snapshot
from ...reading.run_list import Entry
from ...upstream.thread_imports import in_background
from ...widgets.charts import EMPTY as NO_PLOT
from ...widgets.charts import Chart
from ...widgets.row_widgets import Panel

if TYPE_CHECKING:
    from ...base.base_app import BaseApp
    from ...reading.sweep_rows import SweepEntry

FROM = 120  # columns of the terminal, from which on there is room for it
LEAST_WIDTH, SHARE = 54, 0.4  # columns; of the terminal's columns
KEPT_READERS = 8
MOST_CHARTS, CHART_ROWS = 4, 7
NOT_READ = Picture(Snapshot(phase=phases.READING))


def width_in(columns: int, shown: bool) -> int:
    """Return the width of the side view in so many columns; 0 without room, or if not `shown`."""
    return max(LEAST_WIDTH, int(columns * SHARE)) if shown and columns >= FROM else 0


class SideView(Vertical):
    """Shows one run. `show` sets the run, which is then read in a thread."""

    app: BaseApp
    DEFAULT_CSS = """
    SideView {
        height: 1fr; border-left: solid $border; padding: 0 1; display: none;
        & > Panel { height: 1; }
        & > Chart { height: 1fr; margin: 1 0 0 0; }
        & > #side-foot { margin: 1 0 0 0; }
    }
    """

    def __init__(self) -> None:
        super().__init__(id="side")
        self.entry: Entry | None = None
        self.picture = NOT_READ
        self._readers: dict[str, RunReader] = {}  # by the run's id, the one used last at the end
        self._reads = False  # a thread is reading now

    def compose(self) -> ComposeResult:
        yield Panel(lambda width, _height: self._head(width), id="side-head")
        for _ in range(MOST_CHARTS):
            yield Chart()
        yield Panel(lambda width, _height: self._foot(width), id="side-foot")

    @property
    def now(self) -> Snapshot:
        return self.picture.snapshot

    def place(self, width: int) -> None:
        self.display = width > 0
        self.styles.width = width

    def show(self, entry: Entry | None) -> None:
        """Show the row's run. Curves follow when they have been read, at once if they were read before."""
        if entry is None or self.entry is None or entry.run.id != self.entry.run.id:
            reader = self._readers.get(entry.run.id) if entry is not None else None
            self.picture = reader.picture if reader is not None else NOT_READ
        self.entry = entry
        if self.display:
            self._paint()
            self._read()

    def on_resize(self) -> None:
        self._paint()

    async def on_click(self) -> None:
        await self.run_action("screen.open")

    # ---- reading ----------------------------------------------------------------------------------

    def _read(self) -> None:
        """Read the run in a thread, unless one is reading: then its end begins the next reading."""
        if self._reads or self.entry is None or self.entry.state == WAITING or self.entry.group:
            return
        self._reads = True
        run = self.entry.run
        reader = self._readers.pop(run.id, None) or RunReader(run)
        self._readers[run.id] = reader
        while len(self._readers) > KEPT_READERS:
            del self._readers[next(iter(self._readers))]
        in_background(self, partial(_newest, reader), partial(self._take, run))

    def _take(self, run: Run, picture: Picture) -> None:
        self._reads = False
        if self.entry is None or self.entry.run.id != run.id:
            self._read()
        elif picture is not self.picture:
            self.picture = picture
            self._paint()

    # ---- painting ---------------------------------------------------------------------------------

    @property
    def _glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    def _paint(self) -> None:
        width, height = self.content_size
        if not width or not height:
            return
        panels = self.query_one("#side-head", Panel), self.query_one("#side-foot", Panel)
        heights = [len(rows) for rows in (self._head(width), self._foot(width))]
        heights[1] = min(heights[1], height // 3)
        for panel, rows in zip(panels, heights, strict=True):
            panel.styles.height, panel.display = rows, rows > 0
            panel.repaint()
        drawn = self._plots() if self.now.lines else []
        room = max(0, (height - sum(heights) - 1) // CHART_ROWS)
        for chart, plot in zip(self.query(Chart), [*drawn[:room], *[NO_PLOT] * MOST_CHARTS], strict=False):
            chart.display = plot is not NO_PLOT
            chart.show(plot)

    def _plots(self) -> list[Plot]:
        # The loss, then by importance. Speeds and shares are called the last ones, as the figures below are means.
        drawn = [plot for plot in plots(self.now, self.app.settings.charts) if not plot.empty]
        drawn.sort(key=lambda plot: plot.title != "loss")
        return [named_last(plot) if plot.unit or plot.bounds != "free" else plot for plot in drawn]

    def _head(self, width: int) -> list[Row]:
        """Title and state, progress, the facts of the training, its verdict, and the error that ended it."""
        if (entry := self.entry) is None:
            return []
        named = head.RunName(entry.title.preset, entry.run.id, "", entry.number)
        if entry.group:
            return [named.row(width, self._glyphs), [], *self._sweep(entry, width)]
        if entry.state == WAITING:
            waiting = wrapped(clean(str(entry.waiting or "")), width, self._glyphs, 4)
            return [named.row(width, self._glyphs), *([(line, "value")] for line in waiting)]
        rows = head.rows(named, "", self.now, width, self._glyphs)[:3]
        rows += head.learning_rows(self.now, width, self._glyphs)
        if head.is_due(self.now) and self.now.diagnosis:
            sign = head.mark(self.now.diagnosis, self._glyphs)
            lines = wrapped(head.sentence(self.now.diagnosis), width - 2, self._glyphs, 3)
            rows += [[sign if not at else (" ", ""), (" ", ""), (line, "value")] for at, line in enumerate(lines)]
        return [*rows, *head.error(self.now, width, self._glyphs)[:4]]

    def _sweep(self, entry: Entry, width: int) -> list[Row]:
        from ...drawing import sweep  # only if there is a sweep

        record = cast("SweepEntry", entry).record.sweep
        if record is None:
            return [[("this sweep was deleted; its trials are still here", "label")]]
        return sweep.in_brief(record, entry.description, width, self.content_size.height - 2, self._glyphs)

    def _foot(self, width: int) -> list[Row]:
        """The changed options, tags, note and description, and the figures of the result."""
        if (entry := self.entry) is None or entry.group:
            return []
        tags = " ".join(f"#{tag}" for tag in entry.notes.tags)
        texts = {
            "changed": "  ".join(entry.title.changes),
            "tags": tags,
            "note": entry.notes.note,
            "": entry.description,
        }
        rows: list[Row] = []
        for name, text in texts.items():
            lead = f"{name:<9}" if name else ""
            lines = wrapped(clean(text), width - len(lead), self._glyphs, 3) if text.strip() else []
            rows += [[(lead if not at else " " * len(lead), "label"), (line, "value")] for at, line in enumerate(lines)]
        return [*rows, *(head.result_rows(self.now, width) if self.now.summary is not EMPTY else [])]


def _newest(reader: RunReader) -> Picture:
    # Waits for the disk.
    while reader.poll():
        pass
    return reader.picture
