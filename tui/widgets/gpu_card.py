"""One GPU: busy with its history, memory with TensorFlow's part, temperature, power, clock, throttling.

Separates what a card says from how much room it has: one line, a few, or a picture of the history.
"""

from __future__ import annotations

import textwrap

from ..drawing.gauge import gauge
from ..drawing.glyphs import Glyphs
from ..drawing.plot import Curve, Plot, curve_rows, percent
from ..drawing.rows import Row, fit, headline, length
from ..errors import clean
from ..figures import NONE
from ..reading.store import Gpu
from .painted import Painted

GIB = 1024**3
WIDE = 76  # from here on, one line holds all of a GPU


class GpuCard(Painted):
    """Shows the last reading of a GPU."""

    DEFAULT_CSS = "GpuCard { width: 1fr; height: 1fr; }"

    def __init__(self, gpu: Gpu, x_end: float) -> None:
        super().__init__()
        self.gpu, self.x_end = gpu, x_end

    def show(self, gpu: Gpu, x_end: float) -> None:
        if (gpu, x_end) != (self.gpu, self.x_end):
            self.gpu, self.x_end = gpu, x_end
            self.repaint()

    def rows(self, width: int, height: int) -> list[Row]:
        return card(self.gpu, self.x_end, width - 1, height, self.glyphs)


