"""What follows the last step of an epoch, evaluation and on_epoch_end, and what a resumed training makes up for."""

from __future__ import annotations

from typing import Any

from ..common.epoch_callbacks import EpochCallbacks, as_keras
from .built_training import Built
from .model_fit import FitData


class EpochEnd:
    """Knows the figures of the epoch's steps until its end is complete. `data` moves batches to the devices."""

    def __init__(self, built: Built, data: FitData) -> None:
        self._built, self._data = built, data
        self.step_logs: Any = {}  # of the last step
        self.unfinished: dict[str, Any] | None = None  # logs of an epoch whose evaluation or on_epoch_end is to follow

    def logs(self) -> dict[str, Any]:
        """Return the logs of the steps of the epoch up to now, as Keras' fit gives them to callbacks."""
        results = self._built.model.get_metrics_result()
        return as_keras(results if self.step_logs.keys() == results.keys() else self.step_logs)

    def due(self, ended: bool, within_epoch: bool) -> dict[str, Any] | None:
        """Return the logs of an epoch whose end has to follow, for a checkpoint. None if there is none.

        `ended`: a callback has ended the training. `within_epoch`: steps of the epoch are left.
        """
        return self.logs() if self.unfinished is None and ended and within_epoch else self.unfinished

    def make_up(self, callbacks: EpochCallbacks, epoch: int, logs: dict[str, Any]) -> None:
        """Evaluate the model if it is evaluated after the epoch (counted from 0), and call on_epoch_end. `logs` are
        those of its steps.
        """
        pipeline, own = self._built.pipeline, self._built.own
        is_evaluated = own is None or own.pipeline.fit.evaluates_after(epoch)
        self.unfinished = logs
        if pipeline.validation_batches and is_evaluated:
            batches, steps = self._data.validation(pipeline.validation()), pipeline.validation_batches
            values = self._built.model.evaluate(batches, steps=steps, callbacks=callbacks, return_dict=True, verbose=0)
            logs = {**logs, **{f"val_{name}": value for name, value in values.items()}}
        callbacks.on_epoch_end(epoch, logs)
