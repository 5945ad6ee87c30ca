"""The clock of a run: it reads the date once, at the launch, and then counts with a clock that nobody can set.

The wall clock may be set forwards or back during a run. Engine and trainer are given the moment of the launch and count
from it; every date in a run's files and every duration comes from this clock.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

VARIABLE = "GPUTUI_LAUNCHED"  # environment variable of engine and trainer: the moment of the launch


def steady() -> float:
    """Return the seconds since the start of the machine; the value is the same in all processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class RunClock:
    """The clock of a run. `date` is the Unix time of the launch, `mark` the same moment on the clock of `steady`."""

    date: float
    mark: float

    @classmethod
    def launched(cls, not_before: float = 0.0) -> RunClock:
        """Return the clock of a run that is launched now. Its date is at least `not_before`.

        For a resumed run, `not_before` is the last date in its files (Unix time).
        """
        return cls(max(time.time(), not_before), steady())

    @classmethod
    def read(cls, text: str | None) -> RunClock:
        """Return the clock in a text that `as_text` has made; without a valid text, return a clock that starts now."""
        try:
            date, mark = map(float, (text or "").split())
        except ValueError:
            return cls.launched()
        return cls(date, mark)

    def as_text(self) -> str:
        return f"{self.date!r} {self.mark!r}"

    def elapsed(self) -> float:
        """Return the seconds since the launch."""
        return steady() - self.mark

    def now(self) -> float:
        """Return the Unix time by this clock. It does not change if the system's clock is set after the launch."""
        return self.date + self.elapsed()
