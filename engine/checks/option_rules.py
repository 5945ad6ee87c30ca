"""Rules about the training, its data and its model: options that contradict each other or have no effect."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from .. import plan, runs
from ..figures import at
from ..finding import Finding, error, note, on_options, warning
from ..job import slurm
from ..job.machine_gpus import Machine, visible_gpus
from ..options import OPTIONS, Options, training, watch_rules
from ..options.input import NEEDS_FLOATS, too_large_batch
from ..options.run import BEST_MODELS
from ..options.workload import BYTE_ENCODINGS, STRIDES
from ..presets import Preset
from ..runs.launched_with import options_of
from ..runs.titles import preset_of
from ..system.identity import Place
from ..units import amount, clock, counted, estimate
from .gpu_checks import on_cpu, replicas

_RATE_SCALING = "train.learning_rate_scaling"
_SCHEDULE = "train.schedule"
LONG_SECONDS = 600.0
MANY_EPOCHS = 100  # much for a training whose time is not known
LOOKED_AT = 20  # runs, the newest first
CHECKPOINT = "run.checkpoint"
# Groups of options, and single ones, on which the time of an epoch does not depend.
_WITHOUT_EFFECT = (
    "run.", "train.epochs", "train.seed", "train.learning_rate", "train.warmup_steps", "train.schedule",
    "train.early_stop", "train.plateau",
)  # fmt: skip


def gradients(options: Options, _machine: Machine) -> Iterator[Finding]:
    """Accumulated, of parts of batches, or clipped."""
    together, key = options.train.gradient_accumulation, "train.gradient_accumulation"
    if together > 1 and options.strategy.kind in plan.SEVERAL_REPLICAS:
        yield error((key, "strategy.kind"), "Keras cannot accumulate gradients over several replicas",
                    f"set {key}=1; each replica adds its own batch to the global batch anyway")  # fmt: skip
    steps = plan.training_steps(options)
    if together > 1 and steps is not None and steps % together:
        yield on_options("warning" if steps < together else "note", key,
                         f"the gradients of the last {steps % together} of {steps} steps are never applied",
                         f"choose a divisor of {steps}, or another train.epochs or train.steps_per_epoch")  # fmt: skip
    parts, key = options.train.micro_batches, "train.micro_batches"
    asked = [key] if parts > 1 else []
    asked += ["run.on_oom"] if options.run.on_oom == "accumulate" else []
    if asked and options.strategy.kind in plan.SEVERAL_REPLICAS and options.compile.xla is True:
        yield error((*asked, "compile.xla"), "XLA cannot compile parts of batches over several replicas",
                    "set compile.xla=false")  # fmt: skip
    if parts > options.input.batch_size and options.workload.entry is None:
        yield warning((key, "input.batch_size"),
                      f"a batch of {options.input.batch_size} cannot have {parts} parts: each sample is one",
                      f"set {key} to at most {options.input.batch_size}")  # fmt: skip
    if options.run.on_oom == "accumulate" and options.run.checkpoint == "off":
        yield note(("run.on_oom", "run.checkpoint"),
                   "without checkpoints a training whose memory runs out begins again",
                   "set run.checkpoint=epoch, unless the training is short")  # fmt: skip
    if options.run.give_way and options.run.checkpoint == "off":
        yield error(("run.give_way", "run.checkpoint"),
                    "a run without checkpoints would begin again each time it gives way",
                    "set run.checkpoint=epoch, or a number of steps")  # fmt: skip
    names = [n for n in ("clip_norm", "clip_value", "global_clip_norm") if getattr(options.train, n) is not None]
    if len(names) > 1:
        keys = tuple(f"train.{name}" for name in names)
        yield error(keys, "Keras accepts only one kind of clipping", "keep one of them")
    elif names and options.strategy.kind in plan.SEVERAL_REPLICAS:
        yield note((f"train.{names[0]}", "strategy.kind"),
                   "Keras 3 clips the gradients of each replica, and sums them up afterwards",
                   "divide it by the number of replicas to get the limit of one device")  # fmt: skip


def rules(options: Options, _machine: Machine) -> Iterator[Finding]:
    """Of run.watch."""
    for rule in watch_rules.parsed(options.run.watch):
        if rule.action in watch_rules.NEEDS_CHECKPOINT and options.run.checkpoint == "off":
            yield error((watch_rules.KEY, "run.checkpoint"), f"{rule.text}: without checkpoints the run cannot go on",
                        "set run.checkpoint=epoch, or a number of steps")  # fmt: skip
        if rule.figure not in watch_rules.UNITS and (lack := lacks_figure(options, training.figure_of(rule.figure))):
            yield error(watch_rules.KEY, f"{rule.text}: {lack[0]}", f"name one of {', '.join(lack[1])}")


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
        yield warning(("input.cast", key), f"device does nothing here: {why}", "set input.cast=host")


def determinism(options: Options, _machine: Machine) -> Iterator[Finding]:
    if options.compile.xla is True and options.train.deterministic:
        yield error(("compile.xla", "train.deterministic"), "Keras turns XLA off when operations must be deterministic",
                    "set one of them to false")  # fmt: skip
    if options.train.deterministic and not options.input.deterministic_order:
        yield error(("train.deterministic", "input.deterministic_order"),
                    "samples in changing order cannot give the same result twice",
                    "set input.deterministic_order=true")  # fmt: skip
    if options.run.checkpoint != "off" and not options.input.deterministic_order:
        yield warning(("run.checkpoint", "input.deterministic_order"),
                      "a run is not resumed exactly when the order of samples changes",
                      "set input.deterministic_order=true")  # fmt: skip


def optimizer(options: Options, _machine: Machine) -> Iterator[Finding]:
    train = options.train
    if train.momentum and train.optimizer not in training.MOMENTUM:
        yield error(("train.momentum", "train.optimizer"), f"{train.optimizer} takes no momentum",
                    f"set train.optimizer to {' or '.join(training.MOMENTUM)}, or train.momentum=0")  # fmt: skip
    if train.nesterov and (train.optimizer != "sgd" or not train.momentum):
        yield error(("train.nesterov", "train.optimizer", "train.momentum"),
                    "Nesterov momentum is for sgd with momentum",
                    "set train.optimizer=sgd and train.momentum=0.9, or train.nesterov=false")  # fmt: skip
    if train.hold_steps and train.schedule in training.BY_NO_STEPS:
        yield warning(("train.hold_steps", "train.schedule"),
                      f"holding the learning rate does nothing with train.schedule={train.schedule}",
                      "set another train.schedule, or remove train.hold_steps")  # fmt: skip


def misfits(options: Options, _machine: Machine) -> Iterator[Finding]:
    """Options and data that are not for the model."""
    workload = options.workload
    if workload.entry is not None:
        return
    if workload.blocks is not None and workload.model != "transformer":
        yield error(("workload.blocks", "workload.model"), f"{workload.model} has a fixed depth",
                    "remove workload.blocks, or set workload.model=transformer")  # fmt: skip
    convolutions = ("kernel_size", "stride", "separable")
    given = [f"workload.{name}" for name in convolutions if getattr(workload, name) not in (None, "auto")]
    for key in given if workload.model not in STRIDES else ():
        yield error((key, "workload.model"),
                    f"{key.partition('.')[2]} does nothing here: {workload.model} has no convolutions",
                    f"remove {key}, or set workload.model=cnn")  # fmt: skip
    if options.input.parallel_reads != "off" and workload.source[0] != "tfrecord":
        yield warning(("input.parallel_reads", "workload.data"),
                      f"{workload.source[0]} data is not read from TFRecord files",
                      "remove input.parallel_reads; input.parallel_calls applies to other data")  # fmt: skip
    images = workload.model in ("cnn", "separable_cnn", "resnet50")
    if workload.source[0] == "synthetic" and images and len(workload.shape) != 3:
        yield error(("workload.model", "workload.shape"),
                    f"{workload.model} needs images, but the shape is {workload.shape}",
                    "give [height, width, channels], or use workload.model=mlp")  # fmt: skip


def steps(options: Options, machine: Machine) -> Iterator[Finding]:
    """A batch that is larger than data whose number is not known here is reported by the trainer (session.py)."""
    per_epoch, together = options.train.steps_per_epoch, options.compile.steps_per_execution
    if per_epoch is not None and together > per_epoch:
        yield warning(("compile.steps_per_execution", "train.steps_per_epoch"),
                      f"an execution of {together} steps is cut to the epoch's {per_epoch}",
                      f"set compile.steps_per_execution to at most {per_epoch}")  # fmt: skip
    elif per_epoch is not None and per_epoch % together:
        yield note(("compile.steps_per_execution", "train.steps_per_epoch"),
            f"the last execution of each epoch has {counted(per_epoch % together, 'steps')} instead of {together}",
            "choose a divisor of the steps of an epoch to avoid that")  # fmt: skip
    buffer, samples = options.input.shuffle, plan.training_samples(options.workload, options.train)
    if isinstance(buffer, int) and buffer < min(options.input.batch_size, samples or options.input.batch_size):
        yield warning(("input.shuffle", "input.batch_size"), f"a shuffle buffer of {buffer} is smaller than one batch",
                      "make it several batches, or the whole data set")  # fmt: skip
    count = replicas(options, machine)
    batch = plan.global_batch(options, count)
    if samples is not None and batch > samples and not options.input.drop_remainder:
        yield warning("input.batch_size", *too_large_batch(batch, samples, count))
    if options.input.one_batch:
        yield warning("input.one_batch", "nothing useful is learnt from one batch again and again",
                      "set input.one_batch=false, unless you only measure the speed")  # fmt: skip


def scaling(options: Options, machine: Machine) -> Iterator[Finding]:
    """Without scaling nothing is reported: the learning rate may have been chosen for this global batch."""
    train, count = options.train, replicas(options, machine)
    factor = plan.rate_factor(train.learning_rate_scaling, count)
    rate = amount(train.learning_rate * factor)
    here = options.strategy.kind in ("single", "one_device", "mirrored")  # replicas of other machines are not known
    is_known = here and (bool(visible_gpus(options, machine)) or on_cpu(options, machine))
    if train.learning_rate_scaling != "none" and count == 1 and is_known:
        what = f"no effect with one replica: the learning rate stays {rate}"
        yield note(_RATE_SCALING, what, "it takes effect if strategy.kind trains several replicas")
    elif factor > 1 and not train.warmup_steps:
        yield note((_RATE_SCALING, "train.warmup_steps"),
            f"{count} replicas begin with {amount(factor)} times the learning rate, {rate}, in their first step",
            "let it rise in train.warmup_steps; Goyal et al. take the steps of 5 epochs")  # fmt: skip


def watched(options: Options, _machine: Machine) -> Iterator[Finding]:
    """The figures of a user's own code are known only when it trains."""
    train = options.train
    for figure, named_by, key, value, part in (
        (train.stops_by, training.EARLY_STOP, training.EARLY_STOP, training.OFF, training.EARLY_STOPPING),
        (options.run.keeps_best_by, training.KEEP_BEST, training.KEEP_BEST, training.OFF, BEST_MODELS),
        (train.reduces_rate_by, training.PLATEAU_FIGURE, _SCHEDULE, train.schedule, training.ON_PLATEAU),
    ):
        if figure is None:  # options of this part of the group have no effect while `key` has this `value`
            group = key.partition(".")[0]
            instead = f"set {key}={training.PLATEAU}" if key == _SCHEDULE else f"set {key}=val_loss or another figure"
            for info in OPTIONS:
                is_part = info.group == group and info.about.part == part and info.key != key
                if is_part and options.value(info.key) != info.default:
                    what = f"{info.name} has no effect while {key} is {value}"
                    yield error((info.key, key), what, f"{instead}, or remove {info.key}")
        elif lack := lacks_figure(options, figure):
            why, others = lack
            if figure.name not in training.OF_OWN_MODELS:
                yield error(named_by, why, f"set it to one of {', '.join(others)}")
            else:
                instead = f"set train.validation_split, or {named_by}={others[0]}"
                yield error((named_by, "train.validation_split"), why, instead)
    if train.stops_by is not None and train.early_stop_patience >= train.epochs:
        patience = f"after {train.early_stop_patience} without improvement"
        yield warning(("train.early_stop_patience", "train.epochs"),
                      f"a training of {train.epochs} epochs cannot end early {patience}",
                      "raise train.epochs, or lower train.early_stop_patience")  # fmt: skip
    if train.reduces_rate_by is not None and train.warmup_steps:
        yield error((_SCHEDULE, "train.warmup_steps"),
                    f"{training.PLATEAU} follows a figure, and cannot follow a warm-up by steps",
                    "set train.warmup_steps=0, or another train.schedule")  # fmt: skip
    if train.reduces_rate_by is not None and train.decay_steps is not None:
        yield warning((_SCHEDULE, "train.decay_steps"), f"{training.PLATEAU} does not follow the steps",
                      "remove train.decay_steps")  # fmt: skip


