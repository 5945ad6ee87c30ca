"""The memory of a batch, predicted before it is tried, as a line over the batch size of one replica
(../memory_line.py). It does not hold for other settings (precision, XLA, caches: `begin_anew`), nor for cuDNN's first
step, which tries algorithms. Only 90 % of the limit are planned: the allocator keeps blocks, and gives a free one whole
if less than 128 MB and less than the same again would be left (SplitChunk in TensorFlow's bfc_allocator.cc).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..diagnosis.collector import limit_of
from ..options import Options
from ..plan import Line, through
from ..runs.events import Started
from ..telemetry import resource_limits
from ..trials.record import Memory, MemoryPoint, Trial

ROOM = 0.9  # share of the limit that may be used; the line does not include fragmentation, for example
# The figure of a trial with its peak, for each kind of memory.
FIGURES = {
    "allocator": "peak_memory_bytes",
    "process": "peak_process_bytes",
    "address_space": "peak_address_space_bytes",
}
FIRST_STEP = "first_step_memory_bytes"
# Measured on two CPU cores: the peaks of equal trainings differ by 15 MB, and each thread may reserve 64 MB (glibc).
NOISE_BYTES = {"allocator": 0, "process": 32 * 1024**2, "address_space": 128 * 1024**2}


def limit_and_kind(started: Started, options: Options, trial: Trial, asked: int | None) -> tuple[int | None, str]:
    """Return the bytes that a training may take (None: unknown), `asked` by the user or of the machine, and the kind of
    memory, a key of FIGURES. Of memory and address space of a host, the one that `trial` has come closer to counts.
    """
    if started.gpus:
        device_limits = [limit_of(device, options.values()) for device in started.gpu_devices]
        return _least([*(round(limit) for limit in device_limits if limit), asked]), "allocator"
    space, host = resource_limits.ceilings().address_space_bytes, _least([resource_limits.memory().available, asked])
    reserved, taken = trial.peak_address_space_bytes, trial.peak_process_bytes
    if space and reserved and host and reserved / space > (taken or 0) / host:
        return space, "address_space"
    return host, "process"


def model_of(started: Started, options: Options, trial: Trial, asked: int | None) -> MemoryModel:
    """Return a memory model without batches, for the memory that limits trainings like `trial`, or `asked`."""
    limit, kind = limit_and_kind(started, options, trial, asked)
    return MemoryModel(limit, kind, limit_is_asked=limit is not None and limit == asked)


def _most(trials: Sequence[Trial], figure: str) -> int | None:
    measured = (trial for trial in trials if trial.outcome in ("ok", "slower"))
    return max((getattr(trial, figure) or 0 for trial in measured), default=0) or None


def _least(values: Sequence[int | None]) -> int | None:
    return min((limit for limit in values if limit), default=None)


class MemoryModel:
    """The memory that batches have taken, and predictions for other batch sizes (of one replica)."""

    def __init__(self, limit_bytes: int | None, of: str, limit_is_asked: bool = False) -> None:
        self.limit_bytes, self.limit_is_asked = limit_bytes, limit_is_asked  # it may be the user's own
        self.of = of  # a key of FIGURES; empty: not known yet
        self.most_batch: int | None = None  # by samples and limits
        self._points: list[MemoryPoint] = []
        self._settings: tuple[Any, ...] = ()

    @property
    def may_take(self) -> float | None:
        return None if self.limit_bytes is None else ROOM * self.limit_bytes

    def peak(self, trials: Sequence[Trial]) -> int | None:
        """Return the largest peak of the trials in bytes, of the limited kind of memory. None if none was measured."""
        return _most(trials, FIGURES[self.of]) if self.of else None

    def add(self, batch: int, peak_bytes: int | None, trials: Sequence[Trial] = ()) -> None:
        """Add a measured batch size. `peak_bytes` is None if it ran out of memory."""
        first = _most(trials, FIRST_STEP) if self.of == "allocator" else None
        point = MemoryPoint(
            batch_size=batch, peak_bytes=peak_bytes, predicted_bytes=self.predict(batch), first_step_bytes=first
        )
        self._points.append(point)

    def begin_anew(self, *settings: Any) -> bool:
        """Forget all batches if `settings` differ from those of the latest call. Return True if they differ."""
        if settings == self._settings:
            return False
        self._settings = settings
        self._points.clear()
        return True

    @property
    def too_large(self) -> int | None:
        """The smallest batch that has run out of memory. None if none has."""
        return min((point.batch_size for point in self._points if point.peak_bytes is None), default=None)

    @property
    def fits(self) -> int | None:
        """The largest batch that was trained and took at most ROOM (90 %) of the limit. None if there is none."""
        most = self.may_take
        good = (batch for batch, taken in self._taken() if most is None or taken <= most)
        return max(good, default=None)

    @property
    def beyond(self) -> int | None:
        """The smallest batch that has run out of memory or taken more than ROOM (90 %) of it. None without one."""
        most = self.may_take
        over = [batch for batch, taken in self._taken() if most is not None and taken > most]
        return min([*over, *([self.too_large] if self.too_large is not None else [])], default=None)

    @property
    def is_known(self) -> bool:
        """True if `largest` is a prediction, not only a bound: the line is known, or a batch has run out of memory."""
        return self._line() is not None or self.too_large is not None

    def predict(self, batch: int) -> int | None:
        """Return the bytes that a batch will take. None before two different batch sizes have been measured."""
        line = through(self._taken())
        return None if line is None else round(line.at(batch))

    def predict_first_step(self, batch: int) -> int | None:
        """Return the bytes of the first step with a batch on a GPU. None before two batch sizes have been measured."""
        line = through([(at.batch_size, at.first_step_bytes) for at in self._points if at.first_step_bytes is not None])
        return None if line is None else round(line.at(batch))

    def largest(self) -> int | None:
        """Return the largest batch that should take at most ROOM (90 %) of the limit (None: unknown; 0: not even 1
        fits). Twice the batch takes at most twice the memory; on the host nothing larger is tried before more is known.
        """
        most, line = self.may_take, self._line()
        if most is None:
            return None
        if line is None:
            # by the steepest line that chance may hide in the measured batches
            taken, chance = sorted(self._taken()), NOISE_BYTES[self.of]
            if taken and taken[0][0] < taken[-1][0]:
                (small, least), (large, more) = taken[0], taken[-1]
                steepest = max(0, more - least + chance) / (large - small)
                if least - chance - steepest * (small - 1) > most:
                    return 0
            return self._bound(most)
        predicted = max(0, int((most - line.base) / line.bytes_per_sample))
        return self._between(predicted)

    def worth_trying(self) -> int | None:
        """Return the largest batch to try: above `largest` if the limit is the user's and nothing is known yet."""
        largest = self.largest()
        if largest and self.limit_is_asked and self.of == "process" and self._line() is None and self.beyond is None:
            return max(largest, self._bound(ROOM * resource_limits.memory().available) or 0)
        return largest

    def state(self) -> Memory:
        """Return the state of the model for the record. A largest batch that is only a guess is given as None."""
        line, largest = through(self._taken()), self.largest()
        is_guess = largest != 0 and self._line() is None and self.fits is None
        return Memory(
            of=self.of,
            limit_bytes=self.limit_bytes,
            base_bytes=line.base if line else None,
            bytes_per_sample=line.bytes_per_sample if line else None,
            largest_batch=None if is_guess else largest,
            at_least=self._line() is None and self.fits is not None,
            fits=self.fits,
            too_large=self.too_large,
            most_batch=self.most_batch,
            limit_is_asked=self.limit_is_asked,
            points=list(self._points),
        )

    def _taken(self) -> list[tuple[int, int]]:
        return [(point.batch_size, point.peak_bytes) for point in self._points if point.peak_bytes is not None]

    def _line(self) -> Line | None:
        # none if the memory of the batches differs by no more than chance: it would not predict larger ones
        taken, line = self._taken(), through(self._taken())
        if line is None:
            return None
        batches = [batch for batch, _ in taken]
        rise = line.bytes_per_sample * (max(batches) - min(batches))
        return line if rise > NOISE_BYTES[self.of] else None

    def _bound(self, most: float) -> int | None:
        if not self._taken() or (self.of != "process" and self.beyond is None):
            return None
        fitting = [(batch, taken) for batch, taken in self._taken() if taken <= most]
        if not fitting:  # no batch is sure to fit: half of the smallest is worth a trial
            return (self.beyond or 0) // 2
        batch, taken = max(fitting)
        return self._between(int(batch * most / taken))

    def _between(self, predicted: int) -> int:
        limited = min(
            batch for batch in (predicted, self.beyond and self.beyond - 1, self.most_batch) if batch is not None
        )
        return max(limited, self.fits or 0)
