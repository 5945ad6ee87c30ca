"""Calls `model.fit` with its batches, also the fit of a user's class, which gets what a user would pass. Its call of
Keras' fit is intercepted: its batches are copied to the devices, and its callbacks are called as well.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import keras
import tensorflow as tf

from ...options import Options
from ...plan import MULTI_WORKER
from ..common.training_errors import TrainerError
from ..common.versions import replaced
from ..data.finishing import batches_ahead, through_an_iterator
from ..measure.run_report import RunReport
from ..setup.devices import Devices

if TYPE_CHECKING:
    from ..own.building import Own

NO_FIT_HINT = "call super().fit(...) in it; a loop of your own belongs into train_step, or is watched with Monitor"
COMPILED = (
    "compile cannot be called while the model trains, here as in Keras' fit: train in two runs, or in build with a fit "
    "of its own for the first phase"
)
MADE = (
    "make_train_function cannot be called while the model trains, as it replaces gputui's training step: train in two "
    "runs, or in build with a fit of its own for the first phase"
)
_WARNED = ("epochs", "initial_epoch", "steps_per_epoch", "validation_steps", "validation_freq")


def refuse_limits() -> None:
    """Raise TrainerError if Keras is set to end each fit after some epochs or steps. Older versions have no limits."""
    for name, option in (("epochs", "train.epochs"), ("steps_per_epoch", "train.steps_per_epoch")):
        if limit := getattr(keras.config, f"max_{name}", lambda: None)():
            what = f"KERAS_MAX_{name.upper()} or keras.config.set_max_{name} sets {limit}"
            raise TrainerError("options", f"{what}: Keras' fit would end before the run", f"unset it, and set {option}")


class FitData:
    """Moves the batches of a fit to the devices, and knows the iterator that runs the training pipeline."""

    def __init__(
        self, options: Options, strategy: tf.distribute.Strategy, devices: Devices, on_demand: bool = False
    ) -> None:
        self._strategy = strategy if options.strategy.kind != "single" else None
        self._on_demand = on_demand
        self._devices, self._input = devices, options.input
        self._of_several = options.strategy.kind == MULTI_WORKER
        self.spec: Any = None  # the types of a batch for one device
        of_step = devices.names[:1] if self._strategy is None else strategy.extended.worker_devices
        self.gpus: Sequence[str] = of_step if devices.kind == "GPU" else ()  # those that get a batch in each step
        self._ours: Any = None
        self.iterator: Any = None  # of the last execution

    def training(self, batches: tf.data.Dataset) -> Any:
        self.spec = batches.element_spec
        if self._strategy is None and not self._ahead(batches):
            return batches
        handed_on, self._ours = through_an_iterator(batches)
        return self._on_devices(handed_on, self._ahead(batches))

    def validation(self, batches: tf.data.Dataset) -> Any:
        # Keras keeps the iterator, and its batches take memory of the GPU while the model trains: at most one.
        if self._of_several:  # else TensorFlow asks all machines before each batch whether there is one
            batches = batches.apply(tf.data.experimental.assert_cardinality(tf.data.INFINITE_CARDINALITY))
        return self._on_devices(batches, min(1, self._ahead(batches)))

    def pipeline_iterator(self, of_fit: Any) -> Any:
        """Return the iterator that runs the training pipeline: its own if there is one, else that of Keras' fit."""
        # Kept until the process ends: dropping an iterator waits for TensorFlow's tuning thread, which may sleep for up
        # to a minute (19 and 49 s were measured).
        self.iterator = of_fit
        return of_fit if self._ours is None else self._ours

    def _ahead(self, batches: tf.data.Dataset) -> int:
        return 0 if self._on_demand else batches_ahead(self._input, self._devices.kind, batches.element_spec)

    def _on_devices(self, batches: tf.data.Dataset, ahead: int) -> Any:
        if self._strategy is None:
            to_device = tf.data.experimental.prefetch_to_device(self._devices.names[0], ahead)
            return batches.apply(to_device) if ahead else batches  # no further stage may follow
        # Without GPUs one batch is prefetched, the strategy's default, or with input.prefetch off none.
        if self._devices.kind != "GPU":
            ahead = int(self._input.prefetch != "off")
        settings = tf.distribute.InputOptions(
            experimental_fetch_to_device=ahead > 0, experimental_per_replica_buffer_size=ahead
        )
        return self._strategy.distribute_datasets_from_function(lambda _context: batches, settings)