def lacks_figure(options: Options, figure: training.WatchedFigure) -> tuple[str, tuple[str, ...]] | None:
    """Return why gputui's own model lacks the figure, and which figures are there; None for own code."""
    if options.workload.entry is not None:
        return None
    if figure.name not in training.OF_OWN_MODELS:
        return f"the training has no figure {figure.name}", training.OF_OWN_MODELS
    if figure.of_validation and not options.train.validates:
        return f"{figure.name} is a figure of the validation, which is off", (figure.name.removeprefix("val_"),)
    return None


def unkept(preset: Preset) -> Iterator[Finding]:
    """No checkpoints, and 10 minutes or more could be lost; of an unknown time, 100 epochs."""
    options = preset.options
    if options.run.checkpoint != "off":
        return
    epochs, seconds = options.train.epochs, expected_seconds(preset)
    limit = options.run.max_minutes
    if seconds is not None and isinstance(limit, int | float):
        seconds = min(seconds, limit * 60)
    if seconds < LONG_SECONDS if seconds is not None else epochs < MANY_EPOCHS:
        return
    about = f", about {estimate(seconds)}" if seconds is not None else ""
    message = f"{counted(epochs, 'epochs')}{about}, no checkpoint: a run that ends early cannot be resumed"
    yield warning(CHECKPOINT, message, f"{CHECKPOINT}=epoch writes one after each epoch")


