"""Finds the largest batch that fits into memory, whatever its speed: predicted from the batches measured so far, then
trained for a few steps, so that it is known and not only believed.

A batch fits that trains and leaves a tenth of the memory free. Between one that fits and one that does not the line of
the memory model says what to try next, and where it is wrong the middle.
"""

from __future__ import annotations

from ...trials.search_record import Candidate
from ..candidates.screening import Screening
from ..candidates.space import BATCH
from ..memory_model import MemoryModel
from .batch_size import BatchSize, rounded

STEP = 1.0625  # a larger batch by less is not looked for
MOST_TRIALS = 8
STEPS_OF_A_PROBE = 8  # of long ones
MOST_SECONDS = 60.0  # for the steps of one of them


class LargestBatch:
    """`most` is the largest batch of one replica for which there are samples; `samples_per_second` of one replica."""

    def __init__(
        self, screening: Screening, memory: MemoryModel, sizes: BatchSize, most: int, samples_per_second: float
    ) -> None:
        self._screening, self._memory, self._sizes, self._most = screening, memory, sizes, most
        self._speed = samples_per_second

    def find(self) -> None:
        """Leave in the memory model the largest batch that fits and the smallest that does not."""
        for _ in range(MOST_TRIALS):
            batch = self._next()
            if batch is None or not self._affordable(batch) or not self._try(batch):
                return

    def _next(self) -> int | None:
        """The batch to try; None where none is left between what fits and what does not."""
        fits, beyond = self._memory.fits, self._memory.beyond
        if fits is None:
            return None if beyond is None or beyond < 2 or self._memory.largest() == 0 else beyond // 2
        predicted = self._memory.largest()
        batch = 2 * fits if predicted is None else predicted if predicted >= self._most else rounded(predicted)
        if beyond is not None and not fits < batch < beyond / STEP:
            batch = rounded((fits + beyond) // 2)
        batch, further = min(batch, self._most), batch if beyond is None else beyond
        return batch if batch > fits and further >= STEP * fits else None

    def _affordable(self, batch: int) -> bool:
        seconds = STEPS_OF_A_PROBE * batch / self._speed if self._speed else 0.0
        left = self._screening.trials.seconds_left - self._screening.trials.reserved_seconds
        most = min(MOST_SECONDS, left - self._screening.trials.trial_seconds)
        if seconds <= most:
            return True
        why = f"its steps would take {seconds:.0f} s, and its memory is predicted"
        self._screening.leave_out("batch_size", {BATCH: batch}, why, self._memory.predict(batch))
        return False

    def _try(self, batch: int) -> bool:
        """Whether something was learnt of its memory."""
        predicted = self._memory.predict(batch)
        candidate = self._screening.probe("batch_size", {BATCH: batch}, "the largest that may fit", predicted)
        self._sizes.note(batch, candidate)
        return _tells(candidate)


def _tells(candidate: Candidate) -> bool:
    return candidate.peak_bytes is not None or any(trial.outcome == "oom" for trial in candidate.trials)