class ModelFit:
    """Calls the fit of the model with the batches of `data`, as often as a training needs it. `call_too` gets the
    callbacks that a fit of the user's class hands over to Keras' fit.
    """

    def __init__(
        self, model: keras.Model, own: Own | None, data: FitData, report: RunReport, call_too: Callable[[Any], None]
    ) -> None:
        self._model, self._own, self._data, self._report, self._call_too = model, own, data, report, call_too
        self._created = False  # the variables of a model with a fit of its own

    def __call__(
        self, batches: tf.data.Dataset, validation: tf.data.Dataset | None, callbacks: Any, **settings: Any
    ) -> None:
        model, own, stock, calls = self._model, self._own, keras.Model.fit, 0
        if own is None:
            model.fit(**self._on_devices(batches, validation), callbacks=callbacks, **settings)
            return
        if type(model).fit is stock or own.in_fit:
            with self._compiled_once():
                stock(model, **self._on_devices(batches, validation), callbacks=callbacks, **settings)
            return

        def fit(of: keras.Model, *arguments: Any, **named: Any) -> Any:
            nonlocal calls
            if of is not model:
                return stock(of, *arguments, **named)
            calls += 1
            if calls > 1:
                raise RuntimeError("Keras' fit is called a second time, and a run trains in one: make two runs of it")
            given = inspect.signature(stock).bind(of, *arguments, **named).arguments
            x = given.get("x")
            if not isinstance(x, tf.data.Dataset):
                raise TypeError(f"Keras' fit gets {type(x).__name__} in place of the tf.data.Dataset that fit gets")
            if changed := [name for name in _WARNED if name in given and given[name] != settings[name]]:
                what = f"the fit of {type(model).__name__} sets {', '.join(changed)}: the options decide instead"
                self._report.warn("fit_overridden", what)
            self._call_too(getattr(given.get("callbacks"), "callbacks", given.get("callbacks")) or ())
            if not self._created:
                own.create_variables(x.element_spec)
                self._created = True
            handed = {**given, **self._on_devices(x, given.get("validation_data")), **settings, "callbacks": callbacks}
            return stock(**handed)

        with self._compiled_once(), replaced(keras.Model, fit=fit):
            _call(model.fit, batches, {"validation_data": validation, "callbacks": list(own.callbacks), **settings})
        if not calls:
            what = f"the fit of {type(model).__name__} does not call Keras' fit, within which gputui trains"
            raise TrainerError("user_code", what, NO_FIT_HINT)

    def _on_devices(self, batches: tf.data.Dataset, validation: Any) -> dict[str, Any]:
        if isinstance(validation, tf.data.Dataset):
            validation = self._data.validation(validation)
        return {"x": self._data.training(batches), "validation_data": validation}

    def _compiled_once(self) -> contextlib.AbstractContextManager[None]:
        """Let a call of the model's compile or make_train_function raise: it would remove the training step."""
        compile_, make = keras.Model.compile, keras.Model.make_train_function

        def compiled(of: keras.Model, *arguments: Any, **named: Any) -> Any:
            if of is self._model:
                raise RuntimeError(COMPILED)
            return compile_(of, *arguments, **named)

        def made(of: keras.Model, force: bool = False) -> Any:
            if of is self._model and (force or of.train_function is None):
                raise RuntimeError(MADE)
            return make(of, force)

        return replaced(keras.Model, compile=compiled, make_train_function=made)


def _call(function: Callable[..., Any], data: Any, arguments: dict[str, Any]) -> None:
    # The first argument may have any name. What the function does not take is added when it calls Keras' fit.
    parameters = inspect.signature(function).parameters
    first = next(iter(parameters.values()), None)
    by_name = first is None or first.kind in (first.KEYWORD_ONLY, first.VAR_KEYWORD)
    if by_name:
        arguments = {"x": data, **arguments}
    if not any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
        arguments = {name: value for name, value in arguments.items() if name in parameters}
    function(*(() if by_name else (data,)), **arguments)


def more_to_come(model: keras.Model) -> contextlib.AbstractContextManager[None]:
    """Keras does not replace weights by their moving average before another fit of the same training."""
    finalize = model.optimizer.finalize_variable_values
    kept = {"finalize_variable_values": lambda weights: finalize(weights) if model.stop_training else None}
    return replaced(model.optimizer, **kept)
