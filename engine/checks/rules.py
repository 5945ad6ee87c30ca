"""Checks options against each other and against this machine, before anything is launched.

Each rule is one function in one table: it gets the options and the machine, and yields findings that say what to
change. Nothing here starts a process or touches a device. The form and the command line show the same findings.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace

from .. import plan
from ..interpreter import installed, interpreter
from ..job.machine import Machine
from ..job.training_gpus import training_gpus, visible_gpus
from ..options import OPTIONS, Options
from ..options.field import About
from ..options.training import MOMENTUM
from ..presets import Preset, paths
from ..units import counted, size
from . import chips, cluster, gpus, job, learning_rate, multi_worker
from .data import _accumulation, _cast, _micro_batches
from .files import _entry, _entry_alone, _paths, _validation
from .finding import Finding as Finding
from .finding import error
from .gpus import on_cpu, share_a_gpu
from .hardware import _allocator, _launching_threads, _xla_flags
from .packages import packages
from .unkept import unkept

Rule = Callable[[Options, Machine], Iterator[Finding]]


def of_preset(preset: Preset, machine: Machine) -> list[Finding]:
    """All findings; for a relative path that does not exist, also whether it would be right from the current folder."""
    return [*(_with_remedy(finding, preset) for finding in check(preset.options, machine)), *unkept(preset)]


def on_screen(preset: Preset, machine: Machine) -> list[Finding]:
    """The same for a run that is started from a screen: which is no place to name the machines of several workers."""
    elsewhere = cluster.by_command(preset.options.strategy.kind)
    found = of_preset(preset, machine)
    return [*elsewhere, *(one for one in found if not elsewhere or one.options != (cluster.KEY,))]


def _with_remedy(finding: Finding, preset: Preset) -> Finding:
    for key in finding.options if finding.level == "error" else ():
        file, line = preset.origins.get(key, ("", None))
        if line is not None and (text := paths.typed_here(key, preset.options, file)):
            change = f"paths are relative to {os.path.basename(file)}; for the current folder give --set {key}={text}"
            return replace(finding, change=change)
    return finding


def check(options: Options, machine: Machine) -> list[Finding]:
    """All findings, errors first."""
    with installed.of(interpreter.chosen(options.run.python)):
        found = [finding for rule in RULES for finding in rule(options, machine)]
    return sorted(found, key=lambda finding: ("error", "warning", "note").index(finding.level))


def _memory_modes(options: Options, machine: Machine) -> Iterator[Finding]:
    device = options.device
    if device.memory_growth is not True or on_cpu(options, machine):
        return
    for key in device.divided:
        yield Finding(
            "error",
            ("device.memory_growth", key),
            "TensorFlow ignores memory growth when memory is limited or partitioned",
            "set device.memory_growth=auto",
        )


def _partitions(options: Options, machine: Machine) -> Iterator[Finding]:
    device = options.device
    for gpu in training_gpus(options, machine):
        total = gpu.memory_total_bytes or 0
        limit = (device.memory_limit_mb or 0) * 1024**2
        if total and limit * device.logical_devices > total:
            yield error(
                "device.memory_limit_mb",
                f"{device.logical_devices} x {size(limit)} is more than GPU {gpu.index} has ({size(total)})",
                f"give at most {total // 1024**2 * 9 // 10 // device.logical_devices}",
            )
    if device.logical_devices > 1 and on_cpu(options, machine):
        yield Finding(
            "note",
            ("device.logical_devices",),
            f"no GPU is used: the CPU is split into {device.logical_devices} logical devices, to try a strategy",
            "do not expect a speed-up",
        )


def _gpu_only(options: Options, machine: Machine) -> Iterator[Finding]:
    if not on_cpu(options, machine):
        return
    for info in OPTIONS:
        about: About = info.about
        value = getattr(getattr(options, info.group), info.name)
        if about.gpu_only and value != info.default:
            yield Finding("note", (info.key,), "does nothing without a GPU", "training continues without it")


def _xla(options: Options, machine: Machine) -> Iterator[Finding]:
    explicit = options.compile.xla is True
    if explicit and options.train.deterministic:
        yield Finding(
            "error",
            ("compile.xla", "train.deterministic"),
            "Keras turns XLA off when operations must be deterministic",
            "set one of them to false",
        )
    smaller = _has_smaller_batch(options, machine)
    if smaller is not False if explicit else smaller and chips.compiled(options, machine):
        yield Finding(
            "warning" if explicit else "note",
            ("compile.xla", "input.drop_remainder"),
            "XLA compiles once more for the last, smaller batch of the epoch",
            "set input.drop_remainder=true",
        )


def _has_smaller_batch(options: Options, machine: Machine) -> bool | None:
    """Whether a step gets a last, smaller batch; None where the number of samples is not known."""
    if options.input.drop_remainder or options.input.one_batch:
        return False
    samples = plan.training_samples(options.workload, options.train)
    if samples is None:
        return None
    count = gpus.replicas(options, machine)
    batch = options.input.batch_size * count
    batches = plan.batches_per_pass(samples, batch, count)
    steps = options.train.epochs * plan.steps_per_epoch(options.train, batches)
    return plan.smaller_last_batch(samples, batch, batches) and steps >= batches


def _strategy(options: Options, machine: Machine) -> Iterator[Finding]:
    kind, devices = options.strategy.kind, options.strategy.devices
    visible = len(visible_gpus(options, machine))
    available, known = plan.devices(options, visible), visible or on_cpu(options, machine)
    if kind == "single" and devices != "all":
        yield Finding("warning", ("strategy.devices",), "single uses the first device only", "set strategy.kind")
    if kind != "single" and devices != "all":
        if len(set(devices)) != len(devices) or not devices:
            yield error("strategy.devices", "must name at least one device, each once", "set it to all")
        elif known and max(devices) >= available:
            yield error(
                "strategy.devices",
                f"there is no device {max(devices)}; there are {available}, counted from 0",
                "name fewer, or raise device.logical_devices",
            )
    if known and kind == "mirrored" and plan.replicas(options.strategy, available) < 2:
        yield Finding(
            "warning",
            ("strategy.kind", "device.logical_devices"),
            "mirrored over one device is no faster than single",
            "use strategy.kind=single, or device.logical_devices=2 to try the strategy",
        )
    if options.strategy.communication == "nccl":
        yield from _nccl(options, machine)
    if options.strategy.communication != "auto" and kind not in plan.SEVERAL_REPLICAS:
        yield Finding(
            "warning",
            ("strategy.communication",),
            f"strategy {kind} exchanges no gradients, so this has no effect",
            "set it to auto",
        )


def _nccl(options: Options, machine: Machine) -> Iterator[Finding]:
    if on_cpu(options, machine):
        yield error("strategy.communication", "nccl works between GPUs only", "set it to auto")
    elif options.strategy.kind == "mirrored" and share_a_gpu(options, machine):
        yield Finding(
            "error",
            ("strategy.communication", "device.logical_devices"),
            "NCCL does not support two replicas on one GPU",
            "set strategy.communication=auto, or device.logical_devices=1",
        )


def _determinism(options: Options, _machine: Machine) -> Iterator[Finding]:
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


def _clipping(options: Options, _machine: Machine) -> Iterator[Finding]:
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


def _optimizer(options: Options, _machine: Machine) -> Iterator[Finding]:
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
    if train.hold_steps and train.schedule == "constant":
        yield Finding(
            "warning",
            ("train.hold_steps", "train.schedule"),
            "holding the learning rate does nothing where it is constant",
            "set train.schedule, or remove train.hold_steps",
        )


def _without_effect(options: Options, _machine: Machine) -> Iterator[Finding]:
    """Options that have no effect because of the value of another option."""
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
    if options.input.parallel_reads != "off" and workload.source[0] != "tfrecord":
        yield Finding(
            "warning",
            ("input.parallel_reads", "workload.data"),
            f"{workload.source[0]} data is not read from TFRecord files",
            "remove input.parallel_reads; input.parallel_calls applies to other data",
        )


def _steps(options: Options, _machine: Machine) -> Iterator[Finding]:
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


def _shuffle(options: Options, _machine: Machine) -> Iterator[Finding]:
    wanted = options.input.shuffle
    if isinstance(wanted, int) and wanted < options.input.batch_size:
        yield Finding(
            "warning",
            ("input.shuffle", "input.batch_size"),
            f"a shuffle buffer of {wanted} is smaller than one batch",
            "make it several batches, or the whole data set",
        )


def _one_batch(options: Options, _machine: Machine) -> Iterator[Finding]:
    if options.input.one_batch:
        yield Finding(
            "warning",
            ("input.one_batch",),
            "nothing useful is learnt from one batch again and again",
            "set input.one_batch=false, unless you only measure the speed",
        )


def _data_fits_model(options: Options, _machine: Machine) -> Iterator[Finding]:
    workload, source = options.workload, options.workload.source[0]
    images = workload.model in ("cnn", "separable_cnn", "resnet50")
    if workload.entry is None and source == "synthetic" and images and len(workload.shape) != 3:
        yield Finding(
            "error",
            ("workload.model", "workload.shape"),
            f"{workload.model} needs images, but the shape is {workload.shape}",
            "give [height, width, channels], or use workload.model=mlp",
        )


RULES: tuple[Rule, ...] = (
    packages,
    cluster.others,
    cluster.together,
    cluster.on_one_node,
    job.time_limit,
    job.stop_signal,
    gpus.none_shown,
    gpus.missing_gpus,
    gpus.allocation,
    gpus.usable,
    gpus.too_old,
    gpus.alike,
    _memory_modes,
    _partitions,
    _gpu_only,
    chips.precision,
    chips.build,
    chips.driver,
    chips.cudnn,
    chips.xla_on_the_chip,
    _xla,
    _strategy,
    multi_worker.devices,
    multi_worker.communication,
    _determinism,
    _clipping,
    _accumulation,
    _micro_batches,
    _allocator,
    _launching_threads,
    _xla_flags,
    _cast,
    _optimizer,
    learning_rate.scaling,
    _validation,
    _without_effect,
    _steps,
    _shuffle,
    _one_batch,
    _entry_alone,
    _entry,
    _paths,
    _data_fits_model,
)
