"""The Keras callback that gives the training loop the metrics of epochs and evaluations, also those of several numbers.

It does nothing at each step. Keras' own list of callbacks converts every metric at every step, which this avoids.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Protocol

import keras
import numpy as np

from ...system.heartbeat import TrainerHeartbeat


class Loop(Protocol):
    """The part of the training loop that is notified of epochs and evaluations."""

    step: int
    steps: int
    steps_per_epoch: int
    heartbeat: TrainerHeartbeat
    writes_checkpoints: bool

    @property
    def restores_later(self) -> bool: ...

    def training_begins(self) -> None: ...

    def leave_if_it_is_time(self) -> None: ...

    def restore_again(self, is_needed: bool) -> None: ...

    def end_due(self) -> tuple[bool, dict[str, Any] | None]: ...

    def pause(self) -> None: ...

    def execution_ends(self) -> None: ...

    def epoch_begins(self) -> None: ...

    def epoch_ends(self, epoch: int, logs: dict[str, Any]) -> None: ...

    def evaluation_begins(self) -> None: ...

    def evaluation_ends(self) -> None: ...


class EpochCallbacks(keras.callbacks.CallbackList):
    """Notifies the training loop of the start and end of epochs and evaluations, and of the end of each execution.

    Keras' fit of `model` calls it.
    """

    def __init__(self, loop: Loop, model: keras.Model) -> None:
        super().__init__(add_history=True, model=model)  # fit returns model.history
        self._loop = loop

    def on_train_begin(self, logs: Any = None) -> None:
        super().on_train_begin(logs)
        self._loop.training_begins()

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        pass

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._loop.execution_ends()

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        pass

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        pass

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self._loop.epoch_begins()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._loop.pause()
        self._loop.epoch_ends(epoch, logs or {})

    def on_test_begin(self, logs: Any = None) -> None:
        self._loop.evaluation_begins()

    def on_test_end(self, logs: Any = None) -> None:
        self._loop.evaluation_ends()


# ---- the values of a step -------------------------------------------------------------------------


MOST_PARTS = 10  # elements of a vector that are kept, each under its own name


def flat(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the logs with nested dictionaries flattened, as in Keras. It reads no values, so that it can be used in a
    graph.

    A name that is not text, which the user's code may use, becomes text.
    """
    values: dict[str, Any] = {}
    for name, value in (logs or {}).items():
        values.update(flat(value) if isinstance(value, Mapping) else {_text(name): value})
    return values


def as_keras(logs: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the logs in the form in which Keras' fit gives them to callbacks: scalars as numbers, vectors and larger
    values as arrays.

    Values that are not numbers are unchanged.
    """
    converted = {name: (value, _array(value)) for name, value in flat(logs).items()}
    return {name: value if array is None else _number(array) for name, (value, array) in converted.items()}


def floats(logs: Mapping[str, Any] | None) -> dict[str, float]:
    """Return the logs that are numbers, as floats by their names.

    A vector of up to MOST_PARTS elements gives `name_0`, `name_1` and so on. Larger values and values that are not
    numbers are left out.
    """
    return {name: number for key, value in flat(logs).items() for name, number in _numbers(key, value)}


def _text(name: Any) -> str:
    """Return the name as text. The name of its type if it is an object of the user's code that cannot be converted."""
    try:
        return str(name)
    except Exception:  # noqa: BLE001 - the user's code
        return type(name).__name__


def _numbers(name: str, value: Any) -> Iterator[tuple[str, float]]:
    array = _array(value)
    if array is None:
        return
    if array.ndim == 0:
        yield name, float(array)
    elif array.ndim == 1 and array.size <= MOST_PARTS:
        for index, part in enumerate(array):
            yield f"{name}_{index}", float(part)


def _number(array: np.ndarray[Any, Any]) -> Any:
    return float(array) if array.ndim == 0 else array


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    """Return the value as an array of float64. None if it cannot be converted. The host waits for the device to read
    it.
    """
    if value is None or isinstance(value, (str, bytes, complex)):
        return None
    try:
        return np.asarray(value, dtype="float64")
    except Exception:  # noqa: BLE001 - an object of the user's may raise any exception when it is converted
        return None
