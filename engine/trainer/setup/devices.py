"""The devices of the training: configured in the one order that TensorFlow accepts, then checked to exist.

All of this happens before the first device is touched. In a different order TensorFlow silently drops some settings,
and without a usable GPU it silently trains on the CPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import keras
import tensorflow as tf

from ...options import Options
from ..common.faults import TrainerError


@dataclass(frozen=True)
class Devices:
    """The logical devices that may compute, and their kind (`GPU` or `CPU`)."""

    kind: str
    names: tuple[str, ...]


def configure(options: Options) -> Devices:
    """Apply `device`, `precision.tf32` and `train.seed`/`deterministic`; raises TrainerError."""
    device = options.device
    if device.inter_op_threads != "auto":
        tf.config.threading.set_inter_op_parallelism_threads(device.inter_op_threads)
    if device.intra_op_threads != "auto":
        tf.config.threading.set_intra_op_parallelism_threads(device.intra_op_threads)
    tf.debugging.set_log_device_placement(device.log_placement)
    gpus = tf.config.list_physical_devices("GPU")
    _require_visible(options, len(gpus))
    if gpus:
        _configure_gpus(options, gpus)
    elif device.logical_devices > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration() for _ in range(device.logical_devices)]
        tf.config.set_logical_device_configuration(cpu, parts)
    tf.config.experimental.enable_tensor_float_32_execution(options.precision.tf32)
    if options.compile.xla is not True:
        tf.config.optimizer.set_jit(False)
    keras.utils.set_random_seed(options.train.seed)
    if options.train.deterministic:
        tf.config.experimental.enable_op_determinism()
    return _existing("GPU" if gpus else "CPU")


def _require_visible(options: Options, found: int) -> None:
    wanted = options.device.visible
    if isinstance(wanted, list) and found < len(wanted):
        raise TrainerError(
            "device",
            f"device.visible asks for {len(wanted)} GPU(s), but TensorFlow can use {found}",
            "set device.visible=all or none, or check the driver and CUDA libraries with gputui doctor",
        )


def _configure_gpus(options: Options, gpus: list[tf.config.PhysicalDevice]) -> None:
    device = options.device
    if not device.divided:
        for gpu in gpus:
            tf.config.experimental.set_memory_growth(gpu, device.grows)
        return
    for position, gpu in enumerate(gpus):
        limit = device.memory_limit_mb or _share_of_memory_mb(position, device.logical_devices)
        parts = [tf.config.LogicalDeviceConfiguration(memory_limit=limit)] * device.logical_devices
        tf.config.set_logical_device_configuration(gpu, parts)


def _share_of_memory_mb(position: int, partitions: int) -> int:
    """An equal part of 90 % of the GPU's memory; the rest is for CUDA's own contexts."""
    from ...telemetry.machine import visible_gpus  # asks NVML, only where the memory is divided

    gpus = visible_gpus()
    if position >= len(gpus) or gpus[position].memory_total_bytes is None:
        raise TrainerError(
            "device", "the GPU's memory size is not known", "set device.memory_limit_mb, the limit for each partition"
        )
    total = gpus[position].memory_total_bytes or 0
    return int(total * 0.9 / partitions / 1024**2)


def _existing(kind: str) -> Devices:
    """Initialize the devices, after which their configuration is fixed."""
    try:
        names = tuple(device.name for device in tf.config.list_logical_devices(kind))
    except (RuntimeError, ValueError, tf.errors.OpError) as fault:
        raise TrainerError("device", f"TensorFlow cannot open its devices: {fault}") from None
    return Devices(kind, names)
