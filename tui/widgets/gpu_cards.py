"""The cards of all GPUs in a grid. Depending on its space, a card is one line, a few lines, a chart of the history, or
all figures. If there is no room for all figures, those of the selected GPU are shown below the grid."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message

from ..base.errors import clean
from ..base.glyphs import glyphs_of
from ..drawing.gpu_details import card
from ..drawing.live.layout import Cards
from ..drawing.rows import Row
from ..reading.run.gpu_reading import ShownGpu
from .row_widgets import Painted


class GpuCard(Painted):
    """Shows a GPU's last reading, with `all_of_it` every figure, or the reason why it is missing."""

    DEFAULT_CSS = """
    GpuCard { width: 1fr; height: 1fr; }
    GpuCard.-picked { background: $picked; }
    """

    @dataclass
    class Clicked(Message):
        """A request to select the GPU with the number `index`."""

        index: int

    def __init__(self, gpu: ShownGpu, x_end: float, *, all_of_it: bool = False, id: str | None = None) -> None:
        super().__init__(id=id)
        self.gpu, self.x_end, self.all_of_it = gpu, x_end, all_of_it

    def show(self, gpu: ShownGpu, x_end: float, all_of_it: bool = False) -> None:
        """Show a reading. `x_end` is the history's end in seconds."""
        if (gpu, x_end, all_of_it) != (self.gpu, self.x_end, self.all_of_it):
            self.gpu, self.x_end, self.all_of_it = gpu, x_end, all_of_it
            self.repaint()

    def rows(self, width: int, height: int) -> list[Row]:
        return card(self.gpu, self.x_end, width - 1, height, self.glyphs, self.all_of_it)

    def on_click(self) -> None:
        self.post_message(self.Clicked(self.gpu.index))


def kinds(gpus: Sequence[ShownGpu], ended: bool) -> Content:
    """Return a title with the number of GPUs of each model, and what their figures are if the run has `ended`."""
    names = Counter(clean(gpu.name or "GPU").removeprefix("NVIDIA ") for gpu in gpus)
    means = any(gpu.mean for gpu in gpus)
    lead = "GPUs, mean while training  " if means else "GPUs, last reading  " if ended else "GPUs  "
    return Content(lead + ", ".join(f"{count} x {name}" for name, count in names.items()))


class GpuCards(Vertical):
    """The cards of all GPUs. `show` arranges and fills them. `pick` selects a GPU."""

    DEFAULT_CSS = """
    GpuCards { height: 1fr; }
    GpuCards.-edge { border: round $border; border-title-color: $foreground; border-title-style: bold; }
    GpuCards.-edge.-plain { border: ascii $border; }
    GpuCards > VerticalScroll { layout: grid; grid-gutter: 0 2; scrollbar-size: 1 1; height: 1fr; }
    """

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._gpus: tuple[ShownGpu, ...] = ()
        self._x_end = 1.0
        self._cards = Cards()
        self._kinds: Content | None = None
        self._picked = 0

    def compose(self) -> ComposeResult:
        yield VerticalScroll(can_focus=False)

    @property
    def picked(self) -> ShownGpu | None:
        """The selected GPU, whose figures are shown below the cards, if there is room for them."""
        return self._gpus[self._picked % len(self._gpus)] if self._gpus and self._cards.detail else None

    def show(
        self, gpus: Sequence[ShownGpu], x_end: float, cards: Cards, edge: bool = False, ended: bool = False
    ) -> None:
        """Show the newest readings; a GPU keeps its card. `x_end` is the end of the history's axis in seconds."""
        self.set_class(edge, "-edge")
        self.set_class(edge and not glyphs_of(self.app).braille, "-plain")
        if (kinds_now := kinds(gpus, ended)) != self._kinds:  # setting a title repaints the whole widget
            self._kinds, self.border_title = kinds_now, kinds_now
        self._gpus, self._x_end = tuple(gpus), x_end
        if cards != self._cards:
            self._cards = cards
            grid = self.query_one(VerticalScroll)
            grid.styles.grid_size_columns = cards.columns
            grid.styles.grid_rows = str(cards.tall)
        self._fill()

    def pick(self, by: int) -> None:
        if self._gpus:
            self._picked = (self._picked + by) % len(self._gpus)
            self._fill()

    def pick_edge(self, number: int) -> None:
        self._picked = number
        self.pick(0)

    @on(GpuCard.Clicked)
    def _clicked(self, event: GpuCard.Clicked) -> None:
        event.stop()
        self._picked = next((n for n, gpu in enumerate(self._gpus) if gpu.index == event.index), 0)
        self._fill()

    def _fill(self) -> None:
        grid, picked = self.query_one(VerticalScroll), self.picked
        cards = {card.gpu.index: card for card in grid.query(GpuCard)}
        for gpu in self._gpus:
            if gpu.index not in cards:
                cards[gpu.index] = GpuCard(gpu, self._x_end)
                grid.mount(cards[gpu.index])
            cards[gpu.index].show(gpu, self._x_end, self._cards.all_of_it)
            cards[gpu.index].set_class(gpu is picked, "-picked")
        detail = next(iter(self.query("#detail").results(GpuCard)), None)
        if detail is None and picked is not None:
            detail = GpuCard(picked, self._x_end, all_of_it=True, id="detail")
            self.mount(detail)
        if detail is not None:
            detail.display = picked is not None
            detail.styles.height = max(1, self._cards.detail)
            if picked is not None:
                detail.show(picked, self._x_end, True)
