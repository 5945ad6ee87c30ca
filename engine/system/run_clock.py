"""The clock of a run: it reads the date once, at the launch, and then counts with a clock that nobody can set. All
dates and durations in a run's files come from it.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

VARIABLE = "GPUTUI_LAUNCHED"  # environment variable of engine and trainer: the moment of the launch


def steady() -> float:
    """The seconds since the start of the machine, the same in all processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class RunClock:
    """`date` is the Unix time of the launch, `mark` the same moment on the clock of `steady`."""

    date: float
    mark: float

    @classmethod
    def launched(cls, not_before: float = 0.0) -> RunClock:
        """`not_before` is the last date in the files of a run that is resumed."""
        return cls(max(time.time(), not_before), steady())

    @classmethod
    def read(cls, text: str | None) -> RunClock:
        """If the text is not valid, return a clock that starts now."""
        try:
            date, mark = map(float, (text or "").split())
        except ValueError:
            return cls.launched()
        return cls(date, mark)

    def as_text(self) -> str:
        return f"{self.date!r} {self.mark!r}"

    def elapsed(self) -> float:
        """Seconds since the launch."""
        return steady() - self.mark

    def now(self) -> float:
        """Unix time, whatever the system's clock is set to after the launch."""
        return self.date + self.elapsed()
