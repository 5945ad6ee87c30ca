"""The devices of the training: configured in the one order that TensorFlow accepts, then checked to exist.

All of this happens before the first device is touched. In a different order TensorFlow silently drops some settings,
and without a usable GPU it silently trains on the CPU. Only GPUs that train are opened: TensorFlow creates a context on
every GPU that is visible to it, and without memory growth takes nearly all of its memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import keras
import tensorflow as tf

from ...options import Options
from ...telemetry.gpus import Machine
from ..cluster.joining import Joined
from ..common.faults import TrainerError
from . import machine, threads, training_gpus, workers
from .library_log import LibraryLog
from .no_gpu import require_gpus
from .training_gpus import TrainingGpu
from .usable_gpus import usable


@dataclass(frozen=True)
class Devices:
    """The logical devices that TensorFlow has opened, and their kind (`GPU` or `CPU`).

    `positions` are the positions of the devices if all visible GPUs were opened, and `available` is the number of those
    devices; None where all are open. `gpus` are the GPUs that train, `uncertain` is a warning about their identity.
    `shown` is the number of GPUs that the driver shows to this process, `seen` the number that TensorFlow sees, and
    `lost` are the names of those that the driver has lost;
    `unknown` says why the driver cannot be asked although there may be GPUs. `connected` is the strategy over several
    machines, which has opened the devices.
    """

    kind: str
    names: tuple[str, ...]
    positions: tuple[int, ...] | None = None
    available: int | None = None
    gpus: tuple[TrainingGpu, ...] = ()
    uncertain: str = ""
    shown: int = 0
    seen: int = 0
    lost: tuple[str, ...] = ()
    unknown: str = ""
    connected: tf.distribute.Strategy | None = None

    @property
    def by_position(self) -> dict[int, str]:
        """Names by the positions that `strategy.devices` counts."""
        positions = range(len(self.names)) if self.positions is None else self.positions
        return dict(zip(positions, self.names, strict=True))


def configure(options: Options, joined: Joined | None = None) -> Devices:
    """Apply `device`, `precision.tf32` and `train.seed`/`deterministic`, and connect the workers of several machines;
    raises TrainerError.
    """
    log = LibraryLog()
    _set_threads(options)
    here, gpus = machine.read(), tf.config.list_physical_devices("GPU")
    able = usable(gpus, here)
    require_gpus(options, here, len(gpus), able, log)
    opened = _to_open(options, able)
    if opened:
        tf.config.set_visible_devices([gpus[place] for place in opened], "GPU")
        _configure_memory(options, {place: gpus[place] for place in opened}, here)
    else:
        _divide_cpu(options.device.logical_devices)
    _set_numbers(options)
    connected = workers.connect(options, joined) if joined else None
    kind = "GPU" if opened else "CPU"
    names = _open(kind, joined)
    if joined is not None:
        workers.require_alike(joined, kind, len(names))
    lost = tuple(f"GPU {gpu.index}" for gpu in here.shown if gpu.lost)
    shown = len(here.shown)
    devices = Devices(kind, names, connected=connected, shown=shown, seen=len(gpus), lost=lost, unknown=here.missing)
    return _placed(devices, options, [able.index(place) for place in opened], len(able), here, log)


def _set_threads(options: Options) -> None:
    device = options.device
    threads.configure(device)
    tf.debugging.set_log_device_placement(device.log_placement)


def _divide_cpu(partitions: int) -> None:
    if partitions > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        parts = [tf.config.LogicalDeviceConfiguration() for _ in range(partitions)]
        tf.config.set_logical_device_configuration(cpu, parts)


def _set_numbers(options: Options) -> None:
    """How numbers are rounded and drawn."""
    tf.config.experimental.enable_tensor_float_32_execution(options.precision.tf32)
    if options.compile.xla is not True:
        tf.config.optimizer.set_jit(False)
    keras.utils.set_random_seed(options.train.seed)
    if options.train.deterministic:
        tf.config.experimental.enable_op_determinism()


def _to_open(options: Options, able: Sequence[int]) -> list[int]:
    """The places of the GPUs that train, in TensorFlow's order, in which it opens them whatever the order asked for."""
    wanted = _wanted(options)
    if wanted is None:
        return list(able)
    gpus = {position // options.device.logical_devices for position in wanted}
    # strategy.build reports positions that do not exist.
    return [place for position, place in enumerate(able) if position in gpus] or list(able[:1])


def _wanted(options: Options) -> list[int] | None:
    """The positions of the logical devices that train; None for all."""
    kind, named = options.strategy.kind, options.strategy.devices
    if kind == "single":
        return [0]
    if named == "all":
        return [0] if kind == "one_device" else None
    return named[:1] if kind == "one_device" else named


def _placed(
    devices: Devices, options: Options, opened: list[int], able: int, here: Machine, log: LibraryLog
) -> Devices:
    """The devices with their GPUs; `opened` are the indexes of the open GPUs among the `able` usable ones."""
    parts, wanted = options.device.logical_devices, _wanted(options)
    if devices.kind == "CPU":
        return devices
    positions = [gpu * parts + part for gpu in opened for part in range(parts)]
    if len(positions) != len(devices.names):
        raise TrainerError(
            "device",
            f"TensorFlow has opened {len(devices.names)} of the {len(positions)} GPU devices that should train",
            "engine.log says why; to train without a GPU that fails, leave it out of device.visible",
        )
    devices = replace(devices, positions=tuple(positions), available=able * parts)
    there = devices.by_position
    train = devices.names if wanted is None else [there[position] for position in wanted if position in there]
    gpus, uncertain = training_gpus.identify(train, here, log.created())
    return replace(devices, gpus=gpus, uncertain=uncertain)


def _configure_memory(options: Options, gpus: dict[int, tf.config.PhysicalDevice], here: Machine) -> None:
    device = options.device
    for place, gpu in gpus.items():
        if device.divided:
            limit = device.memory_limit_mb or _share_of_memory_mb(place, device.logical_devices, here)
            parts = [tf.config.LogicalDeviceConfiguration(memory_limit=limit)] * device.logical_devices
            tf.config.set_logical_device_configuration(gpu, parts)
        else:
            tf.config.experimental.set_memory_growth(gpu, device.grows)


def _share_of_memory_mb(place: int, partitions: int, here: Machine) -> int:
    """An equal part of 90 % of what is free of the GPU's memory; the rest is for CUDA's own contexts."""
    free = training_gpus.memory_free_bytes(place, here)
    if free is None:
        raise TrainerError(
            "device", "the GPU's memory size is not known", "set device.memory_limit_mb, the limit for each partition"
        )
    return int(free * 0.9 / partitions / 1024**2)


def _open(kind: str, joined: Joined | None = None) -> tuple[str, ...]:
    """The names of the devices, which are initialized by this; their configuration is fixed after it."""
    try:
        names = tuple(device.name for device in tf.config.list_logical_devices(kind) if _is_here(device.name, joined))
    except (RuntimeError, ValueError, tf.errors.OpError) as fault:
        raise TrainerError("device", f"TensorFlow cannot open its devices: {fault}") from None
    if not names:
        raise TrainerError("device", f"TensorFlow has opened no {kind}", "engine.log says why")
    return names


def _is_here(name: str, joined: Joined | None) -> bool:
    """Whether it is a device of this process: TensorFlow lists those of all workers."""
    return joined is None or f"/task:{joined.cluster.index}/" in name
