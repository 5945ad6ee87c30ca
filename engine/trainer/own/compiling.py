"""Compiles a user's model as the options say; one that is already compiled is only made to run its steps that way."""

from __future__ import annotations

import keras

from ... import plan
from ...options import Options
from ..measure.run_report import RunReport
from ..setup import optimizer
from .pipeline import OwnPipeline
from .returned import Returned
from .user_code import UserError

OVERRIDDEN = {
    "jit_compile": "xla",
    "steps_per_execution": "steps_per_execution",
}  # arguments of model.compile that the options decide


def compile_model(found: Returned, options: Options, pipeline: OwnPipeline) -> None:
    """Compile the model. One that is compiled keeps its optimizer, loss and metrics; the options decide how its steps
    run.
    """
    model, xla, together = found.model, options.compile.xla, options.compile.steps_per_execution
    if xla and pipeline.replicas > 1 and custom_step(model):
        raise UserError(
            f"{type(model).__name__} has a train_step of its own, which XLA cannot compile over several replicas: "
            "it assigns variables",
            "set compile.xla=false, or strategy.kind=single",
        )
    if not model.compiled:
        _compile(found, options, pipeline)
        return
    model.jit_compile = xla
    model.steps_per_execution = together


def _compile(found: Returned, options: Options, pipeline: OwnPipeline) -> None:
    per_epoch = plan.steps_per_epoch(options.train, pipeline.batches_per_pass)
    chosen = found.optimizer or optimizer.build(options, per_epoch * options.train.epochs, per_epoch)
    found.model.compile(
        optimizer=chosen,
        loss=found.loss,
        metrics=found.metrics,
        jit_compile=options.compile.xla,
        steps_per_execution=options.compile.steps_per_execution,
    )
    if found.optimizer is None and optimizer.scheduled(options.train):
        # What the user's callbacks save must load in plain Keras, which does not know gputui's schedule.
        found.model.get_compile_config = lambda: None


def custom_step(model: keras.Model) -> bool:
    return type(model).train_step is not keras.Model.train_step


def tell_overridden(model: keras.Model, options: Options, report: RunReport) -> None:
    """Warn about settings in the user's compile that differ from an option which nobody has set."""
    theirs = getattr(getattr(model, "_compile_config", None), "config", {})
    unset = type(options.compile)()
    for name, option in OVERRIDDEN.items():
        value, asked = getattr(options.compile, option), theirs.get(name)
        if asked not in (None, "auto", value) and value == getattr(unset, option):
            key, told, wanted = f"compile.{option}", str(value).lower(), str(asked).lower()
            message = f"{name}={asked} of your compile does nothing here: {key} is {told}"
            report.warn("overridden", message, f"set {key}={wanted}", key)
