"""Compiles a user's model as the options say; one that is already compiled is only made to run its steps that way."""

from __future__ import annotations

import keras

from ... import plan
from ...options import Options
from ..checkpoint.object_graph import optimizers
from ..measure.run_report import RunReport
from ..setup import optimizer, xla
from .model_checks import custom_step
from .pipeline import OwnPipeline
from .returned import Returned
from .user_code import UserError

_TOGETHER = "compile.steps_per_execution"


def compile_model(parts: Returned, options: Options, pipeline: OwnPipeline) -> xla.Xla:
    """Compile the model; returns whether XLA compiles its steps, and why. A model that is already compiled keeps its
    optimizer, loss and metrics; with `compile.xla: auto` also its jit_compile. Otherwise the options decide how its
    steps run.
    """
    model = parts.model
    compiler = xla.of_compiled(options, model) if model.compiled else xla.choose(options, model)
    if compiler.compiles and pipeline.replicas > 1 and custom_step(model):
        raise UserError(
            f"{type(model).__name__} has a train_step of its own, which XLA cannot compile over several replicas: "
            "it assigns variables",
            "set compile.xla=false, or strategy.kind=single",
        )
    if model.compiled:
        model.jit_compile = compiler.compiles
        model.steps_per_execution = options.compile.steps_per_execution
    else:
        _compile(parts, options, pipeline, compiler.compiles)
    if pipeline.replicas > 1:
        _refuse_accumulation(model)
    return compiler


def _refuse_accumulation(model: keras.Model) -> None:
    """Raise UserError if an optimizer accumulates gradients: Keras decides in each replica separately whether gradients
    are applied, and a strategy does not allow this.
    """
    for own in optimizers(model):
        if (steps := own.gradient_accumulation_steps) and steps > 1:
            raise UserError(
                f"{type(own).__name__}(gradient_accumulation_steps={steps}) of your code: Keras cannot accumulate "
                "gradients over several replicas",
                "leave it out: the replicas' batches add up anyway; a batch too large for the memory is computed in "
                "parts with train.micro_batches",
            )


def _compile(parts: Returned, options: Options, pipeline: OwnPipeline, jit_compile: bool) -> None:
    per_epoch = plan.steps_per_epoch(options.train, pipeline.batches_per_pass)
    replicas = parts.model.distribute_strategy.num_replicas_in_sync
    chosen = parts.optimizer or optimizer.build(options, per_epoch * options.train.epochs, per_epoch, replicas)
    parts.model.compile(
        optimizer=chosen,
        loss=parts.loss,
        metrics=parts.metrics,
        jit_compile=jit_compile,
        steps_per_execution=options.compile.steps_per_execution,
    )
    if parts.optimizer is None and optimizer.scheduled(options.train):
        # A model that the user's callbacks save must load in plain Keras, which does not have gputui's schedule.
        parts.model.get_compile_config = lambda: None


def warn_of_overridden(model: keras.Model, options: Options, report: RunReport) -> None:
    """Warn about settings in the user's compile that have no effect, although the option that overrides them was not
    set.
    """
    theirs = getattr(getattr(model, "_compile_config", None), "config", {})
    key, value, asked = _TOGETHER, options.compile.steps_per_execution, theirs.get("steps_per_execution")
    if asked not in (None, value) and value == type(options.compile)().steps_per_execution:
        message = f"steps_per_execution={asked} of your compile does nothing here: {key} is {value}"
        report.warn("overridden", message, f"set {key}={asked}", key)
    if options.compile.xla == "auto" and theirs.get("jit_compile") and (chip := xla.aborting_chip()):
        report.warn(
            "overridden", f"jit_compile=True of your compiled model does nothing here: {chip}", option="compile.xla"
        )
