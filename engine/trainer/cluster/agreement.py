"""The agreement of all workers on what they do at the same step: stop, end a measurement, check the weights.

Each worker may be asked to stop at any moment. A few times a second they exchange what each was asked for, at
executions that all know beforehand: the number of executions between two exchanges follows from figures that all have.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from ...runs.cluster import Cluster
from ..common.stopping import ENGINE_GONE, StopRequested, StopSwitch
from .exchange import Exchange

EVERY_SECONDS = 0.25
MOST_EXECUTIONS = 10_000
_REASONS = ("", "stopped", "timeout", ENGINE_GONE)  # the later ones prevail


@dataclass
class Wishes:
    """Requests about the next execution: of this worker to all workers, or those that all workers have agreed on."""

    enough: bool = False  # the time of run.measure_seconds was measured
    check_weights: bool = False  # for NaN
    end: bool = False  # a callback has set model.stop_training


class Agreement:
    """Exchanges requests between the workers, so that all stop at the same execution. `asked_by` is the index of the
    worker that was asked to stop; None if it is this worker.
    """

    def __init__(self, cluster: Cluster, exchange: Exchange, stop: StopSwitch) -> None:
        self._cluster, self._exchange, self._stop = cluster, exchange, stop
        self._left = 1  # executions until the next exchange
        self._between, self._since = 1, time.monotonic()
        self.wishes = Wishes()
        self.asked_by: int | None = None

    def before_execution(self) -> Wishes:
        """To be called before each execution: returns the requests that all workers have agreed on, if an exchange is
        due. Raises StopRequested, on all workers before the same execution.
        """
        self._left -= 1
        return self.now() if self._left <= 0 else Wishes()

    def now(self) -> Wishes:
        """Exchange the requests of all workers, and return those that any worker has. All workers call this at the same
        place. Raises StopRequested.
        """
        seconds = (time.monotonic() - self._since) / self._between
        wishes, self.wishes = self.wishes, Wishes()
        reason = _REASONS.index(self._stop.reason) if self._stop.reason in _REASONS else 1
        rows = self._exchange.rows([reason, wishes.enough, wishes.check_weights, wishes.end, seconds])
        slowest = float(rows[:, 4].max())
        self._left = self._between = max(1, min(MOST_EXECUTIONS, int(EVERY_SECONDS / max(slowest, 1e-6))))
        self._since = time.monotonic()
        self._stop_if_asked([int(value) for value in rows[:, 0]])
        return Wishes(*(bool(rows[:, column].any()) for column in (1, 2, 3)))

    def soon(self) -> None:
        """Plan the next exchange before the next execution, because the next executions may take longer than the last
        ones.
        """
        self._left, self._between, self._since = 1, 1, time.monotonic()

    def _stop_if_asked(self, reasons: list[int]) -> None:
        asked = [index for index, reason in enumerate(reasons) if reason]
        if not asked:
            return
        if not reasons[self._cluster.index]:
            self.asked_by = asked[0]
        most = max(reasons)
        others = _REASONS[most] == ENGINE_GONE and reasons[self._cluster.index] != most
        raise StopRequested(_REASONS[most], self._cluster.named(reasons.index(most)) if others else "")
