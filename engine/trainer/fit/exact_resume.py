"""Going on exactly where a checkpoint was written: when the model can take it, and what of a user's code it holds."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import tensorflow as tf

from ..measure.health import Health
from .built import Built

Trace = Callable[[], Any]  # traces a step without running it, or returns what has been traced


class ExactResume:
    """Restores the checkpoint of a resumed training as soon as the model has all its variables.

    A user's step may write or draw what nobody has listed: its traced graph tells. gputui's own models need no look.
    """

    def __init__(self, built: Built, health: Health, ours: Sequence[tf.Variable], steps_per_epoch: int) -> None:
        self._built, self._health, self._ours, self._steps_per_epoch = built, health, ours, steps_per_epoch
        self._step: int | None = None  # of the checkpoint that has not been restored yet
        self._resumed = self._tested = False

    def begin(self, step: int | None) -> None:
        """A training begins, at the checkpoint of `step` where it is resumed."""
        self._step, self._resumed = step, step is not None

    def epoch_begins(self) -> None:
        """After fit has reset the metrics: the epoch's running figures go on, too."""
        if self._step is not None and self._built.checkpoints.fits(self._step):
            self._restore(self._step)

    def first_step_comes(self, trace: Trace) -> None:
        """A user's model that makes its variables in its first step: tracing makes them."""
        if self._step is not None:
            if self._built.own is not None:
                self._look(trace())
            self._restore(self._step)

    def first_step_ran(self, trace: Trace) -> None:
        if self._built.own is not None:
            traced = trace()
            self._look(traced)
            self._warn_of_draws(traced)

    def first_test_ran(self, trace: Trace) -> None:
        """Called after each execution of an evaluation."""
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
            self._built.model.reset_metrics()  # those of the epoch before, or of its evaluation
        self._step = None

    def _look(self, traced: Any) -> None:
        self._built.checkpoints.state.saw(traced.graph, self._ours)

    def _warn_of_draws(self, traced: Any) -> None:
        if self._built.own is not None and self._resumed:
            self._built.own.warn_of_draws(traced.graph, self._built.report)
