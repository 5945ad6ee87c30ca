"""Watches how fast a trial trains while it runs, so that one that is clearly slower can be ended before its time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ..runs import Run
from ..runs.events import EVENTS_FILE, Progress
from ..runs.reading import Tail

SLOWER = 0.8  # of the best speed: below this a trial that goes on would not change what is decided
LEAST_REPORTS = 3  # each a quarter of a second after the one before, from the end of the warm-up on

# Given the speeds that a trial has told since its warm-up, the latest last: whether it is ended.
Judge = Callable[[Sequence[float]], bool]


def below(least: float) -> Judge:
    """Ends a trial whose latest speeds are all less than `least` samples per second."""
    return lambda speeds: len(speeds) >= LEAST_REPORTS and max(speeds[-LEAST_REPORTS:]) < least


class SpeedWatch:
    """Follows the progress of one run; asks the judge after each report of further steps."""

    def __init__(self, run: Run, judge: Judge) -> None:
        self._events, self._judge = Tail(run.file(EVENTS_FILE)), judge
        self._step = 0
        self._speeds: list[float] = []

    def is_slower(self) -> bool:
        """Whether the run is to be ended, by what it has told since the last call."""
        return any(self._judge(self._speeds) for event in self._events.read() if self._has_speed(event))

    def _has_speed(self, event: object) -> bool:
        """Note the speed of a report that has one, as none has before the warm-up is over."""
        if not isinstance(event, Progress) or not event.samples_per_second or event.step <= self._step:
            return False
        self._step = event.step
        self._speeds.append(event.samples_per_second)
        return True
