"""The evaluations of a training: the run's own after an epoch, and evaluations that a user's callbacks start."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Sequence
from typing import Any

import keras
import tensorflow as tf

from ...system.heartbeat import TrainerHeartbeat
from ..common.epoch_callbacks import EpochCallbacks, floats
from ..measure.first_times import FirstTimes
from ..measure.health import Health
from . import train_function
from .built_training import Built
from .called_callbacks import CalledCallbacks
from .train_function import constant

Trace = Callable[[], Any]  # traces a step without running it, or returns the earlier trace


class Restoring:
    """Restores all state that changes while a model trains, from a checkpoint of the training `built`.

    A step of a user's model may write any variable and draw from any generator. The graph of its traced step shows
    which. gputui's own models need no such search. `ours` are variables of gputui that are not in checkpoints.
    """

    def __init__(self, built: Built, health: Health, ours: Sequence[tf.Variable], steps_per_epoch: int) -> None:
        self._built, self._health, self._ours, self._steps_per_epoch = built, health, ours, steps_per_epoch
        self._step: int | None = None  # step of the checkpoint that was not restored yet
        self._called: CalledCallbacks | None = None
        self._resumed = self._tested = False

    def begin(self, step: int | None, callbacks: EpochCallbacks) -> None:
        """To be called when a training begins. `step` is the step of the checkpoint from which it resumes, None if it
        does not resume. The states of `callbacks` are restored with it.
        """
        self._step, self._resumed = step, step is not None
        self._called = callbacks if isinstance(callbacks, CalledCallbacks) else None
        if self._called is not None and step is not None:
            self._called.resume_from(self._built.checkpoints.callbacks_at(step))

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
        """Warn, once and only in a resumed training, if the test step of a user's model has random operations that
        cannot be restored.

        Called after each execution of an evaluation. `trace` returns the traced step.
        """
        if self._built.own is not None and not self._tested:
            self._tested = True
            self._warn_of_draws(trace())

    def _restore(self, step: int) -> None:
        checkpoints = self._built.checkpoints
        checkpoints.restore(step)
        if checkpoints.state.begins_anew:
            self._built.report.warn("begins_anew", checkpoints.state.begins_anew)
        if self._called is not None and (texts := self._called.restore()):
            self._built.report.warn("callbacks_anew", "; ".join(texts))
        self._health.begin(step)
        if step % self._steps_per_epoch == 0:
            self._built.model.reset_metrics()  # figures of the previous epoch, or of its evaluation
        self._step = None

    def _note_written(self, traced: Any) -> None:
        self._built.checkpoints.state.saw(traced.graph, self._ours)

    def _warn_of_draws(self, traced: Any) -> None:
        if self._built.own is not None and self._resumed:
            self._built.own.warn_of_draws(traced.graph, self._built.report)


BEAT_SECONDS = 5.0


class Evaluation:
    """Runs the model's test function, in executions of `steps_per_execution` steps.

    `check_stop` raises StopRequested if a stop was requested, which ends an evaluation before its remaining steps are
    done. `first` and `restoring` are notified of the executions. `scale` is the factor for inputs that are bytes, None
    for other inputs. Each batch is computed in `micro_batches` parts.
    """

    def __init__(
        self,
        model: keras.Model,
        steps_per_execution: int,
        check_stop: Callable[[], object],
        first: FirstTimes,
        restoring: Restoring,
        heartbeat: TrainerHeartbeat,
        scale: float | None,
        micro_batches: int,
    ) -> None:
        self._steps_per_execution, self._check_stop = steps_per_execution, check_stop
        self._first, self._restoring = first, restoring
        self._heartbeat, self._next_beat = heartbeat, 0.0
        function = train_function.testing(model, scale, micro_batches)
        self._run: Callable[[Any, Any], dict[str, Any]] = function
        self._trace = function.get_concrete_function
        self._run_one = train_function.testing_one(model, micro_batches)
        self._left = 0  # steps of the run's own evaluation
        self.epoch_metrics: dict[str, float] | None = (
            None  # figures of the epoch that is evaluated, until they are reported
        )
        model.test_function = self._execute

    def begin(self, steps: int, epoch_metrics: dict[str, float] | None) -> None:
        """Begin the run's own evaluation of `steps` steps. `epoch_metrics` are the metrics of the epoch. None if there
        are none.
        """
        self.epoch_metrics = epoch_metrics
        self._first.evaluation.begins()
        self._left = steps
        self._next_beat = time.monotonic() + BEAT_SECONDS

    def end(self) -> None:
        self._left = 0

    def _execute(self, iterator: Any) -> Any:
        """Run one execution of the test function for Keras' evaluate, with the batches of `iterator`, and return its
        logs.

        It is of the run's own evaluation, or of one that a user's callback has started. Raises StopRequested if a stop
        was requested.
        """
        self._check_stop()
        return self._execute_own(iterator) if self._left else self._execute_of_callback(iterator)

    def _execute_own(self, iterator: Any) -> Any:
        count = min(self._steps_per_execution, self._left)
        self._left -= count
        compiles = self._first.test_begins(self._left)
        logs = self._run(iterator, constant(count))
        if compiles:
            floats(logs)  # waits for the device
            self._first.evaluation.compiled()
        elif time.monotonic() >= self._next_beat:
            floats(logs)
            self._heartbeat.beat()
            self._next_beat = time.monotonic() + BEAT_SECONDS
        self._restoring.first_test_ran(functools.partial(self._trace, iterator, constant(count)))
        return logs

    def _execute_of_callback(self, iterator: Any) -> Any:
        """Run an execution of an evaluation that a user's callback has started, and return its logs.

        `iterator` has the callback's own data, and the number of remaining batches is unknown, so batches are drawn one
        by one.
        """
        logs = self._run_one(next(iterator))
        for data in itertools.islice(iterator, self._steps_per_execution - 1):
            logs = self._run_one(data)
        return logs
