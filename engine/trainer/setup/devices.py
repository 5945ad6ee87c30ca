"""The devices of the training: configured in the one order that TensorFlow accepts, then checked to exist. In a
different order TensorFlow silently drops settings, and without a usable GPU it trains on the CPU. Only GPUs that
train are opened: TensorFlow makes a context on every visible GPU, and without memory growth takes nearly all of its
memory.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import assert_never

import keras
import tensorflow as tf

from ...gpu import TrainingGpu
from ...interpreter import installed
from ...job.machine_gpus import Machine, least_multiprocessors, used_by_tensorflow
from ...options import Options
from ...plan import MULTI_WORKER
from ...telemetry import resource_limits
from ..cluster import rendezvous
from ..cluster.rendezvous import Joined
from ..common.training_errors import TrainerError
from . import environment, gpu_identity
from .environment import NoAnswer, ask
from .gpu_identity import LibraryLog

_ON_THE_CPU = "set device.visible=none to train on the CPU"


@dataclass(frozen=True)
class Devices:
    """The logical devices that TensorFlow has opened, and what is known of their GPUs."""

    kind: str
    names: tuple[str, ...]
    positions: tuple[int, ...] | None = None  # their numbers (from 0) if all visible GPUs were opened; None: all are
    available: int | None = None  # the number of devices in that case
    gpus: tuple[TrainingGpu, ...] = ()  # those that train
    uncertain: str = ""  # a warning about their identity
    shown: int = 0  # GPUs that the driver shows to this process
    seen: int = 0  # GPUs that TensorFlow sees
    lost: tuple[str, ...] = ()  # names of GPUs that the driver has lost
    unknown: str = ""  # why the driver cannot be asked although there may be GPUs
    connected: tf.distribute.Strategy | None = None  # over several machines, which has opened the devices

    @property
    def by_position(self) -> dict[int, str]:
        """The names of the devices by position (from 0), the number that `strategy.devices` uses."""
        positions = range(len(self.names)) if self.positions is None else self.positions
        return dict(zip(positions, self.names, strict=True))


def configure(options: Options, joined: Joined | None = None) -> Devices:
    """Apply `device`, `precision.tf32` and `train.seed`/`deterministic`, connect the workers of several machines,
    and return the opened devices. Raises TrainerError. No device may have been opened before.
    """
    log, device, parts = LibraryLog(), options.device, options.device.logical_devices
    # `auto`: TensorFlow's default, a thread for each CPU of its mask, or one for each CPU of a limited container.
    auto = resource_limits.usable_cpus() if resource_limits.cpus_limited() else None
    if (inter := auto if device.inter_op_threads == "auto" else device.inter_op_threads) is not None:
        tf.config.threading.set_inter_op_parallelism_threads(inter)
    if (intra := auto if device.intra_op_threads == "auto" else device.intra_op_threads) is not None:
        tf.config.threading.set_intra_op_parallelism_threads(intra)
    tf.debugging.set_log_device_placement(device.log_placement)
    here, gpus = environment.machine(), tf.config.list_physical_devices("GPU")
    able = usable_gpus(gpus, here)
    require_gpus(options, here, len(gpus), able, log)
    train = _positions_that_train(options)
    opened = able
    if train is not None:  # build_strategy reports positions that do not exist
        needed = {position // parts for position in train}
        opened = [index for position, index in enumerate(able) if position in needed] or able[:1]
    if opened:
        tf.config.set_visible_devices([gpus[place] for place in opened], "GPU")
        for place in opened:
            if device.divided:
                limit = device.memory_limit_mb
                if not limit:
                    free = gpu_identity.memory_free_bytes(place, here)
                    if free is None:
                        hint = "set device.memory_limit_mb, the limit for each partition"
                        raise TrainerError("device", "the GPU's memory size is not known", hint)
                    limit = int(free * 0.9 / parts / 1024**2)  # the rest is for CUDA's contexts
                logical = [tf.config.LogicalDeviceConfiguration(memory_limit=limit)] * parts
                tf.config.set_logical_device_configuration(gpus[place], logical)
            else:
                tf.config.experimental.set_memory_growth(gpus[place], device.grows)
    elif parts > 1:
        cpu = tf.config.list_physical_devices("CPU")[0]
        logical = [tf.config.LogicalDeviceConfiguration() for _ in range(parts)]
        tf.config.set_logical_device_configuration(cpu, logical)
    tf.config.experimental.enable_tensor_float_32_execution(options.precision.tf32)
    if options.compile.xla is not True:
        tf.config.optimizer.set_jit(False)
    keras.utils.set_random_seed(options.train.seed)
    if options.train.deterministic:
        tf.config.experimental.enable_op_determinism()
    connected = rendezvous.connect(options, joined) if joined else None
    kind = "GPU" if opened else "CPU"
    try:  # this ends their configuration
        mine = "" if joined is None else f"/task:{joined.cluster.index}/"  # TensorFlow lists those of all workers
        names = tuple(device.name for device in tf.config.list_logical_devices(kind) if mine in device.name)
    except (RuntimeError, ValueError, tf.errors.OpError) as fault:
        raise TrainerError("device", f"TensorFlow cannot open its devices: {fault}") from None
    if not names:
        raise TrainerError("device", f"TensorFlow has opened no {kind}", "engine.log says why")
    if joined is not None:
        rendezvous.require_alike(joined, kind, len(names))
    lost, shown = tuple(f"GPU {gpu.index}" for gpu in here.shown if gpu.lost), len(here.shown)
    devices = Devices(kind, names, connected=connected, shown=shown, seen=len(gpus), lost=lost, unknown=here.missing)
    if kind == "CPU":
        return devices
    positions = [able.index(place) * parts + part for place in opened for part in range(parts)]
    if len(positions) != len(names):
        message = f"TensorFlow has opened {len(names)} of the {len(positions)} GPU devices that should train"
        hint = "engine.log says why; to train without a GPU that fails, leave it out of device.visible"
        raise TrainerError("device", message, hint)
    devices = replace(devices, positions=tuple(positions), available=len(able) * parts)
    there = devices.by_position
    that_train = names if train is None else [there[position] for position in train if position in there]
    training, uncertain = gpu_identity.identify(that_train, here, log.created())
    return replace(devices, gpus=training, uncertain=uncertain)


def _positions_that_train(options: Options) -> list[int] | None:
    kind, named = options.strategy.kind, options.strategy.devices
    if kind == "single":
        return [0]
    if named == "all":
        return [0] if kind == "one_device" else None
    return named[:1] if kind == "one_device" else named


def usable_gpus(gpus: Sequence[tf.config.PhysicalDevice], machine: Machine) -> list[int]:
    """Return those that TensorFlow would use if all were visible: new enough, and with enough multiprocessors."""
    oldest, counts = min(installed.capabilities(), default=(0, 0)), dict[int, int | None]()
    for place, gpu in enumerate(gpus):
        capability = tf.config.experimental.get_device_details(gpu).get("compute_capability")
        if (capability or oldest) >= oldest:
            count = gpu_identity.driver_multiprocessors(place)
            in_nvml = None if count is not None else gpu_identity.before_opening(place, machine)
            counts[place] = in_nvml.multiprocessors if in_nvml else count
    least = least_multiprocessors(counts.values())
    return [place for place, count in counts.items() if count is None or count >= least]


def require_gpus(options: Options, machine: Machine, seen: int, usable: Sequence[int], log: LibraryLog) -> None:
    """TrainerError for GPUs that should work, or that device.visible names, unless the CPU trains on purpose."""
    visible, shown = options.device.visible, len(used_by_tensorflow(machine.shown))
    if visible == "none":
        return
    if too_old := chips_too_old(machine, seen, usable):
        raise TrainerError("device", too_old, f"gputui doctor says which chips it supports; {_ON_THE_CPU}")
    if shown and not seen:
        what = f"the driver shows {shown} GPU(s), but TensorFlow can use none of them"
        raise _no_gpu_error(what, log, machine, seen)
    if visible == "all" and not seen and (what := unseen(machine)):
        raise _no_gpu_error(what, log, machine, seen)
    if isinstance(visible, list) and seen < len(visible):
        what = f"device.visible asks for {len(visible)} GPU(s), but TensorFlow can use {seen}"
        raise _no_gpu_error(what, log, machine, seen)


def chips_too_old(machine: Machine, seen: int, usable: Sequence[int]) -> str:
    """All are too old for TensorFlow's code. Empty if some is not, or none is seen for another reason."""
    if seen and not usable:
        return f"TensorFlow sees {seen} GPU(s), but their chips are too old: it has no code for them"
    if machine.shown and not used_by_tensorflow(machine.shown):
        return f"the chips of {', '.join(map(str, machine.shown))} are too old: TensorFlow has no code for them"
    return ""


