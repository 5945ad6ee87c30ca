"""What a person asks of the training while it goes on. Each control has its effect after the step that its event names,
also in a run that is resumed from a checkpoint of before.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import keras
from keras.optimizers import schedules

from ...files.reading import bytes_of
from ...runs import Run, controls
from ...runs.controls import ControlRequest
from ...runs.event_reading import events_of
from ...runs.events import Control
from ..checkpoint.object_graph import optimizers
from ..setup.compiling import Schedule

# The schedules that can be scaled, and their arguments to which the rate is proportional.
_SCHEDULES = (
    Schedule, schedules.CosineDecay, schedules.CosineDecayRestarts, schedules.ExponentialDecay,
    schedules.InverseTimeDecay, schedules.PiecewiseConstantDecay, schedules.PolynomialDecay,
)  # fmt: skip
_RATES = ("learning_rate", "initial_learning_rate", "warmup_target", "end_learning_rate", "values")


class Controls:
    """The controls of a run. `done` has those whose effect the training has, with their factors of the rate. Before
    `next_step` none is due.
    """

    def __init__(self, run: Run, model: keras.Model) -> None:
        self._file, self._model = run.file(controls.FILE), model
        self.answered = {event.id: event for event in events_of(run.path, Control)} if self._file.exists() else {}
        self._size, self._requests, self.next_step = 0, list[ControlRequest](), math.inf
        self._schedule: Any = None  # that of the beginning
        self.done: dict[str, float | None] = {}
        self.ends_epoch = False

    def state(self) -> dict[str, Any]:
        return {"done": self.done, "ends_epoch": self.ends_epoch}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Set what `state` has returned at the checkpoint, which contains the rate unless it follows a schedule."""
        self.done, self.ends_epoch, self._size = dict(state.get("done", {})), state.get("ends_epoch", False), 0
        if any(self.done.values()):
            self._scale_schedule()
        self.read()

    def read(self) -> None:
        """Read what was asked since the last call: one look at the size of a file."""
        if (size := bytes_of(self._file) or 0) != self._size:
            asked = (each for each in controls.read(self._file) if each.id not in self.done)
            refused = {name for name, event in self.answered.items() if event.refused}
            self._size, self._requests = size, [each for each in asked if each.id not in refused]
            self.next_step = min(map(self._step_of, self._requests), default=math.inf)

    def due(self, step: int, answered: bool) -> list[ControlRequest]:
        """Return the controls that are due after this step, each once, or only those with an answer from before a
        resume; those that write a checkpoint are the last.
        """
        able = [each for each in self._requests if not answered or each.id in self.answered]
        due = sorted((each for each in able if self._step_of(each) <= step), key=self._step_of)
        self._requests = [each for each in self._requests if each not in due]
        self.next_step = min(map(self._step_of, self._requests), default=math.inf)
        return sorted(due, key=lambda each: each.control == "checkpoint")

    def _step_of(self, request: ControlRequest) -> int:
        answer = self.answered.get(request.id)
        return answer.step if answer else request.at_step or 0

    # ---- the learning rate ------------------------------------------------------------------------

    @property
    def _optimizer(self) -> Any:
        return getattr(self._model.optimizer, "inner_optimizer", self._model.optimizer)

    def not_scaled(self, callbacks: list[keras.callbacks.Callback]) -> str:
        """Return why the learning rate cannot be scaled; empty if it can."""
        rate = getattr(self._optimizer, "_learning_rate", None)
        if len({id(getattr(each, "inner_optimizer", each)) for each in optimizers(self._model)}) > 1:
            return "the model has several optimizers"
        if not isinstance(rate, keras.Variable) and type(rate) not in _SCHEDULES:
            return f"{type(rate).__name__} cannot be scaled"
        setters = (each for each in callbacks if isinstance(each, keras.callbacks.LearningRateScheduler))
        return next((f"{type(each).__name__} sets it at each epoch" for each in setters), "")

    def scale(self, request: ControlRequest) -> bool:
        """Multiply the learning rate by the factor. Return True if the step has to be traced again."""
        self.done[request.id] = factor = request.factor or 1.0
        if self._scale_schedule():
            return True
        self._optimizer.learning_rate = float(self._optimizer.learning_rate.numpy()) * factor
        return False

    def _scale_schedule(self) -> bool:
        schedule: Any = getattr(self._optimizer, "_learning_rate", None)
        if type(schedule) not in _SCHEDULES:
            return False
        self._schedule = self._schedule or schedule
        whole, config = math.prod(filter(None, self.done.values())), self._schedule.get_config()
        for name in _RATES:
            if (rate := config.get(name)) is not None:
                config[name] = [each * whole for each in rate] if isinstance(rate, list | tuple) else rate * whole
        self._optimizer.learning_rate = type(schedule).from_config(config)
        return True
