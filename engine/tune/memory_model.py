"""What memory a batch size will take, predicted before it is tried: a line over the batch size of one replica.

Activations grow with the batch, weights and the memory of TensorFlow itself do not, so that the memory is a line:
M(b) = base + bytes_per_sample * b. On a GPU it is TensorFlow's own count of its tensors, on the CPU the most that the
process has had of the host's memory, or the address space if that is limited more tightly (ulimit -v).

The line does not hold in these cases:
- The peak of a process differs by some MB from trial to trial, since its threads and libraries take memory of their
  own, so that a smaller difference between batches shows nothing. Memory that was freed may be kept and used again.
- The allocator keeps memory in blocks and can run out before all of it is used: only 90 % of the limit are planned.
  Of a free block it gives the whole if less than 128 MB and less than the same again would be left (SplitChunk of
  TensorFlow's bfc_allocator.cc), and counts all of it: if there is little memory, few large tensors make jumps.
- XLA fuses operations, and cuDNN chooses algorithms, again for each size: the memory may jump. In the first step cuDNN
  tries its algorithms and takes up to some GB whatever the batch. This memory is not in the line.
- A model whose activations are computed a second time (`tf.recompute_grad`) has a flatter line, which its weights and
  its largest layer decide. The line holds as long as all sizes do so.
- Other settings (precision, XLA, a cache or batches on the device) have another line: `begin_anew`.

../memory_line.py fits the line.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from ..diagnosis.memory import limit_of
from ..files.values import mapping
from ..options import Options
from ..plan import Line, through
from ..runs.events import Started
from ..telemetry import resource_limits
from ..trials.search_record import Memory, MemoryPoint
from ..trials.trial import Trial

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
    """Return the bytes that a training may take, and the kind of memory that is limited, a key of FIGURES.

    `asked` is the user's own limit in bytes, None for none. `trial` is a training with these options. On a host with
    two limits (memory and address space), the limit that the trial has come closer to counts. The bytes are None if the
    limit is not known.
    """
    if started.gpus:
        flat = {f"{group}.{name}": value for group, of in asdict(options).items() for name, value in of.items()}
        device_limits = [limit_of(mapping(device), flat) for device in started.gpu_devices]
        return _least([*(round(limit) for limit in device_limits if limit), asked]), "allocator"
    space, host = resource_limits.ceilings().address_space_bytes, _least([resource_limits.memory().available, asked])
    reserved, taken = trial.peak_address_space_bytes, trial.peak_process_bytes
    if space and reserved and host and reserved / space > (taken or 0) / host:
        return space, "address_space"
    return host, "process"


def model_of(started: Started, options: Options, trial: Trial, asked: int | None) -> MemoryModel:
    """Return a memory model without measured batches, for the memory that limits a training with these options.

    `trial` is such a training. `asked` is the user's own limit in bytes, None for none.
    """
    limit, kind = limit_and_kind(started, options, trial, asked)
    return MemoryModel(limit, kind, limit_is_asked=limit is not None and limit == asked)


def _most(trials: Sequence[Trial], figure: str) -> int | None:
    measured = (trial for trial in trials if trial.outcome in ("ok", "slower"))
    return max((getattr(trial, figure) or 0 for trial in measured), default=0) or None


def _least(values: Sequence[int | None]) -> int | None:
    return min((limit for limit in values if limit), default=None)


class MemoryModel:
    """The memory that batches have taken, and predictions for other batch sizes (of one replica).

    `limit_bytes` is the memory that may be taken. None if it is not known. `limit_is_asked`: the user has set that
    limit. `of` is the kind of memory, a key of FIGURES. `most_batch` is the largest batch that the number of samples
    and the user's limit allow. None if it is not known.
    """

    def __init__(self, limit_bytes: int | None, of: str, limit_is_asked: bool = False) -> None:
        self.limit_bytes, self.of, self.limit_is_asked = limit_bytes, of, limit_is_asked
        self.most_batch: int | None = None
        self._points: list[MemoryPoint] = []
        self._settings: tuple[Any, ...] = ()

    @property
    def may_take(self) -> float | None:
        return None if self.limit_bytes is None else ROOM * self.limit_bytes

    def peak(self, trials: Sequence[Trial]) -> int | None:
        """Return the largest peak of the trials in bytes, of the limited kind of memory. None if none was measured."""
        return _most(trials, FIGURES[self.of])

    def add(self, batch: int, peak_bytes: int | None, trials: Sequence[Trial] = ()) -> None:
        """Add a measured batch size.

        `peak_bytes` is the memory that it took in `trials`. None means that it ran out of memory.
        """
        first = _most(trials, FIRST_STEP) if self.of == "allocator" else None
        point = MemoryPoint(
            batch_size=batch, peak_bytes=peak_bytes, predicted_bytes=self.predict(batch), first_step_bytes=first
        )
        self._points.append(point)

    def begin_anew(self, *settings: Any) -> bool:
        """Remove all measured batches if `settings` differ from those of the latest call. Return True if they differ.

        `settings` are the settings with which the following batches are measured.
        """
        if settings == self._settings:
            return False
        self._settings = settings
        self._points.clear()
        return True

    # ---- what is known ----------------------------------------------------------------------------

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
        """The smallest batch that has run out of memory or has taken more than ROOM (90 %) of the limit. None if there
        is none.
        """
        most = self.may_take
        over = [batch for batch, taken in self._taken() if most is not None and taken > most]
        return min([*over, *([self.too_large] if self.too_large is not None else [])], default=None)

    @property
    def is_known(self) -> bool:
        """True if `largest` is a prediction and not only a bound.

        It is one if the line is known or a batch has run out of memory.
        """
        return self._line() is not None or self.too_large is not None

    def predict(self, batch: int) -> int | None:
        """Return the bytes that a batch will take. None before two different batch sizes have been measured."""
        line = through(self._taken())
        return None if line is None else round(line.at(batch))

    def predict_first_step(self, batch: int) -> int | None:
        """Return the bytes that the first step with a batch will take on a GPU.

        None before the first steps of two different batch sizes have been measured.
        """
        line = through([(at.batch_size, at.first_step_bytes) for at in self._points if at.first_step_bytes is not None])
        return None if line is None else round(line.at(batch))

    def largest(self) -> int | None:
        """Return the largest batch that is predicted to take at most ROOM (90 %) of the limit. None if that is not
        known, 0 if not even 1 fits.

        A batch that has run out of memory is an upper bound, a batch that was trained a lower bound. Twice the batch
        takes at most twice the memory, so that one point is enough for a batch that is sure to fit. On the host no
        larger batch is tried before more is known, as the kernel ends other programs if memory runs out.
        """
        most, line = self.may_take, self._line()
        if most is None:
            return None
        if line is None:
            return 0 if self._is_out_of_reach(most) else self._bound(most)
        predicted = max(0, int((most - line.base) / line.bytes_per_sample))
        return self._between(predicted)

    def worth_trying(self) -> int | None:
        """Return the largest batch that may be tried. None if that is not known.

        It is larger than `largest` only in one case: the limit is the user's own, and the measured batches give no line
        yet. A batch above that limit does no harm if the host has room for it. It is tried because one point does not
        show how much memory is the same for every batch.
        """
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

    # ---- the line ---------------------------------------------------------------------------------

    def _taken(self) -> list[tuple[int, int]]:
        return [(point.batch_size, point.peak_bytes) for point in self._points if point.peak_bytes is not None]

    def _line(self) -> Line | None:
        """Return the line over the measured batches. None if their memory differs by no more than chance.

        Such a line would not predict larger batches.
        """
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

    def _is_out_of_reach(self, most: float) -> bool:
        """Return True if a single sample surely takes more than `most` bytes.

        It is computed with the steepest line that chance may hide in the measured batches. False if fewer than two
        batch sizes were measured.
        """
        taken, chance = sorted(self._taken()), NOISE_BYTES[self.of]
        if not taken or taken[0][0] == taken[-1][0]:
            return False
        (small, least), (large, more) = taken[0], taken[-1]
        steepest = max(0, more - least + chance) / (large - small)
        return least - chance - steepest * (small - 1) > most

    def _between(self, predicted: int) -> int:
        limited = min(
            batch for batch in (predicted, self.beyond and self.beyond - 1, self.most_batch) if batch is not None
        )
        return max(limited, self.fits or 0)
