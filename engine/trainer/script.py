"""Runs a script as `python SCRIPT` does. Its fit, by default the first, is the training of the run, with the data as
Keras' fit would read them; what stands before and after it runs as it is.
"""

from __future__ import annotations

import contextlib
import importlib
import inspect
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import keras
import tensorflow as tf

from .. import plan
from ..options import Options
from ..runs import events
from ..runs.event_reading import read_events
from ..runs.events import EVENTS_FILE
from .assembly import loop_of, set_policy
from .common.logs import floats
from .common.stopping import StopSwitch
from .common.versions import ArrayDataAdapter, can_convert_arrays, replaced, train_validation_split
from .fit.training_loop import TrainingLoop
from .measure.run_report import RunReport
from .own import building
from .own.user_code import UserCode, UserError
from .setup import devices as device_setup

EPOCHS, BATCH, SPLIT = "train.epochs", "input.batch_size", "train.validation_split"
TOGETHER = "compile.steps_per_execution"
DEFAULT_BATCH = 32  # of Keras' fit
NO_FIT = "gputui trains what fit trains: a loop of your own belongs into train_step of a Keras model"
BACKEND = "leave it out, or run the script by python, with the callback Monitor to watch it"


class FitEnded(BaseException):
    """Leaves the script from its fit: no `except Exception` of the script may go on after a stop or a failure."""


def run(options: Options, report: RunReport, stop: StopSwitch, train: Callable[[TrainingLoop], None]) -> None:
    """Run the script to its end, or to the end of its fit in a run that measures. `train` carries out the training.
    Raises UserError, and what `train` raises.
    """
    devices = device_setup.configure(options)
    report.gpus = {gpu.uuid for gpu in devices.gpus if gpu.uuid}
    set_policy(options)
    distribution = device_setup.build_strategy(options, devices)
    stop.check()
    stock, parameters = keras.Model.fit, inspect.signature(keras.Model.fit)
    stock_evaluate = keras.Model.evaluate
    calls = 0
    trained: Any = None  # the model of the run, after its fit
    fault: BaseException | None = None

    with building.opened_code(options, distribution, report) as (code, settings):

        def evaluate(model: keras.Model, *positional: Any, **named: Any) -> Any:
            began = time.perf_counter()
            result = stock_evaluate(model, *positional, **named)
            if model is trained:  # the last evaluation after the fit gives the figures of the test
                report.tested(None, floats(model.get_metrics_result()), None, time.perf_counter() - began)
            return result

        def fit(model: keras.Model, *positional: Any, **named: Any) -> Any:
            nonlocal calls, trained, fault
            calls += 1
            bound = parameters.bind(model, *positional, **named)
            if calls != options.workload.fit:
                return _other(code, bound.arguments, stock, calls, watched=options.run.measure_seconds is None)
            try:
                if (backend := os.environ.get("KERAS_BACKEND", "tensorflow")) != "tensorflow":
                    raise UserError(
                        f"the script sets KERAS_BACKEND={backend}, and gputui trains with TensorFlow", BACKEND
                    )
                code.record(report.run)
                with replaced(keras.Model, fit=stock, evaluate=stock_evaluate), code.blamed():
                    fit_arguments = {**_defaults(parameters), **bound.arguments}
                    settled, given = _handed(options, fit_arguments, distribution)
                    together = model.steps_per_execution
                    own = building.made_of(code, given, settled, distribution, report, settings)
                    loop = loop_of(settled, devices, distribution, own, report, stop)
                    train(loop)
                    own.pipeline.train.fit_ended(loop.step)
            except BaseException as raised:
                fault = raised
                raise FitEnded from raised
            trained = model
            if options.run.measure_seconds is not None:
                raise FitEnded
            model.train_function = model.test_function = None
            model.steps_per_execution = together
            vars(model).pop("_maybe_symbolic_build", None)
            model.history = _history(model, report)
            steps = plan.steps_per_epoch(settled.train, own.pipeline.batches_per_pass)
            params = {"verbose": fit_arguments["verbose"], "epochs": settled.train.epochs, "steps": steps}
            model.history.set_params(params)
            report.phase("script")
            stop.at_once = True
            return model.history

        try:
            with replaced(keras.Model, fit=fit, evaluate=evaluate), code.blamed(script=True):
                code.run(_arguments(options.workload.argv, options.workload.args))
        except FitEnded:
            pass
        except BaseException:
            if fault is None:
                raise
    if fault is not None:
        raise fault
    if trained is None:
        named = f"{options.workload.entry}".rpartition("/")[2]
        what = f"{named} has ended without a call of fit" if not calls else f"{named} calls fit {calls} time(s)"
        raise UserError(what, NO_FIT if not calls else "workload.fit says which of them is the run")


def _defaults(parameters: inspect.Signature) -> dict[str, Any]:
    return {name: each.default for name, each in parameters.parameters.items() if each.default is not each.empty}


