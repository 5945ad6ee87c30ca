"""Rules about options that TensorFlow and XLA read from the environment before they start."""

from __future__ import annotations

from collections.abc import Iterator

from ..job.machine import Machine
from ..options import Options
from .finding import Finding


def _allocator(options: Options, _machine: Machine) -> Iterator[Finding]:
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


def _launching_threads(options: Options, _machine: Machine) -> Iterator[Finding]:
    device = options.device
    if device.gpu_thread_count != "auto" and device.gpu_thread_mode == "global":
        yield Finding(
            "warning",
            ("device.gpu_thread_count", "device.gpu_thread_mode"),
            "it has no effect with gpu_thread_mode=global, which has no threads of its own for GPUs",
            "set device.gpu_thread_mode=gpu_private, or device.gpu_thread_count=auto",
        )


def _xla_flags(options: Options, _machine: Machine) -> Iterator[Finding]:
    if options.compile.xla_flags and options.compile.xla is False:
        yield Finding(
            "warning",
            ("compile.xla_flags", "compile.xla"),
            "XLA compiles nothing, so its flags have no effect",
            "set compile.xla=true, or remove compile.xla_flags",
        )