def card(gpu: Gpu, x_end: float, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """A GPU in so much room."""
    if gpu.missing:
        return _lost(gpu, width, height, glyphs)
    if height == 1:
        return [_line(gpu, width, glyphs) if width >= WIDE else _short_line(gpu, width, glyphs)]
    if height == 2:
        return [_head(gpu, width, glyphs), _bars(gpu, width, glyphs)]
    return [_head(gpu, width, glyphs), *_history(gpu, x_end, width, height - 2, glyphs), _memory(gpu, width, glyphs)]


def _lost(gpu: Gpu, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Why there are no readings, in as many lines as there are."""
    reason = f"{glyphs.failed} no readings: {clean(gpu.missing)}"
    lines = textwrap.wrap(reason, max(10, width - 7)) if height > 1 else [reason]
    lines += [""] * (height - len(lines))
    return [
        fit([*(_number(gpu, glyphs) if number == 0 else [(" " * 7, "")]), (line, "bad")], width)
        for number, line in enumerate(lines[:height])
    ]


def _number(gpu: Gpu, glyphs: Glyphs) -> Row:
    return [("GPU ", "label"), (f"{gpu.index:<2}", "title"), _mark(gpu, glyphs)]


def _mark(gpu: Gpu, glyphs: Glyphs) -> tuple[str, str]:
    """Whether this is one of the run's."""
    return (glyphs.point if gpu.training else " ", "title")


def _throttled(gpu: Gpu, glyphs: Glyphs) -> Row:
    return [(f"{glyphs.warn} {', '.join(gpu.throttle)}  ", "warn")] if gpu.throttle else []


def _warmth(gpu: Gpu) -> Row:
    """Temperature and power at a fixed width."""
    limit = f"/{gpu.power_limit_w:.0f}" if gpu.power_limit_w is not None else ""
    return [
        (f"{_whole(gpu.temperature_c):>3}", "value"), (" °C ", "label"),
        (f"{_whole(gpu.power_w):>4}{limit}", "value"), (" W", "label"),
    ]


def _clock(gpu: Gpu) -> Row:
    return [(f"{_whole(gpu.sm_clock_mhz):>7}", "value"), (" MHz", "label")]


def _head(gpu: Gpu, width: int, glyphs: Glyphs) -> Row:
    right = _warmth(gpu) + (_clock(gpu) if width >= 46 else [])
    left = [*_number(gpu, glyphs), *_throttled(gpu, glyphs)]
    name = _short_name(clean(gpu.name or ""), width - length(left) - length(right) - 1)
    return headline([*left, (name, "label")], right, width, glyphs.rule)


def _short_name(name: str, width: int) -> str:
    """As many whole words as fit."""
    words = name.removeprefix("NVIDIA ").split()
    while words and len(" ".join(words)) > width:
        words.pop()
    return " ".join(words)


def _line(gpu: Gpu, width: int, glyphs: Glyphs) -> Row:
    right: Row = [("  ", ""), *_warmth(gpu), *_clock(gpu)] if width >= WIDE + 10 else [("  ", ""), *_warmth(gpu)]
    if gpu.throttle:
        right += [(f" {glyphs.warn} {gpu.throttle[0]}", "warn")]
    room = width - length(right) - 8
    busy = max(6, room // 4)
    left = [*_number(gpu, glyphs), *_bar("busy", gauge(busy - 6, gpu.busy, 1.0, glyphs), percent(gpu.busy)), (" ", "")]
    left += _memory(gpu, width - length(left) - length(right), glyphs)
    return [*fit(left, width - length(right)), *right]


def _short_line(gpu: Gpu, width: int, glyphs: Glyphs) -> Row:
    """The most telling figures; what they are is said where there is room for the words."""
    right = [(f" {_gib(gpu.memory_used_bytes)}", "value"), (" GiB" if width >= 50 else " G", "label")]
    right += [(f" {_whole(gpu.temperature_c):>3}", "value"), (" °C", "label")]
    if width >= 42:
        right += [(f" {_whole(gpu.power_w):>3}", "value"), (" W", "label")]
    right += [(f" {glyphs.warn}" if gpu.throttle else "  ", "warn")]
    left: Row = [(f"{gpu.index:>2}", "title"), _mark(gpu, glyphs), ("busy " if width >= 50 else "", "label")]
    left += [(f"{percent(gpu.busy)} ", "value")]
    return [*left, *_gauge(gpu, width - length(left) - length(right), glyphs), *right]


def _bars(gpu: Gpu, width: int, glyphs: Glyphs) -> Row:
    half = width // 3
    left = [*_bar("busy", gauge(half - 11, gpu.busy, 1.0, glyphs), percent(gpu.busy)), ("  ", "")]
    return [*fit(left, half), *_memory(gpu, width - half, glyphs)]


def _bar(label: str, bar: Row, value: str) -> Row:
    return [(f"{label} ", "label"), *bar, (f" {value}", "value")]


def _history(gpu: Gpu, x_end: float, width: int, height: int, glyphs: Glyphs) -> list[Row]:
    """Busy over the whole run, from 0 to 100 %, with the value at its left."""
    plot = Plot("busy", "", (Curve("", gpu.history),), bounds="share", x_end=x_end, final=True)
    labels = ["busy", percent(gpu.busy)] + [""] * height
    clock = _clock(gpu) if width < 46 else []
    rows: list[Row] = []
    for number, row in enumerate(curve_rows(plot, max(1, width - 7 - length(clock)), height, glyphs)):
        label = labels[number] if height > 1 else percent(gpu.busy)
        head = [(f"{label:<6}", "value" if "%" in label else "label"), (glyphs.axis, "track")]
        rows.append(fit([*head, *row, *(clock if number == height - 1 else [])], width))
    return rows


def _memory(gpu: Gpu, width: int, glyphs: Glyphs) -> Row:
    """The gauge with used of total, and TensorFlow's own figures where there is room for them."""
    right: Row = [(f" {_gib(gpu.memory_used_bytes)}/{_gib(gpu.memory_total_bytes)}", "value"), (" GiB", "label")]
    if width >= 56 and gpu.tf_peak_bytes is not None:
        right += [("  TF ", "label"), (_gib(gpu.tf_current_bytes), "value")]
        right += [(" peak ", "label"), (_gib(gpu.tf_peak_bytes), "value")]
    if gpu.shared_with_host:
        right += [(" shared with host", "label")]
    room = width - 7 - length(right)
    return fit([("memory ", "label"), *_gauge(gpu, room, glyphs), *right], width)


def _gauge(gpu: Gpu, width: int, glyphs: Glyphs) -> Row:
    total = gpu.memory_total_bytes
    return gauge(width, gpu.memory_used_bytes, total, glyphs, gpu.tf_current_bytes, gpu.tf_peak_bytes)


def _gib(value: float | None) -> str:
    """Four characters: 61.4, 512."""
    if value is None:
        return f"{NONE:>4}"
    return f"{value / GIB:>4.0f}" if value >= 100 * GIB else f"{value / GIB:>4.1f}"


def _whole(value: float | None) -> str:
    return NONE if value is None else f"{value:,.0f}"
