"""Watches a training between its executions: health of the model, progress, memory, times of the input stages."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from ..data.stages import StageMeter, StageWatch
from ..measure.health import Health
from ..measure.progress_reports import LossWindow, Pulses
from ..measure.run_figures import Moment
from ..measure.step_parts import StepParts
from .built_training import Built
from .model_fit import FitData


class Watch:
    """Watches the training at pulses, a few times a second: the host waits for the device, then figures are read and
    reported.

    Between pulses it costs little. `traces` returns the number of times that TensorFlow has traced the steps.
    """

    def __init__(
        self, built: Built, data: FitData, parts: StepParts, traces: Callable[[], int], steps_per_epoch: int
    ) -> None:
        options, pipeline, report = built.options, built.pipeline, built.report
        self._data, self._parts, self._traces, self._steps_per_epoch = data, parts, traces, steps_per_epoch
        self._speed = report.speed
        train = options.train
        self.health = Health(built.model, train.nan_check_steps, train.stop_on_nan, report, parts.not_python)
        self.health.own_optimizer = built.own is not None and "train.learning_rate" in built.own.inapplicable
        self.loss = LossWindow(built.model)
        each = train.schedule == "ramp"  # a range test needs the loss at each rate
        self._pulses = Pulses(report, built.devices.names, slows_down=True, always=each)
        functions = built.own.stage_functions() if built.own else {}
        self._stages = StageWatch(StageMeter(pipeline.stages(), pipeline.replicas_here, functions), report.writer.emit)
        self._metrics: dict[str, float] = {}  # metrics at the last pulse

    def first_step_done(self) -> None:
        self._pulses.first_step_done()

    def execution_ran(self, step: int, began: float, iterator: Any) -> None:
        self.health.check_by_steps(step)
        if self._pulses.due(began):
            self._pulse(step, iterator)

    def _pulse(self, step: int, iterator: Any) -> None:
        self._metrics = self._parts.wait_for_device()
        self._parts.pulse()
        self._speed.clock.device_was_waited_for()
        window_loss = self.loss.take()
        self.health.check_by_cost(step, self._metrics)
        self._pulses.pulse(self._moment(step, self._metrics, window_loss))
        self._stages.pulse(self._data.pipeline_iterator(iterator))

    def check_weights(self, step: int) -> None:
        """Check the weights after `step` steps now, with the metrics of the last pulse.

        If a weight is not finite, TrainerError or a warning follows (`Health.check`).
        """
        self.health.check(step, self._metrics)

    def epoch_ends(self, step: int, metrics: dict[str, float]) -> None:
        window_loss = self.loss.end_epoch()
        self.health.check(step, metrics)
        training = {name: value for name, value in metrics.items() if not name.startswith("val_")}
        self._pulses.out_of_turn(self._moment(step, training, window_loss))

    def training_ends(self, step: int, metrics: dict[str, float] | None = None) -> None:
        """Report the figures of the last step, `step`, before the training ends. If `metrics` is None, the metrics of
        the last pulse are reported.
        """
        self.finish()
        self._pulses.out_of_turn(self._moment(step, self._metrics if metrics is None else metrics))

    def finish(self) -> None:
        """Report the stages of the input if the training was too short to report them while it ran."""
        self._stages.finish()

    def _moment(self, step: int, metrics: dict[str, float], window_loss: float | None = None) -> Moment:
        return Moment(
            epoch=(step - 1) // self._steps_per_epoch + 1,
            step=step,
            spent=self._speed.clock.spent(time.perf_counter()),
            metrics=metrics,
            samples=self._parts.trained_samples(),
            traces=self._traces(),
            loss_scale=self.health.loss_scale(),
            skipped_steps=self.health.skipped_steps(step),
            window_loss=window_loss,
        )
