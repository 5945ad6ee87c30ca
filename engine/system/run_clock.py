"""The clock of a run: dated once, when the person starts it, and carried on by a clock that nobody can set.

The wall clock may be set while a run goes on, by an hour or by a second, forwards or back. Engine and trainer are given
the moment of the launch, and count from it: every date in a run's files and every duration comes from here.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

VARIABLE = "GPUTUI_LAUNCHED"  # in the environment of engine and trainer: the moment of the launch


def steady() -> float:
    """Seconds since the start of the machine, the same in all its processes."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@dataclass(frozen=True)
class RunClock:
    """`date` is the Unix time of the launch, `mark` the same moment by the steady clock."""

    date: float
    mark: float

    @classmethod
    def launched(cls, not_before: float = 0.0) -> RunClock:
        """A run that is launched now; one that goes on is not dated before what it has written already."""
        return cls(max(time.time(), not_before), steady())

    @classmethod
    def read(cls, text: str | None) -> RunClock:
        """What `told` wrote; now, where nobody told a launch."""
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
        """The Unix time, as it would be had nobody set the clock since the launch."""
        return self.date + self.elapsed()
