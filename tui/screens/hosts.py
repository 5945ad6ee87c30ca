"""The screen of several machines: GPUs, runs and queue of each, which are read by ssh while the screen is in front."""

from __future__ import annotations

import asyncio
import shlex
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import ClassVar

from textual import events, on, work
from textual.app import ComposeResult
from textual.binding import BindingType

from ..base import keys
from ..base.errors import clean
from ..drawing.rows import Row, fitting, wrapped
from ..reading.hosts import TICK_SECONDS, Host, HostRow, Link, first_to_start, send
from ..upstream.partial_updates import send_changed_cells
from ..widgets.key_footer import KeyFooter
from ..widgets.row_widgets import Panel
from . import saving
from .base import FollowingScreen, Header
from .dialogs import Ask, complaining

BUSY, MEMORY, LEAST_NAME = 6, 14, 24  # columns


class HostsScreen(FollowingScreen[Mapping[str, HostRow]]):
    """Shows the hosts. Enter leaves the terminal to gputui there."""

    DEFAULT_CSS = """
    HostsScreen { layout: vertical; background: $background; }
    HostsScreen #rows { height: 1fr; }
    HostsScreen #detail { padding: 0 1; height: 2; }
    """
    ABOUT = (
        ("a host", "how busy its GPUs are, as a mean, their memory in all, and what runs and waits there"),
        ("no answer", "why ssh has no answer, and since when; it is tried again until there is one"),
    )
    HELP_SECTIONS = (("Rows", ABOUT),)
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("open", meaning="open gputui on the host; on a run, its live view"),
        keys.bind("queue", "send", meaning="queue the form's preset, with its code, on the host that starts it first"),
        *keys.moves("pick(1)", "pick(-1)", "pick_edge(0)", "pick_edge(-1)", "pick(10)", "pick(-10)"),
        *keys.back(),
    ]

    def __init__(self, hosts: Sequence[Host]) -> None:
        super().__init__()
        send_changed_cells(self)
        self.hosts = hosts
        self._picked = ""  # the key of the row under the cursor
        self._top = 0  # the first row that is shown
        self._links: Sequence[Link] = ()

    def compose(self) -> ComposeResult:
        yield Header()
        yield Panel(self._table, id="rows")
        yield Panel(self._detail, id="detail")
        yield KeyFooter()

    def readings(self, leaving: threading.Event) -> Iterator[Mapping[str, HostRow]]:
        self._links = links = [Link(host) for host in self.hosts]
        try:
            while not leaving.wait(TICK_SECONDS):
                if [link for link in links if link.look()] or self.latest is None:
                    yield {key: row for link in links for key, row in link.rows.items()}
        finally:
            for link in links:
                link.close()

    @property
    def rows(self) -> Mapping[str, HostRow]:
        return self.latest or {}

    @property
    def _at(self) -> int:
        return [*self.rows].index(self._picked) if self._picked in self.rows else 0

    def show_latest(self) -> None:
        for panel in self.query(Panel):
            panel.repaint()

    def _table(self, width: int, height: int) -> list[Row]:
        at = self._at
        self._top = min(max(self._top, at - height + 2), at)
        first = max(LEAST_NAME, int(0.4 * width) - 10)
        rows: list[Row] = [[(f"{' host':<{first}}{'busy':>{BUSY}}{'GiB':>{MEMORY}}  state", "title")]]
        for number, row in islice(enumerate(self.rows.values()), self._top, self._top + height - 1):
            text = f"{fitting(f' {row.name}', first, self.glyphs):<{first}}{row.busy:>{BUSY}}{row.memory:>{MEMORY}}  "
            state = fitting(row.state.replace("\n", " "), max(1, width - len(text)), self.glyphs)
            rows.append([(f"{text}{state:<{width}}", "here" if number == at else row.look)])
        return rows

    def _detail(self, width: int, height: int) -> list[Row]:
        lines = [line for row in [*self.rows.values()][self._at :][:1]
                 for line in wrapped(f"{row.name.strip()}: {row.state}", width, self.glyphs, height)]  # fmt: skip
        return [[(line, "label")] for line in lines]

    # ---- keys -------------------------------------------------------------------------------------

    def action_pick(self, by: int) -> None:
        self.action_pick_edge(min(max(0, self._at + by), len(self.rows) - 1))

    def action_pick_edge(self, number: int) -> None:
        self._picked = [*self.rows][number]
        self.show_again()

    @on(events.Click, "#rows")
    def _clicked(self, event: events.Click) -> None:
        if 0 < event.y <= len(self.rows) - self._top:
            self.action_pick_edge(self._top + event.y - 1)

    def action_open(self) -> None:
        """Leave the terminal to gputui on the host of the row, which shows its run or else the form."""
        row = [*self.rows.values()][self._at]
        command = row.host.command(f"watch {shlex.quote(row.run)}" if row.run else "", "-t")
        by_hand = f"by hand: {shlex.join(command)}"
        saving.leave_terminal_to(self.app, command, f"gputui on {row.host.name}", by_hand, by_hand)

    @work(exclusive=True, group="copying")
    async def action_send(self) -> None:
        """Queue the form's preset on the host that starts it first, after a question."""
        preset = self.app.form_state.preset
        with complaining(self.app, f"{preset.name} is not queued: "):
            host = first_to_start(self._links, preset).host
            question = f"Queue {preset.name} on {host.name}, which starts it first?"
            if await self.app.push_screen_wait(Ask(question, ("Queue", "Cancel"), "queue")) == "Queue":
                answer = await asyncio.to_thread(send, preset, host)
                self.app.notify(clean(f"{host.name}: {answer}"), markup=False)
