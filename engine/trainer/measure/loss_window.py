"""The mean loss of the last steps, from the running sum that Keras keeps for its mean over the epoch."""

from __future__ import annotations

from typing import Any, NamedTuple

import keras


class _Sums(NamedTuple):
    """The loss of all samples since Keras began to count, and their weight."""

    loss: float = 0.0
    weight: float = 0.0


class LossWindow:
    """Reads two numbers of the device, and only when it is asked; the device has then finished its work.

    With several replicas the sums are those of this process's replicas. A model whose loss is no mean that Keras keeps
    has none.
    """

    def __init__(self, model: keras.Model) -> None:
        self._model = model
        self._read = _Sums()
        self._last: float | None = None  # the window before an evaluation
        self._used_otherwise = False  # the sums hold steps of before, or those of an evaluation

    def begin(self, within_epoch: bool) -> None:
        """Training begins; within an epoch the sums may hold steps of before."""
        self._used_otherwise = within_epoch

    def take(self) -> float | None:
        """The mean over the steps since the last call; None where there was none, or it is not known."""
        now = _sums(self._model)
        if now is None:
            return None
        before = self._read if now.weight >= self._read.weight else _Sums()  # else Keras has begun anew
        known = now.weight > before.weight and not self._used_otherwise
        self._read, self._used_otherwise = now, False
        return (now.loss - before.loss) / (now.weight - before.weight) if known else None

    def evaluation_begins(self) -> None:
        """An evaluation uses the same sums from now on."""
        self._last, self._used_otherwise = self.take(), True

    def end_epoch(self) -> float | None:
        """The last window of the epoch; Keras begins the next one with empty sums."""
        last = self._last if self._used_otherwise else self.take()
        self._read, self._last, self._used_otherwise = _Sums(), None, False
        return last


def _sums(model: keras.Model) -> _Sums | None:
    tracker = next((one for one in model.metrics if one.name == "loss"), None)
    if not isinstance(tracker, keras.metrics.Mean):
        return None
    return _Sums(_total(tracker.total), _total(tracker.count))


def _total(variable: Any) -> float:
    """Over what each replica of this process holds; their aggregate would have to be asked of all processes at once."""
    value = variable.value
    return float(sum(part.numpy() for part in getattr(value, "values", [value])))
