"""Rules about devices, XLA and the strategy: what this machine, TensorFlow or XLA cannot do with these options.

Each function is a rule of all_checks.py. It yields no finding if the options fit.
"""

from __future__ import annotations

from collections.abc import Iterator

from .. import plan
from ..job import gpu_parts
from ..job.machine_gpus import Machine
from ..job.training_gpus import training_gpus, visible_gpus
from ..options import OPTIONS, Options, gpu_choice
from ..options.catalogue import About
from ..units import size
from . import gpu_checks
from .gpu_checks import on_cpu, replicas, share_a_gpu
from .option_finding import Finding, error


def allocator(options: Options, _machine: Machine) -> Iterator[Finding]:
    device = options.device
    if device.allocator == "default":
        return
    for key in device.divided:
        yield Finding(
            "error",
            ("device.allocator", key),
            "cuda_malloc_async supports neither a memory limit nor partitions of a GPU",
            "set device.allocator=default",
        )


def launching_threads(options: Options, _machine: Machine) -> Iterator[Finding]:
    device = options.device
    if device.gpu_thread_count != "auto" and device.gpu_thread_mode == "global":
        yield Finding(
            "warning",
            ("device.gpu_thread_count", "device.gpu_thread_mode"),
            "it has no effect with gpu_thread_mode=global, which has no threads of its own for GPUs",
            "set device.gpu_thread_mode=gpu_private, or device.gpu_thread_count=auto",
        )


def xla_flags(options: Options, _machine: Machine) -> Iterator[Finding]:
    if options.compile.xla_flags and options.compile.xla is False:
        yield Finding(
            "warning",
            ("compile.xla_flags", "compile.xla"),
            "XLA compiles nothing, so its flags have no effect",
            "set compile.xla=true, or remove compile.xla_flags",
        )


def memory_modes(options: Options, machine: Machine) -> Iterator[Finding]:
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


def partitions(options: Options, machine: Machine) -> Iterator[Finding]:
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


def per_gpu(options: Options, machine: Machine) -> Iterator[Finding]:
    """Yield an error if queued runs with these options cannot share one GPU."""
    count, key = options.run.per_gpu, "run.per_gpu"
    if count == 1 or on_cpu(options, machine):
        return
    choice = gpu_choice.parse(options.device.visible)
    if conflict := gpu_parts.conflict(options, on_cpu=False):
        other, why, change = conflict
        yield Finding("error", (key, other), why, f"set {change}, or {key}=1")
    elif choice is None or choice.shared or choice.count != 1:
        why = "the queue chooses the GPU that the runs share"
        yield Finding("error", (key, "device.visible"), why, f"set device.visible=free:1, or {key}=1")
    else:
        try:
            gpu_parts.of_each(options, machine, count)
        except gpu_parts.TooSmall as fault:
            yield error(key, str(fault), f"set {key}=1")


def gpu_only(options: Options, machine: Machine) -> Iterator[Finding]:
    if not on_cpu(options, machine):
        return
    for info in OPTIONS:
        about: About = info.about
        value = getattr(getattr(options, info.group), info.name)
        if about.gpu_only and value != info.default:
            yield Finding("note", (info.key,), "does nothing without a GPU", "training continues without it")


def xla(options: Options, machine: Machine) -> Iterator[Finding]:
    explicit = options.compile.xla is True
    smaller = _has_smaller_batch(options, machine)
    if smaller is not False if explicit else smaller and gpu_checks.compiled(options, machine):
        yield Finding(
            "warning" if explicit else "note",
            ("compile.xla", "input.drop_remainder"),
            "XLA compiles once more for the last, smaller batch of the epoch",
            "set input.drop_remainder=true",
        )


def _has_smaller_batch(options: Options, machine: Machine) -> bool | None:
    """Return True if some step of the training gets the last, smaller batch of an epoch.

    None if the number of samples is not known.
    """
    if options.input.drop_remainder or options.input.one_batch:
        return False
    samples = plan.training_samples(options.workload, options.train)
    if samples is None:
        return None
    count = replicas(options, machine)
    batch = plan.global_batch(options, count)
    batches = plan.batches_per_pass(samples, batch, count)
    steps = options.train.epochs * plan.steps_per_epoch(options.train, batches)
    return plan.smaller_last_batch(samples, batch, batches) and steps >= batches


def strategy(options: Options, machine: Machine) -> Iterator[Finding]:
    kind, devices = options.strategy.kind, options.strategy.devices
    visible = len(visible_gpus(options, machine))
    available, is_known = plan.devices(options, visible), visible or on_cpu(options, machine)
    if kind == "single" and devices != "all":
        yield Finding("warning", ("strategy.devices",), "single uses the first device only", "set strategy.kind")
    if kind != "single" and devices != "all":
        if len(set(devices)) != len(devices) or not devices:
            yield error("strategy.devices", "must name at least one device, each once", "set it to all")
        elif is_known and max(devices) >= available:
            yield error(
                "strategy.devices",
                f"there is no device {max(devices)}; there are {available}, counted from 0",
                "name fewer, or raise device.logical_devices",
            )
    if is_known and kind == "mirrored" and plan.replicas(options.strategy, available) < 2:
        other, change = "device.logical_devices", "device.logical_devices=2 to try the strategy"
        if devices != "all":
            other, change = "strategy.devices", "name several devices in strategy.devices"
        yield Finding(
            "warning",
            ("strategy.kind", other),
            "mirrored over one device is no faster than single",
            f"use strategy.kind=single, or {change}",
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