def unseen(machine: Machine) -> str:
    """GPUs that neither the driver nor CUDA shows, and that CUDA_VISIBLE_DEVICES does not hide."""
    if machine.on_cpu_by_variable:
        return ""
    if machine.missing or (machine.fault and machine.fault.level == "error"):
        return (
            f"this machine has GPUs that the driver does not show ({machine.no_gpu_reason}), nor can TensorFlow use any"
        )
    return "CUDA shows none of this machine's GPUs" if machine.gpus and not machine.shown else ""


def _no_gpu_error(what: str, log: LibraryLog, machine: Machine, seen: int) -> TrainerError:
    """The reason is that in TensorFlow's log, or of gputui doctor if none is seen."""
    where = ["log", machine.driver] if seen else ["machine"]
    try:
        cause = ask("doctor.no_gpu", *where, sys.executable, given=log.text())
    except NoAnswer:
        cause = None
    if cause is None:
        return TrainerError("device", what, f"gputui doctor --deep looks for the reason; {_ON_THE_CPU}")
    return TrainerError("device", f"{what}: {cause['what']}", f"{cause['remedy']}; {_ON_THE_CPU}")


# ---- the strategy ---------------------------------------------------------------------------------


def build_strategy(options: Options, devices: Devices) -> tf.distribute.Strategy | None:
    """None for `single`: TensorFlow's default trains on the first device. Raises TrainerError."""
    requested, names = options.strategy, list(devices.names)
    if requested.kind == "single":
        return None
    if requested.devices != "all":
        there = devices.by_position
        if beyond := [position for position in requested.devices if position not in there]:
            available = len(there) if devices.available is None else devices.available
            message = f"strategy.devices names {devices.kind} {beyond[0]}, but there are {available} (counted from 0)"
            raise TrainerError("device", message, "list fewer devices, or set device.logical_devices")
        names = [there[position] for position in requested.devices]
    if requested.kind == "one_device":
        return tf.distribute.OneDeviceStrategy(names[0])
    if requested.kind == MULTI_WORKER:
        return devices.connected
    if requested.kind == "mirrored":
        if requested.communication == "nccl" and devices.kind != "GPU":
            raise TrainerError("strategy", "strategy.communication=nccl needs GPUs", "set it to auto")
        ways = {
            "nccl": tf.distribute.NcclAllReduce,
            "hierarchical_copy": tf.distribute.HierarchicalCopyAllReduce,
            "reduction_to_one_device": tf.distribute.ReductionToOneDevice,
        }
        way = ways.get(requested.communication)
        return tf.distribute.MirroredStrategy(names, cross_device_ops=way() if way else None)
    assert_never(requested.kind)  # a kind that is declared and not built fails the type check
