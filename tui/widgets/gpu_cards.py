"""The cards of all GPUs in a grid, and below them all figures of the selected one where the cards have no room for
them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content

from ..base.errors import clean
from ..base.glyphs import glyphs_of
from ..drawing.layout import Cards
from ..reading.gpus import Gpu
from .gpu_card import GpuCard


def kinds(gpus: Sequence[Gpu]) -> Content:
    """How many GPUs of which kind."""
    names = Counter(clean(gpu.name or "GPU").removeprefix("NVIDIA ") for gpu in gpus)
    return Content("GPUs  " + ", ".join(f"{count} x {name}" for name, count in names.items()))


class GpuCards(Vertical):
    """`show` arranges and fills the cards; `pick` selects one."""

    DEFAULT_CSS = """
    GpuCards { height: 1fr; }
    GpuCards.-edge { border: round $border; border-title-color: $foreground; border-title-style: bold; }
    GpuCards.-edge.-plain { border: ascii $border; }
    GpuCards > VerticalScroll { layout: grid; grid-gutter: 0 2; scrollbar-size: 1 1; height: 1fr; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._gpus: tuple[Gpu, ...] = ()
        self._x_end = 1.0
        self._cards = Cards()
        self._kinds: Content | None = None
        self._picked = 0

    def compose(self) -> ComposeResult:
        yield VerticalScroll(can_focus=False)

    @property
    def picked(self) -> Gpu | None:
        """The GPU whose figures are shown below the cards."""
        return self._gpus[self._picked % len(self._gpus)] if self._gpus and self._cards.detail else None

    def show(
        self, gpus: Sequence[Gpu], x_end: float, cards: Cards, edge: bool = False, turn: int | None = None
    ) -> None:
        """Show the newest readings in this arrangement; a GPU that was seen once always stays.

        With a `turn` every other card draws its history, those between them with the next turn; figures follow at once.
        """
        self.set_class(edge, "-edge")
        self.set_class(edge and not glyphs_of(self.app).braille, "-plain")
        if (kinds_now := kinds(gpus)) != self._kinds:  # a title that is set is painted with all that it stands over
            self._kinds, self.border_title = kinds_now, kinds_now
        self._gpus, self._x_end = tuple(gpus), x_end
        if cards != self._cards:
            self._cards = cards
            self._arrange()
        self._fill(turn)

    def pick(self, by: int) -> None:
        """Select the next GPU, or the one before."""
        if self._gpus:
            self._picked = (self._picked + by) % len(self._gpus)
            self._fill()

    def pick_edge(self, number: int) -> None:
        """Select the first GPU (0) or the last one (-1)."""
        self._picked = number
        self.pick(0)

    @on(GpuCard.Clicked)
    def _clicked(self, event: GpuCard.Clicked) -> None:
        event.stop()
        self._picked = next((n for n, gpu in enumerate(self._gpus) if gpu.index == event.index), 0)
        self._fill()

    def _arrange(self) -> None:
        grid = self.query_one(VerticalScroll)
        grid.styles.grid_size_columns = self._cards.columns
        grid.styles.grid_rows = str(self._cards.tall)

    def _fill(self, turn: int | None = None) -> None:
        grid = self.query_one(VerticalScroll)
        known = {card.gpu.index: card for card in grid.query(GpuCard)}
        for position, gpu in enumerate(self._gpus):
            if gpu.index not in known:
                known[gpu.index] = GpuCard(gpu, self._x_end)
                grid.mount(known[gpu.index])
            curve = turn is None or (turn + position) % 2 == 0
            known[gpu.index].show(gpu, self._x_end, self._cards.all_of_it, curve=curve)
            known[gpu.index].set_class(gpu is self.picked, "-picked")
        self._show_detail()

    def _show_detail(self) -> None:
        gpu = self.picked
        found = self.query("#detail").results(GpuCard)
        detail = next(iter(found), None)
        if detail is None and gpu is not None:
            detail = GpuCard(gpu, self._x_end, all_of_it=True, id="detail")
            self.mount(detail)
        if detail is not None:
            detail.display = gpu is not None
            detail.styles.height = max(1, self._cards.detail)
            if gpu is not None:
                detail.show(gpu, self._x_end, True)
