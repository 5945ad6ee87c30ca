"""Checkpoints of a training on several machines: the chief writes and reads them, for all workers.

Weights and the optimizer's state are the same on every worker. The rest differs (running figures, statistics of batch
normalisation, seeds, random states): each worker sends it to the chief before the chief writes, and gets it back after
the chief has read.
"""

from __future__ import annotations

import json
from pathlib import Path

from ..cluster.exchange import Exchange
from .checkpoints import Checkpoints, NotWritten
from .state import State


class ClusterCheckpoints(Checkpoints):
    """The checkpoints of several workers. All workers call the same methods in the same order; only the chief has a
    folder.
    """

    def __init__(self, folder: Path, keep: int, state: State, exchange: Exchange) -> None:
        super().__init__(folder, keep, state)
        self._exchange, self._is_chief = exchange, exchange.index == 0
        state.of_workers = []

    def save(self, step: int) -> None:
        if step == self.last_step:
            return
        self.state.of_workers = self._exchange.of_all(self.state.of_its_own())
        refused = self._refused(step) if self._is_chief else None
        # If the chief's disk has refused it, all try again when the same step is saved again.
        if self._exchange.rows([float(refused is not None)])[0, 0] == 0:
            self.last_step = step
        if refused is not None:
            raise refused

    def _refused(self, step: int) -> NotWritten | None:
        """Write the checkpoint. Returns the error if the disk refuses, otherwise None."""
        try:
            super().save(step)
        except NotWritten as reason:
            return reason
        return None

    def latest_step(self, end: int | None = None) -> int | None:
        latest = super().latest_step(end) if self._is_chief else None
        step = json.loads(self._exchange.of_chief(json.dumps(latest).encode() if self._is_chief else None))
        return None if step is None else int(step)

    def fits(self, step: int) -> bool:
        fits = self._is_chief and super().fits(step)
        return bool(self._exchange.rows([float(fits)])[0, 0])

    def restore(self, step: int) -> None:
        if self._is_chief:
            super().restore(step)
        for part in self.state.the_same():
            data = part.numpy().tobytes() if self._is_chief else None
            self.state.take(part, self._exchange.of_chief(data, self.state.size_of(part)))
        kept = self.state.of_workers or [] if self._is_chief else []
        count = int(self._exchange.rows([float(len(kept))])[0, 0])
        blobs = [self._exchange.of_chief(kept[index] if self._is_chief else None) for index in range(count)]
        if not self._is_chief and self._exchange.index < count:
            self.state.take_own(blobs[self._exchange.index])
        self.last_step = step