def _arguments(argv: list[str], args: Mapping[str, Any]) -> list[str]:
    """The script's arguments, those of `args` as `--NAME VALUE` in place of earlier ones. A true value is a flag."""
    words = list(argv)
    for name, value in args.items():
        flag = f"--{name}"
        places = [place for place, word in enumerate(words) if word.partition("=")[0] == flag]
        for place in reversed(places):
            has_value = "=" not in words[place] and words[place + 1 : place + 2] and words[place + 1][:2] != "--"
            del words[place : place + 1 + bool(has_value)]
        if isinstance(value, bool):
            words += [flag] if value else []
        elif isinstance(value, list):
            words += [flag, *map(str, value)]
        elif value is not None:
            words += [flag, str(value)]
    return words


def _other(code: UserCode, arguments: dict[str, Any], stock: Callable[..., Any], number: int, watched: bool) -> Any:
    """Another fit of the script, as it is. Unless the run only measures, Monitor makes it a run of its own."""
    callbacks = arguments.get("callbacks")
    if watched and not isinstance(callbacks, keras.callbacks.CallbackList):
        theirs = [callbacks] if isinstance(callbacks, keras.callbacks.Callback) else list(callbacks or ())
        with contextlib.suppress(ImportError):  # in a Python that lacks what Monitor needs (run.python)
            monitor = importlib.import_module(".monitor.callback", __package__)
            watcher = monitor.Monitor(f"{code.file.stem}: fit {number}")
            watcher.notifies = False  # the run of the script sends one
            arguments["callbacks"] = [*theirs, watcher]
    return stock(**arguments)


def _handed(
    options: Options, fit: Mapping[str, Any], distribution: tf.distribute.Strategy | None
) -> tuple[Options, dict[str, Any]]:
    """Return the options, with what is left to the script's fit taken from its arguments, and what a function of own
    code would return. Arrays become the very batches of Keras' fit.
    """
    model, left = fit["self"], options.workload.left_to_fit or ()
    replicas = distribution.num_replicas_in_sync if distribution else 1
    together = model.steps_per_execution
    arrays, steps = (fit["x"], fit["y"], fit["sample_weight"]), options.train.steps_per_epoch or fit["steps_per_epoch"]
    are_arrays = can_convert_arrays(arrays)
    whole = -(-len(tf.nest.flatten(fit["x"])[0]) // int(steps)) if are_arrays and steps else DEFAULT_BATCH
    changes: dict[str, Any] = {
        EPOCHS: int(fit["epochs"]),
        BATCH: int(fit["batch_size"] or whole),
        SPLIT: float(fit["validation_split"] or 0.0),
        TOGETHER: int(together) if isinstance(together, int) else 1,
    }
    changes = {key: value for key, value in changes.items() if key in left}
    if isinstance(fit["x"], keras.utils.PyDataset) and not fit["shuffle"]:
        changes["input.shuffle"] = "off"
    settled = options.with_values(changes | {"train.steps_per_epoch": int(steps) if steps else None})
    global_batch, kept_back = settled.input.batch_size * replicas, fit["validation_data"]
    if kept_back is None and settled.train.validation_split and are_arrays:
        arrays, kept_back = train_validation_split(arrays, settled.train.validation_split)
    given = {
        "model": model,
        "train": fit["x"],
        "callbacks": getattr(fit["callbacks"], "callbacks", fit["callbacks"]),
        "initial_epoch": int(fit["initial_epoch"]),
        "validation_freq": fit["validation_freq"],
        "validation_steps": fit["validation_steps"],
        "class_weight": fit["class_weight"],
    }
    if are_arrays:
        weights = given.pop("class_weight")
        given |= _batches("train", "samples", arrays, global_batch, class_weight=weights, shuffle=fit["shuffle"])
    if kept_back is not None:
        held_out = keras.utils.unpack_x_y_sample_weight(kept_back)
        given["validation"] = held_out[0]
        if can_convert_arrays(held_out):
            asked = fit["batch_size"] or BATCH not in left
            size = fit["validation_batch_size"] or (global_batch if asked else DEFAULT_BATCH)
            given |= _batches("validation", "validation_samples", held_out, size)
    return settled, given


def _batches(role: str, number: str, arrays: Any, batch_size: int, **how: Any) -> dict[str, Any]:
    """The batches that Keras' fit makes of arrays, with their number, which it knows as well."""
    x, y, weight = arrays
    adapter = ArrayDataAdapter(x, y, sample_weight=weight, batch_size=batch_size, **how)
    numbered = tf.data.experimental.assert_cardinality(adapter.num_batches)
    return {role: adapter.get_tf_dataset().apply(numbered), number: len(tf.nest.flatten(x)[0])}


def _history(model: keras.Model, report: RunReport) -> keras.callbacks.History:
    """What Keras' fit returns, with the epochs that were trained before the run was resumed."""
    history = keras.callbacks.History()
    history.set_model(model)
    history.epoch = []
    figures = set(model.get_metrics_result())

    def place(name: str) -> tuple[bool, str]:  # those of the model sorted, then what callbacks add
        own = name.removeprefix("val_") in figures
        return not own, name if own else ""

    epochs = {event.epoch: event for event in read_events(report.run.path, [EVENTS_FILE]).of(events.EpochEnd)}
    for number, event in sorted(epochs.items()):
        history.epoch.append(number - 1)
        for name in sorted(event.metrics, key=place):
            history.history.setdefault(name, []).append(event.metrics[name])
    return history
