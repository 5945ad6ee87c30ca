"""Builds a training: devices, precision, strategy, data, model, compile. No step is trained here."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

import keras
import tensorflow as tf

from .. import plan
from ..options import Options
from ..plan import MULTI_WORKER
from ..units import counted
from .checkpoint.checkpoints import Checkpoints
from .checkpoint.training_state import State
from .cluster import rendezvous
from .cluster.rendezvous import Joined
from .common.stopping import StopSwitch
from .common.versions import DTYPE_POLICY, set_global_attribute
from .data import pipeline as pipelines
from .data.batches import Share
from .data.pipeline import Samples
from .fit import micro_batches
from .fit.epoch_rules import Built
from .fit.training_loop import TrainingLoop
from .measure.run_report import RunReport
from .setup import devices as device_setup
from .setup import models
from .setup import recompute as recomputing
from .setup.compiling import optimizer_of, xla_of
from .setup.devices import Devices

if TYPE_CHECKING:
    from .own.building import Own


def assemble(options: Options, report: RunReport, stop: StopSwitch) -> TrainingLoop:
    """Return the loop with everything built, ready to run. Raises TrainerError."""
    joined = None
    if options.strategy.kind == MULTI_WORKER:
        options, joined = rendezvous.meet(
            options, report.run, lambda what: report.phase("configuring", what), stop.check
        )
        report.phase("configuring", f"connecting {counted(len(joined.hellos), 'workers')}")
    devices = device_setup.configure(options, joined)
    stop.listen_again()
    loop = build(options, devices, report, stop, joined)
    report.gpus = {gpu.uuid for gpu in devices.gpus if gpu.uuid}
    return loop


def build(
    options: Options, devices: Devices, report: RunReport, stop: StopSwitch, joined: Joined | None = None
) -> TrainingLoop:
    """Return the training loop, with data and model, on devices that are configured. Raises TrainerError."""
    set_policy(options)
    distribution = device_setup.build_strategy(options, devices)
    share = Share(len(joined.cluster.workers), joined.cluster.index) if joined else None
    own: Own | None = None
    if options.workload.entry is not None:
        from .own import building  # only needed for a user's code

        stop.check()
        own = building.build(options, distribution, report, share)
    return loop_of(options, devices, distribution, own, report, stop, joined)


def set_policy(options: Options) -> None:
    """Set Keras' precision policy, before the user's code."""
    if options.workload.entry is None or options.precision.policy != "float32":
        keras.mixed_precision.set_global_policy(options.precision.policy)
    else:
        set_global_attribute(DTYPE_POLICY, None)  # that of keras.config.floatx(), which the user's code may set


def loop_of(
    options: Options,
    devices: Devices,
    distribution: tf.distribute.Strategy | None,
    own: Own | None,
    report: RunReport,
    stop: StopSwitch,
    joined: Joined | None = None,
) -> TrainingLoop:
    """Return the loop of the user's `own` training, or else with gputui's data and model. Raises TrainerError."""
    if own is not None:
        pipeline, model, compiler, state = own.pipeline, own.model, own.xla, own.state()
    else:
        share = Share(len(joined.cluster.workers), joined.cluster.index) if joined else None
        report.phase("building", "data")
        stop.check()
        replicas = distribution.num_replicas_in_sync if distribution else 1
        pipeline = pipelines.build(options, replicas, share)
        assert isinstance(pipeline.train, Samples)
        per_epoch = plan.steps_per_epoch(options.train, pipeline.batches_per_pass)
        report.phase("building", "model")
        stop.check()
        with distribution.scope() if distribution else contextlib.nullcontext():
            model = models.build(options, pipeline.train.source.shape, pipeline.train.source.classes)
            compiler = xla_of(options, model)
            model.compile(
                optimizer=optimizer_of(options, per_epoch * options.train.epochs, per_epoch, replicas),
                loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                metrics=["accuracy"],
                jit_compile=compiler.compiles,
                steps_per_execution=options.compile.steps_per_execution,
            )
            # Create all variables now: in fit, Keras draws a batch for it, and traces the whole model once more.
            target, (output,) = keras.KerasTensor((1,), "int32"), model.outputs
            predicted = keras.KerasTensor((1, *output.shape[1:]), output.dtype)
            for compiled in (model._compile_metrics, model._compile_loss):
                compiled.build(target, predicted)
            model._maybe_symbolic_build = lambda *_args, **_kwargs: None
            for _ in range(2):  # loss scaling adds its two variables each time, and checkpoints hold both pairs
                model.optimizer.build(model.trainable_variables)
        state = State(model)
    if joined is not None:  # layers such as dropout draw other numbers on each worker, which would drop the same units
        seeds = (variable.value for variable in model.non_trainable_variables if "seed_generator" in variable.path)
        for part in (part for value in seeds for part in getattr(value, "values", [value])):
            seed, drawn = part.numpy()
            part.assign([(int(seed) + rendezvous.APART * joined.cluster.index) % 2**32, int(drawn)])
    if options.compile.recompute:
        recomputing.apply(model)
    micro_batches.require_divisible(options, model, pipeline.replicas)
    folder, exchange = report.run.file("checkpoints"), joined.exchange if joined else None
    checkpoints = Checkpoints(folder, options.run.keep, state, exchange)
    checkpoints.place_in_data = pipeline.place
    return TrainingLoop(Built(options, model, pipeline, devices, report, checkpoints, stop, compiler, own, joined))
