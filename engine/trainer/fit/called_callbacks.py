"""Calls Keras callbacks for epochs, evaluations and the training as a whole, as Keras would; a checkpoint has their
states.

Callbacks that override a method for batches are called once for each execution. The host then waits for the device. A
callback that ends the training (model.stop_training) ends the run normally.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import keras
import numpy as np

from ..checkpoint import callback_state
from ..checkpoint.packed import Arrays
from ..common.epoch_callbacks import EpochCallbacks, Loop, as_keras

_BATCH_BEGIN, _BATCH_END = ("on_train_batch_begin", "on_batch_begin"), ("on_train_batch_end", "on_batch_end")


@dataclass(frozen=True)
class EndDue:
    """What was still to be done when a checkpoint was written, besides the remaining steps.

    `ended`: a callback has ended the training. `logs` are the figures of the epoch's steps, as callbacks get them, if
    its evaluation and on_epoch_end have to follow. None if not.
    """

    ended: bool = False
    logs: dict[str, Any] | None = None


class CalledCallbacks(EpochCallbacks):
    """Notifies the training loop and calls callbacks (`theirs`), such as those of a user's code.

    The loop comes first, except if a checkpoint is to contain changes that the callbacks make. `epochs` is the number
    of epochs that the callbacks are given.
    """

    def __init__(self, loop: Loop, model: keras.Model, epochs: int, theirs: Sequence[keras.callbacks.Callback]) -> None:
        super().__init__(loop, model)
        self._given, self._epochs = list(theirs), epochs
        self._handed: list[keras.callbacks.Callback] = []
        self._begun: list[keras.callbacks.Callback] = []
        self._saved: tuple[Any, Arrays] | None = None  # of the checkpoint, until its epoch has ended
        self._resumed = False
        self._held: list[Callable[[], None]] = []  # calls that wait until the checkpoint is restored
        self._epoch_logs: dict[str, Any] = {}  # of the last epoch that has ended
        self._take(self._given)

    # ---- checkpoints ----------------------------------------------------------------------------

    def state(self, arrays: Arrays) -> Any:
        """Return the states of the callbacks, and whether the end of the training or of an epoch is due, as a value for
        JSON. Arrays in it are added to `arrays`.

        Raises TrainerError if a callback gives a state that cannot be saved.
        """
        ended, unfinished = self._loop.end_due()
        logs = {"unfinished": unfinished, "epoch": self._epoch_logs}
        states = callback_state.state_of(self._theirs, arrays)
        return {"callbacks": states, "ended": ended, "logs": arrays.pack(_numbers(logs))}

    def resume_from(self, saved: tuple[Any, Arrays] | None) -> EndDue:
        """To be called before a resumed training begins. `saved` has what `state` has returned; None if the checkpoint
        is of an older gputui. Returns what was due when it was written.
        """
        self._saved, self._resumed = saved, saved is not None
        if saved is None:
            return EndDue()
        state, arrays = saved
        logs = arrays.unpack(state["logs"])
        self._epoch_logs = logs["epoch"]
        return EndDue(state["ended"], logs["unfinished"])

    def restore(self) -> list[str]:
        """Set the states of the checkpoint in the callbacks. Returns a text for each callback that starts again.

        To be called when the model has been restored.
        """
        if self._saved is None:
            older = "the checkpoint is of an older gputui"
            return [f"{type(callback).__name__} starts again: {older}" for callback in self._theirs]
        saved, arrays = self._saved
        return callback_state.restore(self._theirs, saved["callbacks"], arrays)

    def call_held(self) -> None:
        """Call what has waited until the checkpoint was restored."""
        held, self._held = self._held, []
        for call in held:
            call()

    # ---- which are called -----------------------------------------------------------------------

    def add(self, handed: Sequence[keras.callbacks.Callback]) -> None:
        """Also call the callbacks `handed` over by the model's own fit.

        If an earlier fit of the same training has handed over the same classes, its callbacks go on with what they have
        counted, in place of the new ones.
        """
        new = [callback for callback in handed if callback not in self._given]
        if not self._handed or [*map(type, new)] != [*map(type, self._handed)]:
            self._handed = new
        self._take([*self._given, *self._handed])

    def _take(self, theirs: list[keras.callbacks.Callback]) -> None:
        self._theirs = theirs
        for callback in self._theirs:
            callback.set_params({"verbose": 0, "epochs": self._epochs, "steps": self._loop.steps_per_epoch})
            callback.set_model(self.model)
        self._batch_begin = [callback for callback in self._theirs if _overrides(callback, _BATCH_BEGIN)]
        self._batch_end = [callback for callback in self._theirs if _overrides(callback, _BATCH_END)]
        self._test_begin = [callback for callback in self._theirs if _overrides(callback, ("on_test_batch_begin",))]
        self._test_end = [callback for callback in self._theirs if _overrides(callback, ("on_test_batch_end",))]

    # ---- the calls ------------------------------------------------------------------------------

    def on_train_begin(self, logs: Any = None) -> None:
        """Call on_train_begin of each callback only once in a run. The rest of a resumed epoch is trained by a separate
        fit.
        """
        new = [callback for callback in self._theirs if callback not in self._begun]
        self._begun = list(self._theirs)
        with self._loop.heartbeat:
            for callback in new:
                callback_state.begin_training(callback, as_keras(logs), resumed=self._resumed)
        if self._loop.writes_checkpoints:
            callback_state.state_of(new, Arrays())  # raises an error now rather than hours later
        self._loop.training_begins()

    def on_train_end(self, logs: Any = None) -> None:
        if self._loop.step >= self._loop.steps or self.model.stop_training:
            self._call(self._theirs, "on_train_end", as_keras(logs) or self._epoch_logs)

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        super().on_epoch_begin(epoch, logs)
        if self._loop.restores_later:
            self._held.append(lambda: self._epoch_begins(epoch, as_keras(logs)))
            return
        self._loop.leave_if_it_is_time()
        self._epoch_begins(epoch, as_keras(logs))

    def _epoch_begins(self, epoch: int, logs: dict[str, Any]) -> None:
        """Call on_epoch_begin. In a resumed epoch, its changes are already in the checkpoint, and are undone."""
        self._call(self._theirs, "on_epoch_begin", epoch, logs)
        if self._loop.step % self._loop.steps_per_epoch:
            self._loop.restore_again(any(map(_may_change_model, self._theirs)))
            if self._saved is not None:
                self.restore()

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        self._loop.pause()
        self._saved = None
        values = as_keras(logs)
        self._epoch_logs = dict(values)  # without what the callbacks add, as Keras passes it to on_train_end
        self._call(self._theirs, "on_epoch_end", epoch, values)
        super().on_epoch_end(epoch, values)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._batch_begin and self._loop.restores_later:
            self._held.append(lambda: self._call(self._batch_begin, "on_train_batch_begin", batch, as_keras(logs)))
        elif self._batch_begin:
            self._loop.leave_if_it_is_time()
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


def _may_change_model(callback: keras.callbacks.Callback) -> bool:
    """Return True if on_epoch_begin of the callback may change the model: if it is overridden, other than by classes of
    Keras that only take notes.
    """
    harmless = (keras.callbacks.Callback, keras.callbacks.ModelCheckpoint, keras.callbacks.TensorBoard)
    function = getattr(callback.on_epoch_begin, "__func__", callback.on_epoch_begin)
    return all(function is not kind.on_epoch_begin for kind in harmless)


def _numbers(logs: Any) -> Any:
    if isinstance(logs, dict):
        return {str(name): _numbers(value) for name, value in logs.items()}
    return logs if isinstance(logs, float | np.ndarray | None) else str(logs)
