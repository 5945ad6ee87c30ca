"""Builds a training: devices, precision, strategy, data, model, compile. No step is trained here."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass

import keras
import tensorflow as tf

from .. import plan
from ..options import Options
from ..plan import MULTI_WORKER
from ..units import counted
from .checkpoint.checkpoints import Checkpoints, ClusterCheckpoints
from .checkpoint.training_state import State
from .cluster import tensorflow_cluster
from .cluster.tensorflow_cluster import Joined
from .common import versions
from .common.stopping import StopSwitch
from .common.versions import DTYPE_POLICY, set_global_attribute
from .data import pipeline as pipelines
from .data.batches import Share
from .fit import micro_batches
from .fit.built_training import Built
from .fit.training_loop import TrainingLoop
from .measure.run_report import RunReport
from .setup import devices as device_setup
from .setup import models, optimizer, xla
from .setup.devices import Devices


@dataclass(frozen=True)
class Training:
    """A training with everything built, ready to run."""

    loop: TrainingLoop
    versions: dict[str, str]
    pid: int


def assemble(options: Options, report: RunReport, stop: StopSwitch) -> Training:
    """All options but those of the training loop are applied. Raises TrainerError."""
    joined = None
    if options.strategy.kind == MULTI_WORKER:
        options, joined = _join(options, report, stop)
    devices = device_setup.configure(options, joined)
    stop.listen_again()
    loop = build(options, devices, report, stop, joined)
    report.gpus = {gpu.uuid for gpu in devices.gpus if gpu.uuid}
    return Training(loop, versions.of_packages(), os.getpid())


def _join(options: Options, report: RunReport, stop: StopSwitch) -> tuple[Options, Joined]:
    options, joined = tensorflow_cluster.meet(
        options, report.run, lambda what: report.phase("configuring", what), stop.check
    )
    report.phase("configuring", f"connecting {counted(len(joined.hellos), 'workers')}")
    return options, joined


def build(
    options: Options, devices: Devices, report: RunReport, stop: StopSwitch, joined: Joined | None = None
) -> TrainingLoop:
    """Return the training loop, with data and model, on devices that are configured. Raises TrainerError."""
    if options.workload.entry is None or options.precision.policy != "float32":
        keras.mixed_precision.set_global_policy(options.precision.policy)
    else:
        set_global_attribute(DTYPE_POLICY, None)  # that of keras.config.floatx(), which the user's code may set
    distribution = device_setup.build_strategy(options, devices)
    if options.workload.entry is not None:
        return _own(options, devices, report, stop, distribution, joined)
    report.phase("building", "data")
    stop.check()
    replicas = distribution.num_replicas_in_sync if distribution else 1
    pipeline = pipelines.build(options, replicas, _share(joined))
    steps_per_epoch = plan.steps_per_epoch(options.train, pipeline.batches_per_pass)
    report.phase("building", "model")
    stop.check()
    with distribution.scope() if distribution else contextlib.nullcontext():
        model = models.build(options, pipeline.source.shape, pipeline.source.classes)
        compiler = xla.choose(options, model)
        model.compile(
            optimizer=optimizer.build(options, steps_per_epoch * options.train.epochs, steps_per_epoch, replicas),
            loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
            metrics=["accuracy"],
            jit_compile=compiler.compiles,
            steps_per_execution=options.compile.steps_per_execution,
        )
        _build_state(model)
    if joined is not None:
        tensorflow_cluster.draw_apart(model, joined)
    micro_batches.require_divisible(options, model, pipeline.replicas)
    checkpoints = _checkpoints(options, report, State(model), joined)
    return TrainingLoop(Built(options, model, pipeline, devices, report, checkpoints, stop, compiler, joined=joined))


def _own(
    options: Options,
    devices: Devices,
    report: RunReport,
    stop: StopSwitch,
    distribution: tf.distribute.Strategy | None,
    joined: Joined | None,
) -> TrainingLoop:
    """Return the loop of a user's own training (workload.entry). Raises UserError, or another TrainerError."""
    from .own import building  # only needed for a user's code

    stop.check()
    own = building.build(options, distribution, report, _share(joined))
    if joined is not None:
        tensorflow_cluster.draw_apart(own.model, joined)
    micro_batches.require_divisible(options, own.model, own.pipeline.replicas)
    checkpoints = _checkpoints(options, report, own.state(), joined)
    checkpoints.place_in_data = own.pipeline.place
    parts = own.model, own.pipeline, devices, report, checkpoints, stop, own.xla, own
    return TrainingLoop(Built(options, *parts, joined))


def _share(joined: Joined | None) -> Share | None:
    return Share(len(joined.cluster.workers), joined.cluster.index) if joined else None


def _checkpoints(options: Options, report: RunReport, state: State, joined: Joined | None) -> Checkpoints:
    folder, keep = report.run.file("checkpoints"), options.run.keep
    return ClusterCheckpoints(folder, keep, state, joined.exchange) if joined else Checkpoints(folder, keep, state)


def _build_state(model: keras.Model) -> None:
    """Create all variables now: in fit, Keras draws a batch for it, and traces the whole model once more."""
    target, (output,) = keras.KerasTensor((1,), "int32"), model.outputs
    predicted = keras.KerasTensor((1, *output.shape[1:]), output.dtype)
    for compiled in (model._compile_metrics, model._compile_loss):
        compiled.build(target, predicted)
    model._maybe_symbolic_build = lambda *_args, **_kwargs: None
    for _ in range(2):  # loss scaling adds its two variables each time, and checkpoints hold both pairs
        model.optimizer.build(model.trainable_variables)
