"""Finds the batch size: doubled while it gains 5 %, halved if larger ones are slower, bisected if memory ends; and the
largest that fits (leaves a tenth of the memory free), predicted and then trained for a few steps. Between a batch that
fits and one that does not, the memory model gives the next, or the middle if its line is wrong.
"""

from __future__ import annotations

from ...trials.search_record import Candidate
from ..candidates.screening import Screening
from ..candidates.search_space import BATCH, value_of
from ..memory_model import MemoryModel

LEAST_GROWTH = 0.05  # gain of a doubling
LEAST_STEP = 1.125  # factor; a batch that is larger by less is not worth a trial


class BatchSize:
    """Searches the batch size of the best settings of `screening`. `memory` predicts which batches fit.

    `most` is the largest batch of one replica that may be tried.
    """

    def __init__(self, screening: Screening, memory: MemoryModel, most: int) -> None:
        self._screening, self._memory, self._most = screening, memory, most

    def find(self) -> None:
        """Find the fastest batch size. It is then in the best settings of the screening."""
        before = self.size
        self.grow()
        if self.size == before:
            self._shrink()

    @property
    def size(self) -> int:
        return int(value_of(self._screening.best.preset, BATCH))

    def note(self, batch: int, candidate: Candidate) -> None:
        """Add the memory of a candidate with the batch size `batch` to the model, if it was measured or ran out."""
        ran_out = any(trial.outcome == "oom" for trial in candidate.trials)
        peak = candidate.peak_bytes = self._memory.peak(candidate.trials)
        if peak is not None or ran_out:
            self._memory.add(batch, None if ran_out else peak, candidate.trials)
            self._screening.search.memory = self._memory.state()

    def grow(self) -> None:
        """Double the batch size as long as each doubling gains at least LEAST_GROWTH. If one does not fit, try smaller
        steps.
        """
        gaining = True
        while gaining and (larger := self._larger()):
            gaining, fits = self._try(larger)
            if not fits:
                self._bisect(larger)
                return

    def _larger(self) -> int | None:
        double = min(2 * self.size, self._most)
        largest = self._memory.worth_trying()
        if largest is not None and largest < double:
            why = "more memory is predicted than may be taken"
            self._screening.leave_out("batch_size", {BATCH: double}, why, self._memory.predict(double))
            double = rounded(largest)
        return double if double >= LEAST_STEP * self.size else None

    def _bisect(self, too_large: int) -> None:
        while (middle := self._between(too_large)) >= LEAST_STEP * self.size:
            _, fits = self._try(middle)
            if self.size != middle and fits:
                return  # the batch fits and is not faster
            too_large = too_large if fits else middle

    def _between(self, too_large: int) -> int:
        largest = self._memory.largest()
        if largest is not None and LEAST_STEP * self.size <= rounded(largest) < too_large / LEAST_STEP:
            return rounded(largest)
        return rounded((self.size + too_large) // 2)

    def _shrink(self) -> None:
        # smaller batches can be faster on a CPU if they fit into its caches
        while self.size > 1:
            gaining, _ = self._try(self.size // 2)
            if not gaining:
                return

    def _try(self, batch: int) -> tuple[bool, bool]:
        # whether it gains at least LEAST_GROWTH, and whether it fits into memory
        candidate = self._screening.attempt("batch_size", {BATCH: batch}, predicted_bytes=self._memory.predict(batch))
        self.note(batch, candidate)
        fits = not any(trial.outcome == "oom" for trial in candidate.trials)
        return candidate.decision == "kept" and (candidate.gain or 0.0) >= LEAST_GROWTH, fits


def rounded(batch: int) -> int:
    """Return `batch` rounded down to a multiple of 8, which tensor cores need. Below 16 it is unchanged."""
    return batch // 8 * 8 if batch >= 16 else batch


# ---- the largest batch ---------------------------------------------------------------------------


STEP = 1.0625  # factor; a batch that is larger by less is not searched
MOST_TRIALS = 8
STEPS_OF_A_PROBE = 8  # steps of a probe if a step takes long
MOST_SECONDS = 60.0  # for the steps of one probe


class LargestBatch:
    """Searches the largest batch that fits into memory, whatever its speed. `most` is the largest batch of one replica
    for which there are samples, and `samples_per_second` the speed of one replica.
    """

    def __init__(
        self, screening: Screening, memory: MemoryModel, sizes: BatchSize, most: int, samples_per_second: float
    ) -> None:
        self._screening, self._memory, self._sizes, self._most = screening, memory, sizes, most
        self._speed = samples_per_second

    def find(self) -> None:
        """Find the largest batch that fits and the smallest that does not in at most MOST_TRIALS trials."""
        for _ in range(MOST_TRIALS):
            batch = self._next()
            if batch is None or not self._affordable(batch) or not self._try(batch):
                return

    def _next(self) -> int | None:
        """Return the batch size to try next. None if there is none between a batch that fits and one that does not."""
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
        # whether its memory is now known
        predicted = self._memory.predict(batch)
        candidate = self._screening.probe("batch_size", {BATCH: batch}, "the largest that may fit", predicted)
        self._sizes.note(batch, candidate)
        return _has_memory_result(candidate)


def _has_memory_result(candidate: Candidate) -> bool:
    return candidate.peak_bytes is not None or any(trial.outcome == "oom" for trial in candidate.trials)
