"""The axes of a plot: the scales that suit it, and the labels at its left and below it."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from dataclasses import dataclass

from ....engine.units import DAY, HOUR, axis_time, share
from ...reading.run.series import drawable
from ..rows import Row
from .curves import Plot

GUTTER = 7  # six characters for a label, and the axis
POWERS = "rate"  # an axis whose places are powers of ten
_LABEL = 9  # cells that a label of the horizontal axis takes
_LEAST = 1e-9  # the narrowest part of an axis, as a share of its place


def y_scale(plot: Plot, tall: int, before: Scale | None) -> Scale:
    """Return the scale of the values: `before` if they still fit, so that the picture does not jump."""
    if plot.bounds == "share":
        return share_scale(tall)
    extremes = reach(plot)
    if extremes is None:
        return Scale(0.0, 1.0, 1.0)
    low, high = extremes
    low = 0.0 if plot.bounds == "zero" and not plot.logarithmic else low
    if before is not None and before.logarithmic == plot.logarithmic and before.holds(low, high):
        return before
    return log_scale(low, high, tall) if plot.logarithmic else round_scale(low, high, tall)


def reach(plot: Plot) -> tuple[float, float] | None:
    """Return the lowest and highest value in the window (with breaks: of all); logarithms on such a scale."""
    lows, highs = [], []
    for curve in plot.curves:
        line = drawable(curve.line, plot.logarithmic)
        begin, end = 0, len(line)
        if plot.window is not None and not line.breaks:
            begin = max(0, bisect_left(line.x, plot.window[0]) - 1)
            end = bisect_right(line.x, plot.window[1]) + 1
        if begin < min(end, len(line)):
            lows.append(min((line.low or line.y)[begin:end]))
            highs.append(max((line.high or line.y)[begin:end]))
    return (min(lows), max(highs)) if lows else None


def x_scale(plot: Plot, width: int) -> Scale:
    """Return the axis: the window, or from 0 to the last point or, of a running run, a round place after it."""
    labels = max(1, width // _LABEL)
    low, high = plot.window or (0.0, max(plot.x_end, _least_end(plot)))
    high = max(high, low + _LEAST * max(1.0, abs(low)))
    if plot.x_unit == "time":
        step = _time_step(high - low, labels)
        return _from_round(low, soon(high) if plot.window is None and not plot.final else high, step)
    whole = 0.0 if plot.x_unit == "epoch" else 1.0
    step = max(whole, round_step((high - low) / labels))
    step = 5.0 if whole and step == 2.5 else step  # there is no half a step
    if plot.window is None and not plot.final:
        quantum = max(whole, round_step(high / 8))
        high = math.ceil(high / quantum) * quantum
    return _from_round(low, high, step)


def _from_round(low: float, high: float, step: float) -> Scale:
    return Scale(low, high, step, first=math.ceil(low / step - 1e-6) * step)


def _time_step(length: float, labels: int) -> float:
    if length < labels:
        return round_step(length / labels)
    return float(next((s for s in TIME_STEPS if length / s <= labels), math.ceil(length / labels / DAY) * DAY))


def _least_end(plot: Plot) -> float:
    if plot.x_unit == "time":
        return 1.0 if plot.final else 20.0
    return 1e-3 if plot.x_unit == "epoch" else 1.0


def row_of(value: float, scale: Scale, tall: int) -> int:
    return round((scale.high - value) / (scale.high - scale.low) * (tall - 1))


def column_of(place: float, across: Scale, width: int) -> int:
    return round((place - across.low) / (across.high - across.low) * (width - 1))


def place_of(column: int, across: Scale, width: int) -> float:
    """Return the place on the axis in the middle of a column, which counts from 0."""
    return across.low + column / max(1, width - 1) * (across.high - across.low)


def tick_text(value: float, step: float) -> str:
    """Return the label of a value on an axis with a label at each `step`, mostly of at most six characters. From
    100,000 on it has at most four digits and k, M or G. A smaller value that needs more is written with one digit, such
    as 1e+04, so that near values may have equal labels."""
    digits = max(0, -math.floor(math.log10(step) + 1e-9))
    if step < 10 and round(step * 10**digits, 6) != round(step * 10**digits):  # 2.5, 0.25
        digits += 1
    texts = [f"{value + 0.0:,.{digits}f}", f"{value + 0.0:.{digits}f}"]
    if abs(value) >= 100_000:
        power, letter = (1e9, "G") if abs(value) >= 1e9 else (1e6, "M") if abs(value) >= 1e6 else (1e3, "k")
        short, shorter = (f"{value / power:.{significant}g}" for significant in (4, 3))
        if abs(float(short) * power - value) < step / 4:
            texts = [f"{short}{letter}", f"{shorter}{letter}"]
        else:
            texts = [texts[1], f"{short}{letter}"]
    return next((text for text in texts if len(text) < GUTTER), f"{value:.0e}")


def power_text(value: float) -> str:
    """Return the label of a value above 0 on a logarithmic scale: up to three digits, mostly six characters."""
    if value >= 1000:
        return tick_text(value, value)
    for digits in (3, 2, 1):
        mantissa, e, exponent = f"{value:.{digits}g}".partition("e")
        text = f"{mantissa}e{int(exponent)}" if e else mantissa
        if len(text) < GUTTER:
            return text
    mantissa, _, exponent = f"{value:.1e}".partition("e")
    return f"{mantissa}e{int(exponent)}"


def y_label(place: float, scale: Scale, bounds: str) -> str:
    if bounds == "share":
        return share(place)
    if not scale.logarithmic:
        return tick_text(place, scale.step)
    value = scale.value(place)
    return tick_text(value, scale.step) if scale.step else power_text(value)


def x_text(place: float, axis: str, step: float) -> str:
    if axis == POWERS:
        return f"1e{place:.0f}"
    return axis_time(place) if axis == "time" and step >= 1 else tick_text(place, step)


def x_labels(plot: Plot, across: Scale, width: int, named: bool) -> Row:
    """Return the labels below their places, as there is room, and the axis' name if `named`."""
    text = [" "] * width
    free = 0
    name = plot.x_unit + (" in s" if plot.x_unit == "time" and across.step < 1 else "")
    corner = f"{name}  {plot.corner}".rstrip() if named else plot.corner
    beyond = width - (len(corner) + 2 if corner else 1)
    for tick in across.ticks:
        label = x_text(tick, plot.x_unit, across.step)
        if not named and plot.x_unit != "time" and tick == 0:
            label = f"{name} 0"
        at = GUTTER + column_of(tick, across, width - GUTTER)
        start = max(0, min(at - len(label) // 2, width - len(label) - 1))
        if start >= free and start + len(label) <= beyond:
            text[start : start + len(label)] = label
            free = start + len(label) + 2
    if corner and len(corner) < width:
        text[width - len(corner) - 1 : width - 1] = corner
    return [("".join(text), "label")]


TIME_STEPS = (1, 2, 5, 10, 20, 30, 60, 120, 300, 600, 1200, 1800, HOUR, 2 * HOUR, 4 * HOUR, 12 * HOUR, DAY)

MOST_LABELS = 9
ROWS_APART = 4  # between labels, if several scales suit
MOST_SPARE_ROWS = 4
_LARGEST = 308.0  # power of ten of a float
_NARROW = math.log10(4)  # a logarithmic scale below this has labels at equal distances of their values


@dataclass(frozen=True)
class Scale:
    """An axis from `low` to `high` with a label at every `step`, the first at `first` or, if that is None, at `low`. On
    a logarithmic scale, places are the decimal logarithms of values, the labels are at the places in `marks`, and
    `step` is the distance between the labelled values if it is the same for all, else 0."""

    low: float
    high: float
    step: float
    logarithmic: bool = False
    first: float | None = None
    marks: tuple[float, ...] = ()

    @property
    def ticks(self) -> list[float]:
        if self.logarithmic:
            return list(self.marks)
        first = self.low if self.first is None else self.first
        count = math.floor((self.high - first) / self.step + 1e-6)
        return [first + number * self.step for number in range(count + 1)]

    def holds(self, low: float, high: float) -> bool:
        """True if places from `low` to `high` are within the scale, and a quarter of it or more, or equal."""
        within = self.low <= low and high <= self.high
        return (within and (high - low) * 4 >= (self.high - self.low)) or (within and high - low == 0)

    def value(self, place: float) -> float:
        """Return the value at a place of the scale. Place and value differ only on a logarithmic scale."""
        return float(10.0 ** min(place, _LARGEST)) if self.logarithmic else place


def share_scale(tall: int) -> Scale:
    """Return a scale of shares whose labels, else only 0 and 100 %, are on rows; some above may stay empty."""
    gaps = max(1, tall - 1)
    for spare in range(gaps // 8 + 1):
        for parts in (5, 4, 2):
            if (gaps - spare) % parts == 0:
                return _lifted(Scale(0.0, 1.0, 1 / parts), gaps, spare)
    return Scale(0.0, 1.0, 1.0)


def round_step(least: float) -> float:
    """Return the next 1, 2, 2.5 or 5 times a power of ten that is not less than `least`, which is above 0."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= least * 0.999)


def round_scale(low: float, high: float, tall: int) -> Scale:
    """Return the narrowest scale of round numbers with its labels exactly on rows; some may stay empty at the top."""
    if high <= low:
        spare = abs(low) * 0.1 or 1.0
        low, high = low - spare * (low != 0), high + spare
    gaps = max(1, tall - 1)
    least = 1 if gaps == 3 and 0.5 < high <= 1 else 2  # no label above 1, as that of a share would be
    spare_rows = range(min(gaps // 4, MOST_SPARE_ROWS) + 1)
    candidates = [
        _lifted(_scale_of(low, high, count), gaps, spare)
        for spare in spare_rows
        for count in range(least, MOST_LABELS)
        if (gaps - spare) % count == 0
    ]
    if not candidates:
        step = round_step((high - low) / 4)
        bottom, top = math.floor(low / step + 1e-9) * step, math.ceil(high / step - 1e-9) * step
        return Scale(bottom, top, top - bottom)

    def preference(scale: Scale) -> tuple[float, float]:
        length = scale.high - scale.low
        return length, abs(gaps * scale.step / length - ROWS_APART)

    return min(candidates, key=preference)


def log_scale(low: float, high: float, tall: int) -> Scale:
    """Return the narrowest logarithmic scale that ends at 1, 2 or 5 times a power of ten; below a factor of 4 at other
    round values. `low` and `high` are decimal logarithms."""
    if high - low < _NARROW and (narrow := _narrow_log_scale(low, high, tall)) is not None:
        return narrow
    first, last = math.floor(low), math.ceil(high)
    places = [decade + math.log10(times) for decade in range(first, last + 1) for times in (1, 2, 5)]
    bottom = max(place for place in places if place <= low + 1e-9)
    top = min(place for place in places if place >= high - 1e-9)
    most = min(MOST_LABELS, tall // 2 + 1)
    labelled = [place for place in places if bottom <= place <= top]
    if len(labelled) > most:
        decades = range(math.ceil(bottom - 1e-9), math.floor(top + 1e-9) + 1)
        every = max(1, -(-len(decades) // max(1, most)))
        labelled = [float(decade) for decade in decades if decade % every == 0]
    return Scale(bottom, top, 0.0, logarithmic=True, marks=tuple(labelled))


def _narrow_log_scale(low: float, high: float, tall: int) -> Scale | None:
    """With labels at round values, as 1, 2 and 5 would be too far apart. `low` and `high` are decimal logarithms."""
    if not -_LARGEST < low <= high < _LARGEST:
        return None
    if high <= low:
        low, high = low - 0.05, high + 0.05
    values = round_scale(10.0**low, 10.0**high, tall)
    if values.low <= 0:
        return None
    marks = tuple(math.log10(tick) for tick in values.ticks)
    return Scale(math.log10(values.low), math.log10(values.high), values.step, logarithmic=True, marks=marks)


def _scale_of(low: float, high: float, intervals: int) -> Scale:
    step = round_step((high - low) / intervals)
    bottom = math.floor(low / step + 1e-9) * step
    while bottom + intervals * step < high * (1 - 1e-9):
        step = round_step(step * 1.01)
        bottom = math.floor(low / step + 1e-9) * step
    return Scale(bottom, bottom + intervals * step, step)


def _lifted(scale: Scale, gaps: int, spare: int) -> Scale:
    return Scale(scale.low, scale.low + (scale.high - scale.low) * gaps / (gaps - spare), scale.step)


def soon(seconds: float) -> float:
    """Return a round time at or after `seconds` by at most an eighth or 5 s. An axis that ends there changes rarely."""
    quantum = next((s for s in reversed(TIME_STEPS) if s <= seconds / 8), 5)
    return float(math.ceil(max(seconds, 1.0) / quantum) * quantum)
