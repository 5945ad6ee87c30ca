"""Calls Keras callbacks for epochs, evaluations and the training as a whole, as Keras would, and restores
checkpoints. Callbacks that override a method for batches are called once for each execution. The host then waits for
the device.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import keras
import numpy as np
import tensorflow as tf

from ...system.heartbeat import TrainerHeartbeat
from ..checkpoint import callback_state
from ..checkpoint.callback_state import Arrays
from ..checkpoint.training_state import Attributes
from ..common.logs import as_keras
from ..measure.health import Health
from .built_training import Built

_BATCH_BEGIN, _BATCH_END = ("on_train_batch_begin", "on_batch_begin"), ("on_train_batch_end", "on_batch_end")


@dataclass(frozen=True)
class EndDue:
    """What was still to be done when a checkpoint was written, besides the remaining steps."""

    ended: bool = False  # a callback has ended the training
    logs: dict[str, Any] | None = None  # of the epoch's steps, if its evaluation and on_epoch_end have to follow


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


class CalledCallbacks(keras.callbacks.CallbackList):
    """Notifies the training loop and calls callbacks (`theirs`), such as those of a user's code. The loop comes
    first, except if a checkpoint is to contain changes that the callbacks make. It does nothing at each step, where
    Keras' own list of callbacks converts every metric.
    """

    attributes: Attributes

    def __init__(self, loop: Loop, model: keras.Model, epochs: int, theirs: Sequence[keras.callbacks.Callback]) -> None:
        super().__init__(add_history=True, model=model)  # fit returns model.history
        self._loop = loop
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
        """Return the states for JSON, with which end is due, and arrays in `arrays`. Raises TrainerError."""
        ended, unfinished = self._loop.end_due()
        logs = {"unfinished": unfinished, "epoch": self._epoch_logs}
        states = callback_state.state_of(self._theirs, arrays)
        attributes = {"now": self.attributes.changed(), "traced": self.attributes.traced}
        return {"callbacks": states, "ended": ended, "logs": arrays.pack(_numbers(logs)), "attributes": attributes}

    def resume_from(self, saved: tuple[Any, Arrays] | None) -> EndDue:
        """Take `state`'s result before the training begins, and return what was due. None: of an older gputui."""
        self._saved, self._resumed = saved, saved is not None
        if saved is None:
            return EndDue()
        state, arrays = saved
        logs = arrays.unpack(state["logs"])
        self._epoch_logs = logs["epoch"]
        self.attributes.traced = state.get("attributes", {"traced": {}})["traced"]
        return EndDue(state["ended"], logs["unfinished"])

    def restore(self) -> list[str]:
        """When the model is restored. Returns a text for each callback that starts again."""
        if self._saved is None:
            older = "the checkpoint is of an older gputui"
            return [f"{type(callback).__name__} starts again: {older}" for callback in self._theirs]
        saved, arrays = self._saved
        lost = self.attributes.restore(saved["attributes"]["now"]) if "attributes" in saved else []
        return callback_state.restore(self._theirs, saved["callbacks"], arrays) + lost

    def call_held(self) -> None:
        """Call what has waited until the checkpoint was restored."""
        held, self._held = self._held, []
        for call in held:
            call()

    # ---- which are called -----------------------------------------------------------------------

    def add(self, handed: Sequence[keras.callbacks.Callback]) -> None:
        """Also call the callbacks `handed` over by the model's own fit. If an earlier fit of the same training has
        handed over the same classes, its callbacks go on with what they have counted.
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
        # Once in a run: the rest of a resumed epoch is trained by a separate fit.
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
        self._loop.epoch_begins()
        if self._loop.restores_later:
            self._held.append(lambda: self._epoch_begins(epoch, as_keras(logs)))
            return
        self._loop.leave_if_it_is_time()
        self._epoch_begins(epoch, as_keras(logs))

    def _epoch_begins(self, epoch: int, logs: dict[str, Any]) -> None:
        # In a resumed epoch, its changes are already in the checkpoint, and are undone.
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
        self._loop.epoch_ends(epoch, values)

    def on_train_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._batch_begin and self._loop.restores_later:
            self._held.append(lambda: self._call(self._batch_begin, "on_train_batch_begin", batch, as_keras(logs)))
        elif self._batch_begin:
            self._loop.leave_if_it_is_time()
            self._call(self._batch_begin, "on_train_batch_begin", batch, as_keras(logs))

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._batch_end:
            self._call(self._batch_end, "on_train_batch_end", batch, as_keras(logs))
        self._loop.execution_ends()

    def on_test_begin(self, logs: Any = None) -> None:
        self._loop.evaluation_begins()
        self._call(self._theirs, "on_test_begin", as_keras(logs))

    def on_test_end(self, logs: Any = None) -> None:
        self._call(self._theirs, "on_test_end", as_keras(logs))
        self._loop.evaluation_ends()

    def on_test_batch_begin(self, batch: int, logs: Any = None) -> None:
        if self._test_begin:
            self._call(self._test_begin, "on_test_batch_begin", batch, as_keras(logs))

    def on_test_batch_end(self, batch: int, logs: Any = None) -> None:
        if self._test_end:
            self._call(self._test_end, "on_test_batch_end", batch, as_keras(logs))

    def _call(self, theirs: Sequence[keras.callbacks.Callback], method: str, *values: Any) -> None:
        # A long call does not count as a hang.
        with self._loop.heartbeat:
            for callback in theirs:
                getattr(callback, method)(*values)


def _overrides(callback: keras.callbacks.Callback, names: tuple[str, ...]) -> bool:
    """Return True if the callback acts at each batch (ModelCheckpoint: by steps)."""
    if isinstance(callback, keras.callbacks.ModelCheckpoint) and callback.save_freq == "epoch":
        return False
    return any(
        name in vars(callback) or getattr(type(callback), name) is not getattr(keras.callbacks.Callback, name)
        for name in names
    )


def _may_change_model(callback: keras.callbacks.Callback) -> bool:
    """on_epoch_begin is overridden, other than by classes of Keras that only take notes."""
    harmless = (keras.callbacks.Callback, keras.callbacks.ModelCheckpoint, keras.callbacks.TensorBoard)
    function = getattr(callback.on_epoch_begin, "__func__", callback.on_epoch_begin)
    return all(function is not kind.on_epoch_begin for kind in harmless)


def _numbers(logs: Any) -> Any:
    if isinstance(logs, dict):
        return {str(name): _numbers(value) for name, value in logs.items()}
    return logs if isinstance(logs, float | np.ndarray | None) else str(logs)


Trace = Callable[[], Any]  # traces a step without running it, or returns the earlier trace


class Restoring:
    """Restores all state that changes while a model trains, when its variables exist, and before callbacks change
    anything. A step of a user's model may write any variable and draw from any generator, which its traced graph
    shows. `ours` are variables of gputui that are not in checkpoints.
    """

    def __init__(self, built: Built, health: Health, ours: Sequence[tf.Variable], steps_per_epoch: int) -> None:
        self._built, self._health, self._ours, self._steps_per_epoch = built, health, ours, steps_per_epoch
        self.as_traced = built.checkpoints.state.attributes.as_traced
        self._step: int | None = None  # step of the checkpoint that was not restored yet
        self._resumed = self._tested = False
        self._missed: list[str] = []  # variables whose values were not restored, in the order of their warnings

    def begin(self, step: int | None, callbacks: CalledCallbacks) -> EndDue:
        """Take the checkpoint's step, None if the training does not resume, and return what was still to be done
        when it was written. With several workers, all end if one has.
        """
        self._step, self._resumed = step, step is not None
        self._called: CalledCallbacks = callbacks
        if step is None:
            return EndDue()
        due = self._called.resume_from(self._built.checkpoints.callbacks_at(step))
        if self._built.joined is not None:
            due = replace(due, ended=bool(self._built.joined.exchange.rows([due.ended]).any()))
        return due

    @property
    def is_due(self) -> bool:
        """True if the training resumes and the checkpoint was not restored yet."""
        return self._step is not None

    def epoch_begins(self) -> None:
        """Restore the epoch's running metrics, too, which Keras' fit has just reset, if the variables exist."""
        if self._step is not None and self._built.checkpoints.fits(self._step):
            self._restore(self._step)

    def first_step_comes(self, trace: Trace) -> None:
        """A user's model is traced before, because its step may create variables."""
        if self._built.own is not None:
            with self.as_traced("train"):
                traced = trace()
            if self._step is not None:
                self._note_written(traced)
        self._health.note_start()
        if self._step is not None:
            self._restore(self._step)
            self._called.call_held()

    def first_step_ran(self, trace: Trace) -> None:
        if self._built.own is not None:
            traced = trace()
            self._note_written(traced)
            self._warn_of_draws(traced)

    def first_test_ran(self, trace: Trace) -> None:
        """Warn once if the test step of a user's model draws random numbers that a resumed training cannot restore."""
        if self._built.own is not None and not self._tested:
            self._tested = True
            self._warn_of_draws(trace())

    def epoch_ends(self) -> None:
        """Name the variables that were created since the training was resumed, and have not got their values."""
        self._warn_of_missed(self._built.checkpoints.state.missed())

    def training_ends(self) -> None:
        """Name the variables that were not created again."""
        state = self._built.checkpoints.state
        self._warn_of_missed([*state.missed(), *(entry.name for entry in state.later.waiting)])
        state.later.close()

    def _warn_of_missed(self, names: Sequence[str]) -> None:
        missed = [name for name in names if name not in self._missed]
        self._missed += missed
        if missed:
            self._built.report.not_restored(missed)

    def _restore(self, step: int) -> None:
        checkpoints = self._built.checkpoints
        self._health.note_start()
        self._warn_of_missed(checkpoints.restore(step))
        self._step = None
        if checkpoints.state.begins_anew:
            self._built.report.warn("begins_anew", checkpoints.state.begins_anew)
        self._health.begin(step)
        if step % self._steps_per_epoch == 0:
            self._built.model.reset_metrics()  # figures of the previous epoch, or of its evaluation
        if texts := self._called.restore():
            self._built.report.warn("callbacks_not_restored", "; ".join(texts))

    def _note_written(self, traced: Any) -> None:
        self._built.checkpoints.state.saw(traced.graph, self._ours)

    def _warn_of_draws(self, traced: Any) -> None:
        if self._built.own is not None and self._resumed:
            self._built.own.warn_of_draws(traced.graph, self._built.report)
