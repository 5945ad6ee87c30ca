"""The Keras callback that notifies the training loop of epochs and evaluations, and does nothing at each step.

Keras' own list of callbacks converts every metric at every step, which this avoids.
"""

from __future__ import annotations

from typing import Any, Protocol

import keras

from ...system.heartbeat import TrainerHeartbeat


class Loop(Protocol):
    """The part of the training loop that is notified of epochs and evaluations."""

    step: int
    steps: int
    steps_per_epoch: int
    heartbeat: TrainerHeartbeat

    def pause(self) -> None: ...

    def execution_ends(self) -> None: ...

    def epoch_begins(self) -> None: ...

    def epoch_ends(self, epoch: int, logs: dict[str, Any]) -> None: ...

    def evaluation_begins(self) -> None: ...

    def evaluation_ends(self) -> None: ...


class EpochCallbacks(keras.callbacks.CallbackList):
    """Notifies the training loop of the begin and end of epochs and evaluations, and of the end of each execution."""

    def __init__(self, loop: Loop, model: keras.Model) -> None:
        super().__init__(add_history=True, model=model)  # fit returns model.history
        self._loop = loop

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
