"""What all workers do together at the same step: stop, end a measurement, look at the weights.

Each may be asked to stop at any moment. They exchange what each was asked a few times a second, at executions that all
of them know beforehand: how many executions lie between two exchanges follows from figures that all have exchanged.
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
    """What this worker asks of all, or what all have agreed on."""

    enough: bool = False  # the time of run.measure_seconds was measured
    look: bool = False  # at the weights, for NaN
    end: bool = False  # a callback has set model.stop_training


class Agreement:
    """The exchange between executions; `told` is called with the worker that was asked to stop, if it is another."""

    def __init__(self, cluster: Cluster, exchange: Exchange, stop: StopSwitch) -> None:
        self._cluster, self._exchange, self._stop = cluster, exchange, stop
        self._left = 1  # executions until the next exchange
        self._between, self._since = 1, time.monotonic()
        self.wishes = Wishes()
        self.asked_by: int | None = None

    def before_execution(self) -> Wishes:
        """Called before each execution; raises StopRequested, on all workers at the same one."""
        self._left -= 1
        return self.now() if self._left <= 0 else Wishes()

    def now(self) -> Wishes:
        """Exchange what each was asked; all workers call it at the same place."""
        seconds = (time.monotonic() - self._since) / self._between
        wishes, self.wishes = self.wishes, Wishes()
        reason = _REASONS.index(self._stop.reason) if self._stop.reason in _REASONS else 1
        rows = self._exchange.rows([reason, wishes.enough, wishes.look, wishes.end, seconds])
        slowest = float(rows[:, 4].max())
        self._left = self._between = max(1, min(MOST_EXECUTIONS, int(EVERY_SECONDS / max(slowest, 1e-6))))
        self._since = time.monotonic()
        self._stop_if_asked([int(value) for value in rows[:, 0]])
        return Wishes(*(bool(rows[:, column].any()) for column in (1, 2, 3)))

    def soon(self) -> None:
        """Exchange before the next execution: what follows may take longer than what came before."""
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
