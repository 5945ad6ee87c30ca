"""The history of one figure in bounded memory, over time, steps, epochs or samples. A point stands for `each`
successive readings: their mean (or maximum, for figures whose peaks matter), with the lowest and the highest. Whenever
the series is full, neighbouring points are merged and `each` doubles."""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

CAPACITY = 2048


def _none() -> array[float]:
    return array("d")


@dataclass(frozen=True, eq=False)
class Line:
    """A series at one moment. The line has a break before each of the points whose numbers are in `breaks`. `x` are
    seconds since the run began; `steps` are the training steps done by then. A point stands for `each` readings, whose
    extremes are `low` and `high`; if these are empty, each point is one reading. `last` is the newest reading, None if
    it has no value. `lost` is the time and the step of the first reading without a value after the last point."""

    x: array[float] = field(default_factory=_none)
    y: array[float] = field(default_factory=_none)
    breaks: frozenset[int] = frozenset()
    last: float | None = None
    each: int = 1
    steps: array[float] = field(default_factory=_none)
    low: array[float] = field(default_factory=_none)
    high: array[float] = field(default_factory=_none)
    lost: tuple[float, float] | None = None
    made: dict[Any, Any] = field(default_factory=dict, repr=False)  # what was made of this line

    def __len__(self) -> int:
        return len(self.x)

    @property
    def end(self) -> tuple[float, float]:
        """The time and the step of the furthest point; a resumed run may have repeated steps."""
        lasts = [index - 1 for index in (*self.breaks, len(self))]
        return max(self.x[at] for at in lasts), max((self.steps[at] for at in lasts), default=0.0)

    def once(self, key: Any, make: Callable[[], Any]) -> Any:
        """Return the result of `make`, which is called only for the first time with this `key`."""
        if key not in self.made:
            self.made[key] = make()
        return self.made[key]


NOTHING = Line()


