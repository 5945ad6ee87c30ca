"""The cards of all GPUs in a grid. Depending on its space, a card is one line, a few lines, a chart of the history, or
all figures. If there is no room for all figures, those of the selected GPU are shown below the grid."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from textual import on
from textual.app import ComposeResult
from textual.containers import Vertical, VerticalScroll
from textual.content import Content
from textual.message import Message

from ...engine.figures import GPU
from ...engine.units import gibibytes, percent
from ..base.errors import clean
from ..base.glyphs import Glyphs, glyphs_of
from ..drawing.gpu_details import load, noteworthy_rows, whole
from ..drawing.live.layout import Cards
from ..drawing.plot.canvas import curve_rows, draw
from ..drawing.plot.curves import Curve, Plot
from ..drawing.rows import Row, fit, gauge, hanging, headline, length, whole_words
from ..reading.run.gpu_reading import ShownGpu
from .row_widgets import Painted

_BUSY = f"{GPU['busy'].label} "
WIDE = 76  # from this width on, one line has room for all of a GPU's figures
WITH_AXES = 6  # from this height on the history has axes
HISTORY_ROWS = 2  # of the history on a card that also shows other figures


class GpuCard(Painted):
    """Shows the last reading of a GPU. With `all_of_it` it shows every figure, or the reason why the figure is
    missing."""

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
        """Select the next GPU (1) or the previous GPU (-1)."""
        if self._gpus:
            self._picked = (self._picked + by) % len(self._gpus)
            self._fill()

    def pick_edge(self, number: int) -> None:
        """Select the first GPU (0) or the last GPU (-1)."""
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


def card(gpu: ShownGpu, x_end: float, width: int, height: int, glyphs: Glyphs, all_of_it: bool = False) -> list[Row]:
    """Return a GPU's card. The history gets the rows that are left, to `x_end` in seconds; `all_of_it`: every
    figure."""
    if gpu.missing:
        return _lost(gpu, width, height, glyphs)
    if height == 1:
        return [_line(gpu, width, glyphs) if width >= WIDE else _short_line(gpu, width, glyphs)]
    if height == 2:
        left = [*_busy(gpu, max(0, width // 3 - 13), glyphs), ("  ", "")]
        return [_head(gpu, width, glyphs), [*left, *_memory(gpu, width - length(left), glyphs)]]
    room = height - 2 - HISTORY_ROWS + bool(gpu.lease)  # its row is taken from the history
    more = (whole if all_of_it else noteworthy_rows)(gpu, width, max(0, room), glyphs)
    history = _history(gpu, x_end, width, height - 2 - len(more), glyphs)
    return [_head(gpu, width, glyphs), *history, _memory(gpu, width, glyphs), *(fit(row, width) for row in more)]


def _lost(gpu: ShownGpu, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    reason = f"{glyphs.failed} no readings: {clean(gpu.missing)}"
    # In one line first its part in parentheses is left out.
    brief = reason if len(reason) <= width - 7 else reason.partition(" (")[0]
    lines = textwrap.wrap(reason, max(10, width - 7)) if height > 1 else [whole_words(brief, width - 7, glyphs)]
    rows = hanging((lines + [""] * height)[:height], "bad", _number(gpu, glyphs))
    return [fit(row, width) for row in rows]


def _number(gpu: ShownGpu, glyphs: Glyphs) -> Row:
    return [("GPU ", "label"), (f"{gpu.index:<2}", "title"), (glyphs.point if gpu.ours else " ", "title")]


def _throttled(gpu: ShownGpu, glyphs: Glyphs) -> Row:
    return [(f"{glyphs.warn} {', '.join(gpu.throttle)}  ", "warn")] if gpu.throttle else []


def _warmth(gpu: ShownGpu) -> Row:
    limit = f"/{GPU['power_limit_w'].bare(gpu.power_limit_w)}" if gpu.power_limit_w is not None else ""
    return [*_value(gpu, "temperature_c", 3), (" ", "label"), *_value(gpu, "power_w", 4, limit)]


def _value(gpu: ShownGpu, key: str, width: int, limit: str = "") -> Row:
    figure = GPU[key]
    return [(f"{figure.bare(gpu.value(key)):>{width}}{limit}", load(gpu, key)), (f" {figure.unit}", "label")]


def _clock(gpu: ShownGpu) -> Row:
    return _value(gpu, "sm_clock_mhz", 7)


def _head(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    right = _warmth(gpu) + (_clock(gpu) if width >= 46 else [])
    sign: Row = [(glyphs.warn, "warn")] if gpu.throttle else []
    marks = [[(" ", ""), *_throttled(gpu, glyphs)], _throttled(gpu, glyphs), sign]
    lefts = [[*_number(gpu, glyphs), *mark] for mark in marks]
    left = next((row for row in lefts if length(row) + length(right) <= width), lefts[-1])
    words = clean(gpu.name or "").removeprefix("NVIDIA ").split()
    while words and len(" ".join(words)) > width - length(left) - length(right) - 1:
        words.pop()
    return headline([*left, (" ".join(words), "label")], right, width, glyphs.rule)


def _line(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    right: Row = [("  ", ""), *_warmth(gpu), *_clock(gpu)] if width >= WIDE + 10 else [("  ", ""), *_warmth(gpu)]
    if gpu.throttle:
        right += [(f" {glyphs.warn} {gpu.throttle[0]}", "warn")]
    room = width - length(right) - 8
    busy = max(6, room // 4)
    left = [*_number(gpu, glyphs), *_busy(gpu, busy - 6, glyphs), (" ", "")]
    left += _memory(gpu, width - length(left) - length(right), glyphs)
    return [*fit(left, width - length(right)), *right]


def _short_line(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    """One row with the most important figures for a narrow card, with names if there is room."""
    taken = (f" {_gib(gpu.memory_used_bytes)}", load(gpu, "memory_used_bytes"))
    right = [taken, (" GiB" if width >= 50 else " G", "label"), (" ", "value"), *_value(gpu, "temperature_c", 3)]
    right += [(" ", "value"), *_value(gpu, "power_w", 3)] if width >= 42 else []
    right += [(f" {glyphs.warn}" if gpu.throttle else "  ", "warn")]
    left: Row = [(f"{gpu.index:>2}{glyphs.point if gpu.ours else ' '}", "title")]
    left += [(_BUSY if width >= 50 else "", "label"), (f"{percent(gpu.busy)} ", load(gpu, "busy"))]
    return [*left, *_gauge(gpu, width - length(left) - length(right), glyphs), *right]


def _busy(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    value = f" {percent(gpu.busy)}"
    if gpu.busy is None and 0 < len(why := _why(gpu, "busy")) <= width + len(value):
        return [(_BUSY, "label"), (why.center(width + len(value)), "warn")]
    style = load(gpu, "busy")
    return [(_BUSY, "label"), *gauge(width, gpu.busy, 1.0, glyphs, style=style), (value, style)]


def _why(gpu: ShownGpu, figure: str) -> str:
    return clean(gpu.why(figure)) if figure in (gpu.reasons or ()) else ""


def _history(gpu: ShownGpu, x_end: float, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """The share of busy time over the whole run, from 0 to 100 %, with its present value at the left. `x_end` is in
    s."""
    plot = Plot(_BUSY.strip(), "", (Curve("", gpu.history),), bounds="share", x_end=x_end, final=True)
    if height >= WITH_AXES and width >= 46 and gpu.busy is not None:
        return draw(plot, width, height, glyphs)[0]
    labels = [_BUSY.strip(), percent(gpu.busy)] + [""] * height
    clock = _clock(gpu) if width < 46 else []
    rows: list[Row] = []
    for number, row in enumerate(curve_rows(plot, max(1, width - 7 - length(clock)), height, glyphs)):
        label = labels[number] if height > 1 else percent(gpu.busy)
        head = [(f"{label:<6}", load(gpu, "busy") if "%" in label else "label"), (glyphs.axis, "track")]
        if gpu.busy is None and number == height // 2 and (why := _why(gpu, "busy")):
            row = [(f" {why}", "warn")]
        rows.append(fit([*head, *row, *(clock if number == height - 1 else [])], width))
    return rows


def _memory(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    """A gauge of used and total memory, followed by TensorFlow's own figures if there is room."""
    taken = load(gpu, "memory_used_bytes")
    right: Row = [(" peak", "label")] if gpu.mean else []
    right += [(f" {_gib(gpu.memory_used_bytes)}/{_gib(gpu.memory_total_bytes)}", taken), (" GiB", "label")]
    if width >= 56 and gpu.tf_peak_bytes is not None:
        right += [(f"  {GPU['tf_current_bytes'].label}", "label")]
        right += [] if gpu.mean else [(f" {_gib(gpu.tf_current_bytes)}", "value")]
        right += [(f" {GPU['tf_peak_bytes'].label} ", "label"), (_gib(gpu.tf_peak_bytes), "value")]
    if gpu.shared_with_host:
        right += [(" shared with host", "label")]
    elif gpu.memory_used_counts_reserved and width >= 56:
        right += [(" with the driver's own", "label")]
    room = width - 7 - length(right)
    return fit([(f"{GPU['memory_used_bytes'].label} ", "label"), *_gauge(gpu, room, glyphs), *right], width)


def _gauge(gpu: ShownGpu, width: int, glyphs: Glyphs) -> Row:
    used, total = gpu.memory_used_bytes, gpu.memory_total_bytes
    why, style = _why(gpu, "memory_used_bytes"), load(gpu, "memory_used_bytes")
    return gauge(width, used, total, glyphs, gpu.tf_current_bytes, gpu.tf_peak_bytes, why=why, style=style)


def _gib(value: float | None) -> str:
    # In four characters, such as 61.4 or " 512".
    return f"{gibibytes(value):>4}"
