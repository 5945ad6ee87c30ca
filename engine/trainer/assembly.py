"""Puts a training together: devices, precision, strategy, data, model, compile; nothing has run when it returns."""

from __future__ import annotations

import contextlib
import os
import platform
from dataclasses import dataclass

import keras
import numpy as np
import tensorflow as tf

from .. import plan
from ..options import Options
from .checkpoint.checkpoints import Checkpoints
from .checkpoint.state import State
from .common.stopping import StopSwitch
from .data import pipeline as pipelines
from .fit.built import Built
from .fit.loop import TrainingLoop
from .measure.run_report import RunReport
from .setup import devices as device_setup
from .setup import models, optimizer, strategy, xla
from .setup.devices import Devices


@dataclass(frozen=True)
class Training:
    """Everything built, ready to run."""

    loop: TrainingLoop
    versions: dict[str, str]
    pid: int


def assemble(options: Options, report: RunReport, stop: StopSwitch) -> Training:
    """Apply every option but those of the loop; raises TrainerError."""
    devices = device_setup.configure(options)
    loop = build(options, devices, report, stop)
    versions = {"python": platform.python_version(), "tensorflow": tf.__version__, "keras": keras.__version__}
    report.gpus = {gpu.uuid for gpu in devices.gpus if gpu.uuid}
    return Training(loop, versions, os.getpid())


def build(options: Options, devices: Devices, report: RunReport, stop: StopSwitch) -> TrainingLoop:
    """Data, model and loop on devices that are configured already."""
    keras.mixed_precision.set_global_policy(options.precision.policy)
    distribution = strategy.build(options, devices)
    if options.workload.entry is not None:
        return _own(options, devices, report, stop, distribution)
    report.phase("building", "data")
    stop.check()
    pipeline = pipelines.build(options, distribution.num_replicas_in_sync if distribution else 1)
    steps_per_epoch = plan.steps_per_epoch(options.train, pipeline.batches_per_pass)
    report.phase("building", "model")
    stop.check()
    with distribution.scope() if distribution else contextlib.nullcontext():
        model = models.build(options, pipeline.source.shape, pipeline.source.classes)
        compiler = xla.choose(options, model)
        model.compile(
            optimizer=optimizer.build(options, steps_per_epoch * options.train.epochs, steps_per_epoch),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=compiler.compiles,
            steps_per_execution=options.compile.steps_per_execution,
        )
        _build_state(model)
    checkpoints = Checkpoints(report.run.file("checkpoints"), options.run.keep, State(model))
    return TrainingLoop(Built(options, model, pipeline, devices, report, checkpoints, stop, compiler))


def _own(
    options: Options, devices: Devices, report: RunReport, stop: StopSwitch, distribution: tf.distribute.Strategy | None
) -> TrainingLoop:
    """A user's own training (workload.entry) instead of a model and data of ours."""
    from .own import building  # only where the user brings code

    stop.check()
    own = building.build(options, distribution, report)
    checkpoints = Checkpoints(report.run.file("checkpoints"), options.run.keep, own.state())
    return TrainingLoop(Built(options, own.model, own.pipeline, devices, report, checkpoints, stop, own.xla, own))


def _build_state(model: keras.Model) -> None:
    """Create all variables now, metrics and optimizer included, so that a checkpoint can be restored into them.

    Otherwise Keras builds them in fit, with a batch drawn from the data for it under a strategy.
    """
    x = np.zeros((1, *model.input_shape[1:]), dtype=keras.backend.standardize_dtype(model.inputs[0].dtype))
    model._symbolic_build(data_batch=(x, np.zeros((1,), "int32")))
    model._maybe_symbolic_build = lambda *args, **kwargs: None
    model.optimizer.build(model.trainable_variables)
