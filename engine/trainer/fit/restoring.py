"""Restores the checkpoint of a resumed training, as soon as the model has all its variables."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..measure.health import Health
from .built import Built

Trace = Callable[[], Any]  # traces a step without running it, or returns the earlier trace


class Restoring:
    """Restores everything that changes while a model trains.

    A step of a user's model may write any variable and draw from any generator: the graph of its traced step shows
    which. gputui's own models need no such search.
    """

    def __init__(self, built: Built, health: Health, ours: Sequence[tf.Variable], steps_per_epoch: int) -> None:
        self._built, self._health, self._ours, self._steps_per_epoch = built, health, ours, steps_per_epoch
        self._step: int | None = None  # step of the checkpoint that was not restored yet
        self._resumed = self._tested = False

    def begin(self, step: int | None) -> None:
        """To be called when a training begins. `step` is the checkpoint from which it resumes, None if it does not
        resume.
        """
        self._step, self._resumed = step, step is not None

    def epoch_begins(self) -> None:
        """Restore the running metrics of the epoch, which fit has just reset."""
        if self._step is not None and self._built.checkpoints.fits(self._step):
            self._restore(self._step)

    def first_step_comes(self, trace: Trace) -> None:
        """Restore the checkpoint before the first step. A user's model is traced first, because its step may create
        variables.
        """
        if self._step is not None:
            if self._built.own is not None:
                self._note_written(trace())
            self._restore(self._step)

    def first_step_ran(self, trace: Trace) -> None:
        if self._built.own is not None:
            traced = trace()
            self._note_written(traced)
            self._warn_of_draws(traced)

    def first_test_ran(self, trace: Trace) -> None:
        """Warn, once, about random operations in the test step of a user's model. Called after each execution of an
        evaluation.
        """
        if self._built.own is not None and not self._tested:
            self._tested = True
            self._warn_of_draws(trace())

    def _restore(self, step: int) -> None:
        checkpoints = self._built.checkpoints
        checkpoints.restore(step)
        if checkpoints.state.begins_anew:
            self._built.report.warn("begins_anew", checkpoints.state.begins_anew)
        self._health.begin(step)
        if step % self._steps_per_epoch == 0:
            self._built.model.reset_metrics()  # figures of the previous epoch, or of its evaluation
        self._step = None

    def _note_written(self, traced: Any) -> None:
        self._built.checkpoints.state.saw(traced.graph, self._ours)

    def _warn_of_draws(self, traced: Any) -> None:
        if self._built.own is not None and self._resumed:
            self._built.own.warn_of_draws(traced.graph, self._built.report)
