"""The previews of one or several runs, next to each other: an epoch and a name at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.screen import Screen

from ...engine.runs import Run, previews
from ..base import keys
from ..base.errors import clean
from ..drawing import previews as drawing
from ..drawing.rows import Row, fit, spread
from ..widgets.key_footer import KeyFooter
from ..widgets.row_widgets import Panel
from .base import FollowingScreen, Header

READ_SECONDS = 1.0  # while a run goes on
LEAST_WIDTH = 24  # columns of a run; further runs are left out
GAP = 2


@dataclass(frozen=True)
class PreviewReading:
    """The epochs and names of all runs, and of each run what it shows of the chosen ones, or why it shows nothing."""

    epochs: list[int]
    names: list[str]
    epoch: int
    name: str
    shown: list[previews.Shown]


class PreviewScreen(FollowingScreen[PreviewReading]):
    """Shows the previews of `runs`, of the newest epoch until a key chooses another, over the screen `source`."""

    DEFAULT_CSS = """
    PreviewScreen { layout: vertical; background: $background; }
    PreviewScreen > Panel { margin: 0 1; }
    PreviewScreen #body { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("cursor_left", "epoch(-1)", "Epoch before", meaning="the epoch before"),
        keys.bind("cursor_right", "epoch(1)", "Next epoch", meaning="the next epoch"),
        keys.bind("down", "name(1)", "Next name", meaning="the next of the names"),
        *keys.moves("", "name(-1)", "epoch(-100000)", "epoch(100000)", "scroll(1)", "scroll(-1)")[1:],
        *keys.back(),
        keys.bind("previews", "back", "Back", show=False, meaning="back to the screen before"),
    ]

    def __init__(self, source: Screen[object], runs: Sequence[Run]) -> None:
        super().__init__()
        self.source, self.runs = source, list(runs)
        self._chosen_epoch: int | None = None  # None: the newest
        self._chosen_name = ""  # the first
        self._top = 0  # the first row that is shown

    def compose(self) -> ComposeResult:
        yield Header()
        yield Panel(self._title, id="title")
        yield Panel(self._body, id="body")
        yield KeyFooter()

    def readings(self, leaving: threading.Event) -> Iterator[PreviewReading]:
        newest: PreviewReading | None = None
        while not leaving.is_set():
            goes_on = any(run.is_active for run in self.runs)
            if (reading := self._read()) != newest:
                newest = reading
                yield reading
            if not goes_on:
                return
            leaving.wait(READ_SECONDS)

    def _read(self) -> PreviewReading:
        listed = [previews.listed(run.path) for run in self.runs]
        epochs = sorted({epoch for each in listed for epoch in each}) or [0]
        names = sorted({name for each in listed for of_epoch in each.values() for name in of_epoch}) or [""]
        epoch = self._chosen_epoch if self._chosen_epoch in epochs else epochs[-1]
        name = self._chosen_name if self._chosen_name in names else names[0]
        shown = list[previews.Shown]()
        for each in listed:
            try:
                file = each.get(epoch, {}).get(name)
                shown.append("nothing of this name in this epoch" if file is None else previews.read(file))
            except (OSError, ValueError) as fault:
                shown.append(f"cannot be read: {fault}")
        return PreviewReading(epochs, names, epoch, name, shown)

    def show_latest(self) -> None:
        for panel in self.query(Panel):
            panel.repaint()

    # ---- drawing ----------------------------------------------------------------------------------

    def _title(self, width: int, _height: int) -> list[Row]:
        left: Row = [("previews", "title"), (f"  {clean(self.runs[0].name)}" if len(self.runs) == 1 else "", "label")]
        if (now := self.latest) is None:
            return [left]
        many = f" ({now.names.index(now.name) + 1} of {len(now.names)})" if len(now.names) > 1 else ""
        last = f" of {now.epochs[-1]}" if now.epoch != now.epochs[-1] else ", the last one"
        left += [(f"  {clean(now.name)}", "value"), (many, "label")]
        return [spread(left, [(f"epoch {now.epoch}{last}", "value")], width)]

    def _body(self, width: int, height: int) -> list[Row]:
        if (now := self.latest) is None:
            return [[("reading the run folder ...", "label")]]
        count = max(1, min(len(self.runs), (width + GAP) // (LEAST_WIDTH + GAP)))
        each = (width + GAP) // count - GAP
        head: list[Row] = []
        if len(self.runs) > 1:
            names = [(f"{clean(run.name):<{each + GAP}.{each}}", "title") for run in self.runs[:count]]
            hidden = len(self.runs) - count
            head = [names, [(f"{hidden} more need a wider terminal", "label")] if hidden else []]
        columns = [drawing.rows(shown, each, height - len(head), self.glyphs) for shown in now.shown[:count]]
        self._top = max(0, min(self._top, max(map(len, columns)) - height + len(head)))
        body = zip_longest(*(column[self._top :] for column in columns), fillvalue=list[tuple[str, str]]())
        return [*head, *([piece for row in line for piece in fit(row, each + GAP)] for line in body)]

    # ---- keys -------------------------------------------------------------------------------------

    def action_epoch(self, by: int) -> None:
        """The newest is followed again after the last."""
        if (now := self.latest) is not None:  # perhaps of the choice before
            last = len(now.epochs) - 1
            at = now.epochs.index(self._chosen_epoch) if self._chosen_epoch in now.epochs else last
            at = max(0, min(last, at + by))
            self._chosen_epoch = now.epochs[at] if at < last else None
            self.read_again()

    def action_name(self, by: int) -> None:
        if (now := self.latest) is not None:
            at = now.names.index(self._chosen_name) if self._chosen_name in now.names else 0
            self._chosen_name, self._top = now.names[(at + by) % len(now.names)], 0
            self.read_again()

    def action_scroll(self, by: int) -> None:
        self._top += by * max(1, self.size.height // 2)
        self.show_again()