def expected_seconds(preset: Preset) -> float | None:
    """By one of the 20 newest runs here with the same options, but for those without effect on an epoch."""
    values = preset.options.values()
    mine, here = _what_matters(values), Place.here().host
    for run in runs.all_runs()[:LOOKED_AT]:
        if preset_of(run) != preset.name or run.status.get("host", here) != here:
            continue
        result = run.whole_result  # over all launches, as the epochs are counted
        whole, start, epochs = (at(result, key) for key in ("seconds", "startup_seconds", "epochs"))
        if whole and epochs and _what_matters(options_of(run)) == mine:
            start = start or 0.0
            return start + max(0.0, whole - start) / epochs * preset.options.train.epochs
    return None


def _what_matters(values: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in values.items() if not key.startswith(_WITHOUT_EFFECT)}


def job_end(options: Options, machine: Machine) -> Iterator[Finding]:
    """The effect of run.max_minutes=auto on this machine, and what is left of a run that its job ends."""
    key, job, by = "run.max_minutes", machine.job_id, []
    ends, usable = machine.job_ends, machine.job_ends.usable_seconds if machine.job_ends else None
    if options.run.max_minutes == "auto":
        if not job:
            message, change = "outside of a Slurm job auto is no limit", "for a limit here give minutes"
        elif ends is None or usable is None:
            message = f"squeue is asked for the end of the Slurm job {job}"
            change = f"the run ends itself {slurm.MARGIN}"
        else:
            message = f"the Slurm job {job} ends in {clock(max(0.0, ends.seconds or 0.0))}"
            change = f"the run ends itself after {clock(usable)}"
        yield note(key, message, change)
        by += [key] if job else []
    by += ["run.stop_signal"] if options.run.stop_signal != "none" else []
    for key in by if options.run.checkpoint == "off" else ():
        message = "without checkpoints a run that is ended with its job cannot be resumed"
        yield warning((key, "run.checkpoint"), message, "set run.checkpoint=epoch, or every so many steps")
