"""The screen of a measurement of scaling: a row for each number of replicas or copies, what limits the speed, its
trials."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, ClassVar

from rich.text import Text
from textual import work
from textual.binding import BindingType

from ....engine.trials import RESUMABLE, scaling_sentences
from ....engine.trials.record import Point
from ....engine.units import share
from ...base import keys
from ...base.errors import clean
from ...drawing import interval_bar
from ...drawing.interval_bar import Interval, Scale, scale_of
from ...drawing.rows import Row, wrapped
from ...widgets.table import Column
from . import actions
from .screen import BAR, WIDE_BAR, ProofScreen

WIDTHS = (10, 14, 12, 10, 12, 9, 10, 12)  # of the columns, in cells
NARROW_BAR = 9  # cells, with the two blanks before it
LINES = ((9, 9), (9, 1), (2, 1))  # that a remark and a trial may take, from the most to the fewest


class ScalingScreen(ProofScreen):
    """Shows a measurement of scaling. Each row of its table is a number of replicas or copies, not a comparison."""

    BINDINGS: ClassVar[list[BindingType]] = [
        keys.bind("resume", label="Go on", meaning="continue a measurement that was stopped or killed"),
        keys.bind("start", "again", "Measure again", meaning="measure the same once more"),
    ]

    @property
    def compared(self) -> list[Any]:
        return scaling_sentences.points(self.data)

    def _widths(self) -> dict[str, int]:
        """If there is little room, the last column and the bars are left out, and the others are as narrow as their
        texts."""
        heads = scaling_sentences.head(self.data)
        widths = list(zip(heads, WIDTHS, strict=True))
        room = self.size.width - 3 - sum(WIDTHS)
        if room < 0:
            rows = [heads, *(scaling_sentences.row(point) for point in self.compared)]
            longest = [max(map(len, texts)) for texts in zip(*rows, strict=True)]
            widths = [(head, 1 + cells) for head, cells in zip(heads[:-1], longest, strict=False)]
            room = self.size.width - 3 - sum(width for _, width in widths)
        if room >= NARROW_BAR:
            widths.insert(scaling_sentences.HEAD.index("spread") + 1, (BAR, min(WIDE_BAR, room)))
        return dict(widths)

    def _column(self, name: str, width: int) -> Column:
        if name == BAR:
            return super()._column(name, width)
        return Column(name, Text(name, justify="right"), width)

    @property
    def _scale(self) -> Scale | None:
        # Its zero is a speed in proportion to the replicas.
        return scale_of(map(_interval, self.compared), zero=1.0, label=share)

    def _row(self, point: Point) -> list[Text]:
        cells = dict(zip(scaling_sentences.head(self.data), scaling_sentences.row(point), strict=True))
        widths = self._widths()
        row = {name: Text(cells.get(name, ""), justify="right", no_wrap=True) for name in widths}
        if BAR in widths:
            bar = interval_bar.bar(_interval(point), self._scale, widths[BAR] - 2, self.glyphs, "value")
            row[BAR] = self.cell([("  ", ""), *bar])
        return list(row.values())

    def _detail(self, width: int, height: int) -> list[Row]:
        """What limits the scaling, then the trials of the number under the cursor, which are shortened first."""
        remarks = [*scaling_sentences.remarks(self.data), scaling_sentences.about(self.data)] if self.compared else []
        trials = [scaling_sentences.trial(trial) for trial in (self.picked.trials if self.picked else ())]
        rows: list[Row] = []
        for most, of_a_trial in LINES:
            rows = [*self._rows(remarks, "label", width, most), *self._rows(trials, "value", width, of_a_trial)]
            if len(rows) <= height:
                break
        nothing: list[Row] = [[("nothing has been measured so far" if self.data.is_read else "reading ...", "label")]]
        return (rows or nothing)[:height]

    def _rows(self, texts: Iterable[str], style: str, width: int, most: int) -> Iterator[Row]:
        for text in texts:
            yield from ([(line, style)] for line in wrapped(clean(text), width, self.glyphs, most))

    # ---- keys -------------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        if action == "resume":
            return self.data.state in RESUMABLE
        if action == "again":
            return self.data.is_read and not self.is_measuring
        return super().check_action(action, parameters)

    def why_not(self, verb: str) -> str:
        if verb == "file":
            of_copies = scaling_sentences.is_of_copies(self.data)
            why = "no number of runs on one GPU was proved to pay" if of_copies else "more replicas change no preset"
            return f"there is no improved preset: {why}"
        return (
            "it goes on" if self.is_measuring else f"it has ended; {self.app.key('start')} measures the same once more"
        )

    @work(exclusive=True, group="resume")
    async def action_resume(self) -> None:
        await actions.go_on_with_scaling(self.app, self.proof)
        self.read_again()

    @work(exclusive=True, group="start")
    async def action_again(self) -> None:
        await actions.measure_again(self.app, self.proof)


def _interval(point: Point) -> Interval | None:
    return interval_bar.around(point.efficiency, point.spread)
