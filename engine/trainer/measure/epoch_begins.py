"""Measures what it costs that the batches of an epoch are made only when it begins, and says so if it is much."""

from __future__ import annotations

from ... import units
from .run_report import RunReport

MUCH = 0.05  # of an epoch's time
LEAST_SECONDS = 0.25  # less is noise of a busy machine, and no reason to change anything


class EpochBegins:
    """Compares the first execution of an epoch with the mean of its others.

    `held_back` is the reason why batches are not made ahead of their epoch. If it is empty, nothing is measured. Of the
    first epoch nothing is used, because the step is traced in it.
    """

    def __init__(self, held_back: str, report: RunReport) -> None:
        self._held_back, self._report = held_back, report
        self._fits = 0
        self._seconds: list[float] = []  # of the executions of an epoch

    def epoch_begins(self) -> None:
        self._fits += 1
        self._seconds = []

    def executed(self, seconds: float, last: bool) -> None:
        """Note the time of an execution. After the `last` one of the second epoch in this process, warn of a wait."""
        if not self._held_back or self._fits != 2:
            return
        self._seconds.append(seconds)
        first, *others = self._seconds
        if not last or not others:
            return
        waited, whole = first - sum(others) / len(others), sum(self._seconds)
        if waited > max(LEAST_SECONDS, MUCH * whole):
            self._report.warn(
                "epoch_waits",
                f"an epoch waits {units.seconds(waited)} for its first batch, {units.share(waited / whole)} of the "
                f"time of its steps: its batches are made only when it begins, because {self._held_back}",
                "if the data follow nothing of the training, set input.across_epochs=true",
            )
