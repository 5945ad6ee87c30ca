"""The evaluations of a training: the run's own after an epoch, and evaluations that a user's callbacks start."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable
from typing import Any

import keras

from ...system.heartbeat import TrainerHeartbeat
from ..common.epoch_callbacks import floats
from ..measure.first_times import FirstTimes
from . import train_function
from .restoring import Restoring
from .train_function import constant

BEAT_SECONDS = 5.0


class Evaluation:
    """Runs the model's test function, in executions of `steps_per_execution` steps.

    `check_stop` raises StopRequested if a stop was requested, which ends an evaluation before its remaining steps are
    done. Its argument is True in the run's own evaluation, and False in one that a callback has started. `first` and
    `restoring` are notified of the executions. `scale` is the factor for inputs that are bytes, None for other inputs.
    Each batch is computed in `micro_batches` parts.
    """

    def __init__(
        self,
        model: keras.Model,
        steps_per_execution: int,
        check_stop: Callable[[bool], object],
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
        self._run: train_function.Execution = function
        self._trace = function.get_concrete_function
        self._run_one = train_function.testing_one(model, micro_batches)
        self._left = 0  # steps of the run's own evaluation
        self.running: Any = None  # its iterator
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
        self.running = iterator if self._left else None
        self._check_stop(self._left > 0)
        return self._execute_own(iterator) if self._left else self._execute_of_callback(iterator)

    def _execute_own(self, iterator: Any) -> Any:
        count = min(self._steps_per_execution, self._left)
        self._left -= count
        compiles = self._first.test_begins(self._left)
        logs, _ = self._run(iterator, constant(count))
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
