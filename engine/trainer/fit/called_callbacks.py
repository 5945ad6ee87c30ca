"""Calls Keras callbacks for epochs, evaluations and the training as a whole, as Keras would; a checkpoint has their
states.

Callbacks that override a method for batches are called once for each execution. The host then waits for the device. A
callback that ends the training (model.stop_training) ends the run normally.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import keras

from ..checkpoint import callback_state
from ..checkpoint.packed import Arrays
from ..common.epoch_callbacks import EpochCallbacks, Loop, as_keras

_BATCH_BEGIN, _BATCH_END = ("on_train_batch_begin", "on_batch_begin"), ("on_train_batch_end", "on_batch_end")


class CalledCallbacks(EpochCallbacks):
    """Notifies the training loop and calls callbacks (`theirs`), such as those of a user's code.

    The loop comes first, except if a checkpoint is to contain changes that the callbacks make. `epochs` is the number
    of epochs that the callbacks are given.
    """

    def __init__(self, loop: Loop, model: keras.Model, epochs: int, theirs: Sequence[keras.callbacks.Callback]) -> None:
        super().__init__(loop, model)
        self._given, self._epochs = list(theirs), epochs
        self._begun: list[keras.callbacks.Callback] = []
        self._saved: tuple[Any, Arrays] | None = None  # their states in the checkpoint of a resumed training
        self._take(self._given)

    def resume_from(self, saved: tuple[Any, Arrays] | None) -> None:
        """To be called before a resumed training begins. `saved` has the states of the callbacks, as `state` and
        Arrays.pack have returned them; None if the checkpoint is of an older gputui.
        """
        self._saved = saved

    def state(self, arrays: Arrays) -> Any:
        """Return the states of the callbacks as a value for JSON; their arrays are added to `arrays`.

        Raises TrainerError if a callback gives a state that cannot be saved.
        """
        return {"callbacks": callback_state.state_of(self._theirs, arrays)}

    def restore(self) -> list[str]:
        """Set the states of the checkpoint in the callbacks. Returns a text for each callback that starts again.

        To be called when the model has been restored.
        """
        if self._saved is None:
            return [f"{type(callback).__name__} starts again" for callback in self._theirs]
        saved, arrays = self._saved
        return callback_state.restore(self._theirs, saved["callbacks"], arrays)

    def add(self, handed: Sequence[keras.callbacks.Callback]) -> None:
        """Also call the callbacks `handed` over by the model's own fit. Callbacks that an earlier fit has added are
        dropped.
        """
        self._take([*self._given, *(callback for callback in handed if callback not in self._given)])

    def _take(self, theirs: list[keras.callbacks.Callback]) -> None:
        self._theirs = theirs
        for callback in self._theirs:
            callback.set_params({"verbose": 0, "epochs": self._epochs, "steps": self._loop.steps_per_epoch})
            callback.set_model(self.model)
        self._batch_begin = [callback for callback in self._theirs if _overrides(callback, _BATCH_BEGIN)]
        self._batch_end = [callback for callback in self._theirs if _overrides(callback, _BATCH_END)]
        self._test_begin = [callback for callback in self._theirs if _overrides(callback, ("on_test_batch_begin",))]
        self._test_end = [callback for callback in self._theirs if _overrides(callback, ("on_test_batch_end",))]

    def on_train_begin(self, logs: Any = None) -> None:
        """Call on_train_begin of each callback only once in a run. The rest of a resumed epoch is trained by a separate
        fit.
        """
        new = [callback for callback in self._theirs if callback not in self._begun]
        self._begun = list(self._theirs)
        with self._loop.heartbeat:
            for callback in new:
                callback_state.begin_training(callback, as_keras(logs), resumed=self._saved is not None)

    def on_train_end(self, logs: Any = None) -> None:
        if self._loop.step >= self._loop.steps or self.model.stop_training:
            self._call(self._theirs, "on_train_end", as_keras(logs))

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        self._call(self._theirs, "on_epoch_begin", epoch, as_keras(logs))

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._loop.pause()
        values = as_keras(logs)
        self._call(self._theirs, "on_epoch_end", epoch, values)
        super().on_epoch_end(epoch, values)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._batch_begin:
            self._call(self._batch_begin, "on_train_batch_begin", batch, as_keras(logs))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._batch_end:
            self._call(self._batch_end, "on_train_batch_end", batch, as_keras(logs))
        super().on_train_batch_end(batch, logs)

    def on_test_begin(self, logs: Any = None) -> None:
        super().on_test_begin(logs)
        self._call(self._theirs, "on_test_begin", as_keras(logs))

    def on_test_end(self, logs: Any = None) -> None:
        self._call(self._theirs, "on_test_end", as_keras(logs))
        super().on_test_end(logs)

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._test_begin:
            self._call(self._test_begin, "on_test_batch_begin", batch, as_keras(logs))

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._test_end:
            self._call(self._test_end, "on_test_batch_end", batch, as_keras(logs))

    def _call(self, theirs: Sequence[keras.callbacks.Callback], method: str, *values: Any) -> None:
        """Call the method `method` of the callbacks with `values`. The heartbeat continues meanwhile, so that a long
        call does not count as a hang.
        """
        with self._loop.heartbeat:
            for callback in theirs:
                getattr(callback, method)(*values)


def _overrides(callback: keras.callbacks.Callback, names: tuple[str, ...]) -> bool:
    """Return True if the callback overrides one of the methods `names`, and so acts at each batch. ModelCheckpoint
    counts only if it saves by steps.
    """
    if isinstance(callback, keras.callbacks.ModelCheckpoint) and callback.save_freq == "epoch":
        return False
    return any(
        name in vars(callback) or getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name)
        for name in names
    )
