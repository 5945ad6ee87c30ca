"""Restores a training from a checkpoint: when its variables exist, and before callbacks change anything."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from ..measure.health import Health
from .built_training import Built
from .called_callbacks import CalledCallbacks, EndDue

Trace = Callable[[], Any]  # traces a step without running it, or returns the earlier trace


class Restoring:
    """Restores all state that changes while a model trains, from a checkpoint of the training `built`.

    A step of a user's model may write any variable and draw from any generator. The graph of its traced step shows
    which. gputui's own models need no such search. `ours` are variables of gputui that are not in checkpoints.
    """

    def __init__(self, built: Built, health: Health, ours: Sequence[tf.Variable], steps_per_epoch: int) -> None:
        self._built, self._health, self._ours, self._steps_per_epoch = built, health, ours, steps_per_epoch
        self._step: int | None = None  # step of the checkpoint that was not restored yet
        self._resumed = self._tested = False
        self._missed: list[str] = []  # variables whose values were not restored, in the order of their warnings

    def begin(self, step: int | None, callbacks: CalledCallbacks) -> EndDue:
        """To be called when a training begins. `step` is the step of the checkpoint from which it resumes, None if it
        does not resume. The states of `callbacks` are restored with it.

        Returns what was still to be done when the checkpoint was written. With several workers, all end if one has.
        """
        self._step, self._resumed = step, step is not None
        self._called: CalledCallbacks = callbacks
        if step is None:
            return EndDue()
        self._built.checkpoints.read_traced(step)
        due = self._called.resume_from(self._built.checkpoints.callbacks_at(step))
        if self._built.joined is not None:
            due = replace(due, ended=bool(self._built.joined.exchange.rows([due.ended]).any()))
        return due

    @property
    def is_due(self) -> bool:
        """True if the training resumes and the checkpoint was not restored yet."""
        return self._step is not None

    def epoch_begins(self) -> None:
        """Restore the checkpoint with the running metrics of the epoch, which Keras' fit has just reset.

        Nothing is done if it was already restored, or if the model lacks variables that are created in its first step.
        """
        if self._step is not None and self._built.checkpoints.fits(self._step):
            self._restore(self._step)

    def first_step_comes(self, trace: Trace) -> None:
        """Restore the checkpoint before the first step, if it was not restored yet.

        A user's model is traced first, because its step may create variables. `trace` returns the traced step.
        """
        if self._built.own is not None:
            with self._built.checkpoints.state.as_traced():
                traced = trace()
            if self._step is not None:
                self._note_written(traced)
        self._health.note_start()
        if self._step is not None:
            self._restore(self._step)
            self._called.call_held()

    def without_a_step(self, trace: Trace) -> None:
        """Restore the checkpoint of a training of which no step is left, as `epoch_begins` or `first_step_comes`."""
        self.epoch_begins()
        if self.is_due:
            self.first_step_comes(trace)

    def once_more(self, step: int) -> None:
        """Restore the checkpoint of `step` again, because callbacks may have changed the model since."""
        self._built.checkpoints.restore(step)

    def first_step_ran(self, trace: Trace) -> None:
        if self._built.own is not None:
            traced = trace()
            self._note_written(traced)
            self._warn_of_draws(traced)

    def first_test_ran(self, trace: Trace) -> None:
        """Warn, once and only in a resumed training, if the test step of a user's model has random operations that
        cannot be restored.

        Called after each execution of an evaluation. `trace` returns the traced step.
        """
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
