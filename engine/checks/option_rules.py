"""Rules about the training, its data and its model: options that contradict each other or have no effect.

Each function is a rule of all_checks.py. It yields no finding if the options fit.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import plan
from ..job.machine_gpus import Machine
from ..job.training_gpus import visible_gpus
from ..options import Options
from ..options.input import NEEDS_FLOATS, too_large_batch
from ..options.training import BY_NO_STEPS, MOMENTUM
from ..options.workload import BYTE_ENCODINGS, STRIDES
from ..units import amount, counted
from .gpu_checks import on_cpu, replicas
from .option_finding import Finding


def accumulation(options: Options, _machine: Machine) -> Iterator[Finding]:
    together, key = options.train.gradient_accumulation, "train.gradient_accumulation"
    if together > 1 and options.strategy.kind in plan.SEVERAL_REPLICAS:
        yield Finding(
            "error",
            (key, "strategy.kind"),
            "Keras cannot accumulate gradients over several replicas",
            f"set {key}=1; each replica adds its own batch to the global batch anyway",
        )
    steps = plan.training_steps(options)
    if together > 1 and steps is not None and steps % together:
        yield Finding(
            "warning" if steps < together else "note",
            (key,),
            f"the gradients of the last {steps % together} of {steps} steps are never applied",
            f"choose a divisor of {steps}, or another train.epochs or train.steps_per_epoch",
        )


def micro_batches(options: Options, _machine: Machine) -> Iterator[Finding]:
    parts, key = options.train.micro_batches, "train.micro_batches"
    asked = [key] if parts > 1 else []
    asked += ["run.on_oom"] if options.run.on_oom == "accumulate" else []
    if asked and options.strategy.kind in plan.SEVERAL_REPLICAS and options.compile.xla is True:
        yield Finding(
            "error",
            (*asked, "compile.xla"),
            "XLA cannot compile parts of batches over several replicas",
            "set compile.xla=false",
        )
    if parts > options.input.batch_size and options.workload.entry is None:
        yield Finding(
            "warning",
            (key, "input.batch_size"),
            f"a batch of {options.input.batch_size} cannot have {parts} parts: each sample is one",
            f"set {key} to at most {options.input.batch_size}",
        )
    if options.run.on_oom == "accumulate" and options.run.checkpoint == "off":
        yield Finding(
            "note",
            ("run.on_oom", "run.checkpoint"),
            "without checkpoints a training whose memory runs out begins again",
            "set run.checkpoint=epoch, unless the training is short",
        )


def give_way(options: Options, _machine: Machine) -> Iterator[Finding]:
    if options.run.give_way and options.run.checkpoint == "off":
        yield Finding(
            "error",
            ("run.give_way", "run.checkpoint"),
            "a run without checkpoints would begin again each time it gives way",
            "set run.checkpoint=epoch, or a number of steps",
        )


def cast(options: Options, _machine: Machine) -> Iterator[Finding]:
    workload, why = options.workload, ""
    if options.input.cast != "device" or workload.entry is not None:
        return
    kind = workload.source[0]
    if kind == "synthetic" or (kind == "tfrecord" and workload.tfrecord_encoding not in BYTE_ENCODINGS):
        why, key = f"the {kind} data are not bytes (uint8)", "workload.data"
    elif workload.model == "transformer":
        why, key = "the transformer's tokens are created on the host", "workload.model"
    elif not options.input.only_moves:
        why, key = NEEDS_FLOATS, "input.augment"
    if why:
        yield Finding("warning", ("input.cast", key), f"device does nothing here: {why}", "set input.cast=host")


def determinism(options: Options, _machine: Machine) -> Iterator[Finding]:
    if options.compile.xla is True and options.train.deterministic:
        yield Finding(
            "error",
            ("compile.xla", "train.deterministic"),
            "Keras turns XLA off when operations must be deterministic",
            "set one of them to false",
        )
    if options.train.deterministic and not options.input.deterministic_order:
        yield Finding(
            "error",
            ("train.deterministic", "input.deterministic_order"),
            "samples in changing order cannot give the same result twice",
            "set input.deterministic_order=true",
        )
    if options.run.checkpoint != "off" and not options.input.deterministic_order:
        yield Finding(
            "warning",
            ("run.checkpoint", "input.deterministic_order"),
            "a run is not resumed exactly when the order of samples changes",
            "set input.deterministic_order=true",
        )


def clipping(options: Options, _machine: Machine) -> Iterator[Finding]:
    names = [n for n in ("clip_norm", "clip_value", "global_clip_norm") if getattr(options.train, n) is not None]
    if len(names) > 1:
        yield Finding(
            "error", tuple(f"train.{n}" for n in names), "Keras accepts only one kind of clipping", "keep one of them"
        )
    elif names and options.strategy.kind in plan.SEVERAL_REPLICAS:
        yield Finding(
            "note",
            (f"train.{names[0]}", "strategy.kind"),
            "Keras 3 clips the gradients of each replica, and sums them up afterwards",
            "divide it by the number of replicas to get the limit of one device",
        )


def optimizer(options: Options, _machine: Machine) -> Iterator[Finding]:
    train = options.train
    if train.momentum and train.optimizer not in MOMENTUM:
        yield Finding(
            "error",
            ("train.momentum", "train.optimizer"),
            f"{train.optimizer} takes no momentum",
            f"set train.optimizer to {' or '.join(MOMENTUM)}, or train.momentum=0",
        )
    if train.nesterov and (train.optimizer != "sgd" or not train.momentum):
        yield Finding(
            "error",
            ("train.nesterov", "train.optimizer", "train.momentum"),
            "Nesterov momentum is for sgd with momentum",
            "set train.optimizer=sgd and train.momentum=0.9, or train.nesterov=false",
        )
    if train.hold_steps and train.schedule in BY_NO_STEPS:
        yield Finding(
            "warning",
            ("train.hold_steps", "train.schedule"),
            f"holding the learning rate does nothing with train.schedule={train.schedule}",
            "set another train.schedule, or remove train.hold_steps",
        )


def without_effect(options: Options, _machine: Machine) -> Iterator[Finding]:
    """Yield findings about options that have no effect because of the value of another option."""
    workload = options.workload
    if workload.entry is not None:
        return
    if workload.blocks is not None and workload.model != "transformer":
        yield Finding(
            "error",
            ("workload.blocks", "workload.model"),
            f"{workload.model} has a fixed depth",
            "remove workload.blocks, or set workload.model=transformer",
        )
    convolutions = ("kernel_size", "stride", "separable")
    given = [f"workload.{name}" for name in convolutions if getattr(workload, name) not in (None, "auto")]
    for key in given if workload.model not in STRIDES else ():
        yield Finding(
            "error",
            (key, "workload.model"),
            f"{key.partition('.')[2]} does nothing here: {workload.model} has no convolutions",
            f"remove {key}, or set workload.model=cnn",
        )
    if options.input.parallel_reads != "off" and workload.source[0] != "tfrecord":
        yield Finding(
            "warning",
            ("input.parallel_reads", "workload.data"),
            f"{workload.source[0]} data is not read from TFRecord files",
            "remove input.parallel_reads; input.parallel_calls applies to other data",
        )


def steps(options: Options, _machine: Machine) -> Iterator[Finding]:
    per_epoch, together = options.train.steps_per_epoch, options.compile.steps_per_execution
    if per_epoch is not None and together > per_epoch:
        yield Finding(
            "warning",
            ("compile.steps_per_execution", "train.steps_per_epoch"),
            f"an execution of {together} steps is cut to the epoch's {per_epoch}",
            f"set compile.steps_per_execution to at most {per_epoch}",
        )
    elif per_epoch is not None and per_epoch % together:
        yield Finding(
            "note",
            ("compile.steps_per_execution", "train.steps_per_epoch"),
            f"the last execution of each epoch has {counted(per_epoch % together, 'steps')} instead of {together}",
            "choose a divisor of the steps of an epoch to avoid that",
        )


def shuffle(options: Options, _machine: Machine) -> Iterator[Finding]:
    buffer, samples = options.input.shuffle, plan.training_samples(options.workload, options.train)
    if isinstance(buffer, int) and buffer < min(options.input.batch_size, samples or options.input.batch_size):
        yield Finding(
            "warning",
            ("input.shuffle", "input.batch_size"),
            f"a shuffle buffer of {buffer} is smaller than one batch",
            "make it several batches, or the whole data set",
        )


def large_batch(options: Options, machine: Machine) -> Iterator[Finding]:
    """Yield a warning if a batch is larger than the named data. Of other data the trainer says it (session.py)."""
    samples, count = plan.training_samples(options.workload, options.train), replicas(options, machine)
    batch = plan.global_batch(options, count)
    if samples is not None and batch > samples and not options.input.drop_remainder:
        message, change = too_large_batch(batch, samples, count)
        yield Finding("warning", ("input.batch_size",), message, change)


def one_batch(options: Options, _machine: Machine) -> Iterator[Finding]:
    if options.input.one_batch:
        yield Finding(
            "warning",
            ("input.one_batch",),
            "nothing useful is learnt from one batch again and again",
            "set input.one_batch=false, unless you only measure the speed",
        )


def data_fits_model(options: Options, _machine: Machine) -> Iterator[Finding]:
    workload, source = options.workload, options.workload.source[0]
    images = workload.model in ("cnn", "separable_cnn", "resnet50")
    if workload.entry is None and source == "synthetic" and images and len(workload.shape) != 3:
        yield Finding(
            "error",
            ("workload.model", "workload.shape"),
            f"{workload.model} needs images, but the shape is {workload.shape}",
            "give [height, width, channels], or use workload.model=mlp",
        )


# ---- the learning rate ---------------------------------------------------------------------------


_RATE_SCALING = "train.learning_rate_scaling"


def scaling(options: Options, machine: Machine) -> Iterator[Finding]:
    """Yield notes about the scaled learning rate, only if train.learning_rate_scaling is not `none`.

    Without scaling there is no note, as the learning rate may have been chosen for this global batch.
    """
    train, count = options.train, replicas(options, machine)
    factor = plan.rate_factor(train.learning_rate_scaling, count)
    rate = amount(train.learning_rate * factor)
    here = options.strategy.kind in ("single", "one_device", "mirrored")  # replicas of other machines are not known
    is_known = here and (bool(visible_gpus(options, machine)) or on_cpu(options, machine))
    if train.learning_rate_scaling != "none" and count == 1 and is_known:
        what = f"no effect with one replica: the learning rate stays {rate}"
        yield Finding("note", (_RATE_SCALING,), what, "it takes effect if strategy.kind trains several replicas")
    elif factor > 1 and not train.warmup_steps:
        yield Finding(
            "note",
            (_RATE_SCALING, "train.warmup_steps"),
            f"{count} replicas begin with {amount(factor)} times the learning rate, {rate}, in their first step",
            "let it rise in train.warmup_steps; Goyal et al. take the steps of 5 epochs",
        )
