"""The history of one figure in bounded memory: old points are merged evenly, so that a chart of any run fits.

A point is the mean of `each` successive readings (or the maximum, for figures whose peaks matter). Whenever the series
is full, neighbouring points are merged and `each` doubles.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field

CAPACITY = 512


@dataclass(frozen=True, eq=False)
class Line:
    """A series at one moment. The line is interrupted before each of the points in `breaks`."""

    x: array[float] = field(default_factory=lambda: array("d"))
    y: array[float] = field(default_factory=lambda: array("d"))
    breaks: frozenset[int] = frozenset()
    last: float | None = None
    each: int = 1

    def __len__(self) -> int:
        return len(self.x)


NOTHING = Line()


class Series:
    """Takes readings one by one; keeps at most `capacity` points."""

    def __init__(self, *, peaks: bool = False, capacity: int = CAPACITY) -> None:
        self.last: float | None = None
        self._peaks, self._capacity = peaks, capacity
        self._x, self._y = array("d"), array("d")
        self._breaks: set[int] = set()
        self._each, self._open = 1, 0
        self._line: Line | None = NOTHING
        self._broken = False

    def add(self, x: float, y: float | None) -> None:
        """Add a reading; None means that there was none, and interrupts the line."""
        self._line = None
        self.last = y
        if y is None:
            self.gap()
            return
        if self._open == 0 or self._broken:
            self._begin(x, y)
        else:
            self._join(y)
        self._open = (self._open + 1) % self._each
        if self._open == 0 and len(self._x) >= self._capacity:
            self._thin()

    def gap(self) -> None:
        """The next reading does not continue the line."""
        self._broken = True

    def line(self) -> Line:
        """The series now; the same object until there is another reading."""
        if self._line is None:
            self._line = Line(self._x[:], self._y[:], frozenset(self._breaks), self.last, self._each)
        return self._line

    def _begin(self, x: float, y: float) -> None:
        if self._broken and len(self._x):
            self._breaks.add(len(self._x))
        self._broken, self._open = False, 0
        self._x.append(x)
        self._y.append(y)

    def _join(self, y: float) -> None:
        if self._peaks:
            self._y[-1] = max(self._y[-1], y)
        else:
            self._y[-1] += (y - self._y[-1]) / (self._open + 1)

    def _thin(self) -> None:
        """Merge neighbouring points. A single point left at the end stays unmerged."""
        x, y = self._x, self._y
        even = len(x) // 2 * 2
        rest = slice(even, None)
        self._x = x[0:even:2] + x[rest]
        pairs = zip(y[0:even:2], y[1:even:2], strict=True)
        joined = (max(pair) for pair in pairs) if self._peaks else ((a + b) / 2 for a, b in pairs)
        self._y = array("d", joined) + y[rest]
        self._breaks = {(index + 1) // 2 for index in self._breaks} - {0}
        self._each *= 2
