"""The screen of a proof, running or finished: before and after, every change with its gain, the trials of one change.

A thread reads proof.json about twice a second, and a timer repaints what has changed. The proof runs in its own
process: leaving the screen ends nothing.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from rich.text import Text
from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import ModalScreen, Screen
from textual.widgets import DataTable, Footer

from ...engine.runs import Run
from ..base.glyphs import Glyphs, glyphs_of
from ..drawing import comparisons
from ..drawing import proof as drawing
from ..drawing.rows import Row, fitting
from ..widgets.panel import Panel
from . import proof_actions
from .common import OpeningTable, styled

if TYPE_CHECKING:
    from ...engine.proof.folder import Proof
    from ..base.services import Host

READ_SECONDS = 0.5
ENDED_READ_SECONDS = 3.0
LOW = 20  # below this height the large figures are one line
WIDTHS = {"at most": 10, "measured": 18, "decision": 16}
WIDE, BAR = 100, 24  # from this width on gains are also shown as bars


class _Changes(OpeningTable):
    BINDINGS: ClassVar[list[BindingType]] = [Binding("enter", "select_cursor", "Trial")]


class ProofScreen(Screen[None]):
    """One proof; `clock` returns the time."""

    CSS_PATH = "proof.tcss"
    app: Host
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("s", "stop", "Stop"),
        Binding("o", "open", "Improved preset"),
        Binding("m", "save", "Markdown"),
        Binding("f3,2", "app.live", "Live", show=False),  # room for the keys of this screen
        Binding("escape", "back", "Back"),
    ]

    def __init__(self, proof: Proof, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__()
        self.proof, self._clock = proof, clock
        self.data: dict[str, Any] = {}
        self._data_read: dict[str, Any] | None = None
        self._cells: list[list[Text]] = []
        self._columns: list[str] = []
        self._leaving = threading.Event()

    @property
    def glyphs(self) -> Glyphs:
        return glyphs_of(self.app)

    @property
    def table(self) -> DataTable[Any]:
        return self.query_one(DataTable)

    @property
    def compared(self) -> list[comparisons.Told]:
        return comparisons.compared(self.data)

    @property
    def picked(self) -> comparisons.Told | None:
        """The comparison under the cursor."""
        listed, row = self.compared, self.table.cursor_row
        return listed[row] if 0 <= row < len(listed) else None

    def compose(self) -> ComposeResult:
        yield Panel(self._head, id="head")
        yield _Changes(cursor_type="row", cell_padding=0)
        yield Panel(self._detail, id="detail")
        yield Footer(show_command_palette=False, compact=True)

    def on_mount(self) -> None:
        self.table.focus()
        self.read()
        self.set_interval(READ_SECONDS, self._look)

    def on_unmount(self) -> None:
        self._leaving.set()

    @work(thread=True, group="reading")
    def read(self) -> None:
        """Until the screen is closed."""
        while not self._leaving.is_set():
            data = self.proof.data
            if data or self._data_read is None:  # a file that cannot be read now may have been read before
                self._data_read = data
            self._leaving.wait(READ_SECONDS if data.get("state") == "running" else ENDED_READ_SECONDS)

    def _look(self) -> None:
        if not self.is_current and not isinstance(self.app.screen, ModalScreen):
            return
        if self._data_read is not None and self._data_read != self.data:
            self.data = self._data_read
            self.show_now()
        elif self.data.get("state") == "running":
            self.query_one("#head", Panel).repaint()

    def on_resize(self) -> None:
        self.show_now()

    # ---- what is seen -----------------------------------------------------------------------------

    def show_now(self) -> None:
        """Show the newest proof.json."""
        head = self._head(max(1, self.size.width - 2), 0)
        self.query_one("#head").styles.height = len(head)
        room = self.size.height - len(head) - 2  # the footer and a blank row
        changes = min(len(self.compared) + 1, max(3, room // 2))
        self.query_one("#detail").styles.height = max(3, room - max(4, changes))
        self._fill()
        for panel in self.query(Panel):
            panel.repaint()
        self.refresh_bindings()

    def _head(self, width: int, height: int) -> list[Row]:
        return drawing.head(self.data, self._clock(), width, self.glyphs, low=self.size.height < LOW)

    def _detail(self, width: int, height: int) -> list[Row]:
        picked = self.picked
        if picked is None:
            nothing = "nothing has been compared so far" if self.data else "reading the proof ..."
            return [[(nothing, "label")]]
        return comparisons.detail(picked, width, height, self.glyphs)

    def _fill(self) -> None:
        """Only what differs is written, unless rows or columns come or go."""
        table, columns, cells = self.table, self._titles(), [self._row(one) for one in self.compared]
        if columns != self._columns or len(cells) != len(self._cells):
            at = table.cursor_row if len(cells) == len(self._cells) else len(cells) - 1  # a new one is picked
            table.clear(columns=True)
            for name, width in self._widths().items():
                right = name in ("at most", "measured")
                table.add_column(Text(name, justify="right" if right else "left"), width=width)
            table.add_rows(cells)
            table.move_cursor(row=max(0, at), animate=False)
        else:
            for y, (old, new) in enumerate(zip(self._cells, cells, strict=True)):
                for x, (before, now) in enumerate(zip(old, new, strict=True)):
                    if before != now:
                        table.update_cell_at((y, x), now)  # type: ignore[arg-type]
        self._columns, self._cells = columns, cells

    def _widths(self) -> dict[str, int]:
        bar = {"  gain and spread": BAR} if self.size.width >= WIDE else {}
        rest = self.size.width - 2 - sum(WIDTHS.values()) - sum(bar.values())
        return {"change": max(12, rest), "at most": WIDTHS["at most"], "measured": WIDTHS["measured"], **bar,
                "  decision": WIDTHS["decision"]}

    def _titles(self) -> list[str]:
        return [f"{name} {width}" for name, width in self._widths().items()]

    def _row(self, one: comparisons.Told) -> list[Text]:
        widths = self._widths()
        word, style = comparisons.decision(one, self.glyphs)
        cells = [
            Text(fitting(comparisons.changes(one), widths["change"] - 1, self.glyphs), no_wrap=True),
            Text(comparisons.most(one), justify="right"),
            Text(comparisons.measured(one, self.glyphs), justify="right"),
            Text(f"  {word}", style=styled(self.app, style)),
        ]
        if "  gain and spread" in widths:
            low, high = comparisons.reach(self.compared)
            bar = comparisons.whisker(one, low, high, BAR - 3, self.glyphs)
            cells.insert(3, Text(f"  {bar}", style=styled(self.app, style)))
        return cells

    def on_data_table_row_highlighted(self, event: DataTable.RowHighlighted) -> None:
        self.query_one("#detail", Panel).repaint()

    # ---- keys -------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys without a purpose now are not in the footer."""
        if action == "stop":
            return self.data.get("state") == "running"
        if action == "open":
            return bool(self.data.get("preset_after"))
        return action != "save" or bool(self.data)

    @work(exclusive=True, group="stop")
    async def action_stop(self) -> None:
        await proof_actions.stop(self.app, self.proof)

    @work(exclusive=True, group="open")
    async def action_open(self) -> None:
        await proof_actions.open_improved(self.app, self.proof, str(self.data.get("preset_after")))

    @work(exclusive=True, group="save")
    async def action_save(self) -> None:
        await proof_actions.save_report(self.app, self.proof, self.data, Path.cwd())

    def on_data_table_row_selected(self, event: DataTable.RowSelected) -> None:
        """Open the run of the latest trial."""
        trials = (self.picked or {}).get("trials") or ()
        name = next((str(trial.get("run")) for trial in reversed(trials) if trial.get("run")), "")
        path = self.proof.path / "trials" / Path(name).name
        if name and path.is_dir():
            self.app.open_run(Run(path))

    def action_back(self) -> None:
        if len(self.app.screen_stack) > 1:
            self.app.pop_screen()