class Series:
    """Stores the readings of a figure as at most `capacity` points. With `peaks`, a point is the maximum of its
    readings, else their mean."""

    def __init__(self, *, peaks: bool = False, capacity: int = CAPACITY) -> None:
        self.last: float | None = None
        self._peaks, self._capacity = peaks, capacity
        self._x, self._steps, self._y, self._low, self._high = _none(), _none(), _none(), _none(), _none()
        self._breaks: set[int] = set()
        self._each, self._open = 1, 0
        self._line: Line | None = NOTHING
        self._broken = False
        self._lost: tuple[float, float] | None = None
        self._newest = (0.0, 0.0)  # time and step of the newest reading

    def add(self, x: float, y: float | None, step: float = 0.0) -> None:
        """Add a reading at `x` seconds since the run began; None, or a step back, makes a break."""
        self._line = None
        self.last = y
        if y is None:
            self.gap()
            if self._lost is None and len(self._x):
                self._lost = (x, step)
            return
        if x < self._newest[0] or step < self._newest[1]:
            self._broken = True
        self._lost, self._newest = None, (x, step)
        if self._open == 0 or self._broken:
            if self._broken and len(self._x):
                self._breaks.add(len(self._x))
            self._broken, self._open = False, 0
            self._x.append(x)
            self._steps.append(step)
            for values in (self._y, self._low, self._high):
                values.append(y)
        else:  # the point stands for this reading, too
            means, low, high = self._y, self._low, self._high
            if y < low[-1]:
                low[-1] = y
            elif y > high[-1]:
                high[-1] = y
            means[-1] = high[-1] if self._peaks else means[-1] + (y - means[-1]) / (self._open + 1)
        self._open = (self._open + 1) % self._each
        if self._open == 0 and len(self._x) >= self._capacity:
            self._thin()

    def gap(self) -> None:
        self._broken = True

    def line(self) -> Line:
        if self._line is None:
            merged = self._each > 1
            low, high = (self._low[:], self._high[:]) if merged else (_none(), _none())
            breaks = frozenset(self._breaks)
            self._line = Line(
                self._x[:], self._y[:], breaks, self.last, self._each, self._steps[:], low, high, self._lost
            )
        return self._line

    def _thin(self) -> None:
        """Merge neighbouring points in pairs. A single point at the end stays."""
        even = len(self._x) // 2 * 2
        rest = slice(even, None)

        def merged(values: array[float], join: Callable[[float, float], float]) -> array[float]:
            return array("d", map(join, values[0:even:2], values[1:even:2])) + values[rest]

        self._x = self._x[0:even:2] + self._x[rest]
        self._steps = self._steps[0:even:2] + self._steps[rest]
        self._y = merged(self._y, max if self._peaks else lambda a, b: (a + b) / 2)
        self._low, self._high = merged(self._low, min), merged(self._high, max)
        self._breaks = {(index + 1) // 2 for index in self._breaks} - {0}
        self._each *= 2


AXES = ("time", "step", "epoch", "samples")


@dataclass(frozen=True)
class Pace:
    """Converts times and steps of a run to places on an axis. `begin` is the start of training in seconds since the run
    began. `steps_per_epoch` and `samples_per_step` are None if they are unknown."""

    begin: float = 0.0
    steps_per_epoch: float | None = None
    samples_per_step: float | None = None

    def axes(self) -> tuple[str, ...]:
        """Return the axes of the run: time and step, and epoch and samples if they are known."""
        per_step = {"epoch": self.steps_per_epoch, "samples": self.samples_per_step}
        return tuple(axis for axis in AXES if per_step.get(axis, 1.0))

    def place(self, axis: str, x: float, step: float) -> float:
        """Return the place on an axis of a moment: its seconds since the run began, and its step."""
        if axis == "time":
            return x - self.begin
        if axis == "epoch":
            return step / (self.steps_per_epoch or 1.0)
        return step * (self.samples_per_step or 1.0) if axis == "samples" else step


def along(line: Line, axis: str, pace: Pace) -> Line:
    """Return the line over this axis. On that of time, readings before the start of training are left out."""
    made: Line = line.once((axis, pace), lambda: _along(line, axis, pace))
    return made


def _along(line: Line, axis: str, pace: Pace) -> Line:
    lost = None if line.lost is None else (pace.place(axis, *line.lost), line.lost[1])
    if axis == "time":
        if not pace.begin or not len(line):
            return replace(line, lost=lost, made={})
        first = bisect_left(line.x, pace.begin)
        breaks = frozenset(index - first for index in line.breaks if index > first)
        kept = {name: getattr(line, name)[first:] for name in ("y", "steps", "low", "high")}
        x = array("d", [x - pace.begin for x in line.x[first:]])
        return replace(line, x=x, breaks=breaks, lost=lost, made={}, **kept)
    if not len(line.steps):
        return replace(line, lost=lost, made={})
    factor = pace.place(axis, 0.0, 1.0)
    x = line.steps if factor == 1.0 else array("d", [step * factor for step in line.steps])
    return replace(line, x=x, lost=lost, made={})


def drawable(line: Line, logarithmic: bool = False) -> Line:
    """Return the line with breaks at values that cannot be shown, such as NaN; `logarithmic`: logarithms."""
    if not logarithmic and line.once("finite", lambda: math.isfinite(sum(line.y))):
        return line
    made: Line = line.once(("drawable", logarithmic), lambda: _drawable(line, logarithmic))
    return made


def extremes(line: Line) -> tuple[float, ...]:
    """Return the lowest and the highest value of a line; empty if it has no finite value."""
    line = drawable(line)
    return (min(line.low or line.y), max(line.high or line.y)) if len(line) else ()


def _drawable(line: Line, logarithmic: bool) -> Line:
    x, y, low, high = array("d"), array("d"), array("d"), array("d")
    breaks: set[int] = set()
    broken = False
    for index, value in enumerate(line.y):
        least, most = (line.low[index], line.high[index]) if len(line.low) else (value, value)
        broken = broken or index in line.breaks
        if not math.isfinite(value) or (logarithmic and least <= 0):
            broken = True
            continue
        if broken and len(x):
            breaks.add(len(x))
        broken = False
        x.append(line.x[index])
        for values, extreme in ((y, value), (low, least), (high, most)):
            values.append(math.log10(extreme) if logarithmic else extreme)
    return replace(line, x=x, y=y, low=low, high=high, breaks=frozenset(breaks), made={})
