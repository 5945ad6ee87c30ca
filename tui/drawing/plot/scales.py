"""Scales of charts: round numbers at whole rows, and ends of axes that change rarely."""

from __future__ import annotations

import math
from dataclasses import dataclass

from ....engine.units import DAY, HOUR

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
        """True if the scale still suits values from `low` to `high` (places): within it, and at least a quarter of it
        or equal."""
        within = self.low <= low and high <= self.high
        return (within and (high - low) * 4 >= (self.high - self.low)) or (within and high - low == 0)

    def value(self, place: float) -> float:
        """Return the value at a place of the scale. Place and value differ only on a logarithmic scale."""
        return float(10.0 ** min(place, _LARGEST)) if self.logarithmic else place


def share_scale(tall: int) -> Scale:
    """Return a scale from 0 to 100 % whose labels, else only 0 and 100 %, are exactly on rows; some may stay empty
    above."""
    gaps = max(1, tall - 1)
    for spare in range(gaps // 8 + 1):
        for parts in (5, 4, 2):
            if (gaps - spare) % parts == 0:
                return _lifted(Scale(0.0, 1.0, 1 / parts), gaps, spare)
    return Scale(0.0, 1.0, 1.0)


def round_step(least: float) -> float:
    """Return the next round number, 1, 2, 2.5 or 5 times a power of ten, that is not less than `least`, which is above
    0."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= least * 0.999)


def round_scale(low: float, high: float, tall: int) -> Scale:
    """Return the narrowest scale of round numbers with its labels exactly on rows; some may stay empty at the top."""
    if high <= low:
        spare = abs(low) * 0.1 or 1.0
        low, high = low - spare * (low != 0), high + spare
    gaps = max(1, tall - 1)
    spare_rows = range(min(gaps // 4, MOST_SPARE_ROWS) + 1)
    candidates = [
        _lifted(_scale_of(low, high, count), gaps, spare)
        for spare in spare_rows
        for count in range(2, MOST_LABELS)
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
