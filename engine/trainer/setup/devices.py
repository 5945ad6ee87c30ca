"""The devices of the training: configured in the one order that TensorFlow accepts, then checked to exist. In a
different order TensorFlow silently drops settings, and without a usable GPU it trains on the CPU. Only GPUs that
train are opened: TensorFlow makes a context on every visible GPU, and without memory growth takes nearly all of its
memory. They are identified by their PCI addresses, which TensorFlow logs, and by which NVML finds them: neither
CUDA_VISIBLE_DEVICES nor CUDA's order has to be interpreted. The CUDA driver is asked for facts that the log lacks.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, assert_never

import keras

from ...gpu import Gpu, TrainingGpu
from ...interpreter import installed
from ...job.machine_gpus import Machine, least_multiprocessors, used_by_tensorflow
from ...options import Options
from ...plan import MULTI_WORKER
from ...telemetry import resource_limits
from ..cluster import rendezvous
from ..cluster.rendezvous import Joined
from ..common.training_errors import TrainerError
from ..common.versions import memory_limits
from ..common.versions import tensorflow as tf
from . import environment
from .environment import NoAnswer, ask

_ON_THE_CPU = "set device.visible=none to train on the CPU"
_UNCERTAIN = "TensorFlow does not report the PCI addresses of its GPUs: assumed to be the first in CUDA's order"
_STANDARD_ERROR = 2
_AT_MOST_BYTES = 1024**2
# As tensorflow/core/common_runtime/gpu/gpu_device.cc words it.
_CREATED = re.compile(r"Created device \S*/device:(GPU:\d+) with .* device: (\d+), .* pci bus id: ([\w:.]+)")
_MULTIPROCESSORS = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT in cuda.h


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
                    free = memory_free_bytes(place, here)
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
    training, uncertain = identify(that_train, here, log.created())
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
            count = driver_multiprocessors(place)
            in_nvml = None if count is not None else before_opening(place, machine)
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


# ---- the identity of GPUs --------------------------------------------------------------------------


def identify(
    names: Sequence[str], machine: Machine, created: Mapping[str, tuple[int, str]]
) -> tuple[tuple[TrainingGpu, ...], str]:
    """Return the GPUs of the logical devices `names`, each once and in their order, and a warning if they are
    uncertain. `created` has CUDA's number (from 0) and the PCI address of devices by names such as GPU:0, as logged.
    """
    ordinals, limits = _ordinals(created), {_short(name): limit for name, limit in memory_limits().items()}
    gpus: dict[int, TrainingGpu] = {}
    certain = True
    for position, name in enumerate(names):
        ordinal = ordinals.get(_short(name), position)
        if ordinal in gpus:
            continue
        bus = created[_short(name)][1] if _short(name) in created else driver_pci_bus_id(ordinal)
        gpu = at_pci_address(bus, machine)
        certain = certain and (len(machine.gpus) < 2 or (gpu is not None and _short(name) in ordinals))
        gpu = gpu or (machine.shown[ordinal] if ordinal < len(machine.shown) else None)
        of_gpu = [limits[each] for each, its in ordinals.items() if its == ordinal and each in limits]
        details, physical = {}, tf.config.list_physical_devices("GPU")
        if ordinal < len(physical):
            details = dict(tf.config.experimental.get_device_details(physical[ordinal]))
        chip = (gpu.name if gpu else None) or details.get("device_name")
        gpus[ordinal] = TrainingGpu(
            device=name,
            pci_bus_id=(gpu.pci_bus_id if gpu else None) or bus,
            uuid=gpu.card or gpu.uuid if gpu else None,
            index=gpu.index if gpu else None,
            name=chip,
            compute_capability=(gpu.compute_capability if gpu else None) or details.get("compute_capability"),
            memory_limit_bytes=sum(of_gpu) if of_gpu else None,
            memory_total_bytes=(gpu.memory_total_bytes if gpu else None) or driver_memory_total_bytes(ordinal),
            mig=gpu.in_mig_mode if gpu else " MIG " in str(chip),
        )
    return tuple(gpus.values()), "" if certain else _UNCERTAIN


def before_opening(ordinal: int, machine: Machine) -> Gpu | None:
    """Return the GPU in NVML of TensorFlow's number `ordinal` (from 0), while TensorFlow has not opened it yet."""
    gpu = at_pci_address(driver_pci_bus_id(ordinal), machine)
    return gpu or (machine.shown[ordinal] if ordinal < len(machine.shown) else None)


def memory_free_bytes(ordinal: int, machine: Machine) -> int | None:
    """Return it while the GPU is not opened. NVML reports none of a MIG instance: then its total."""
    gpu = before_opening(ordinal, machine)
    free = environment.memory_free_bytes(gpu.index) if gpu and not gpu.in_mig_mode else None
    return free or (gpu.memory_total_bytes if gpu else None) or driver_memory_total_bytes(ordinal)


def at_pci_address(pci_bus_id: str | None, machine: Machine) -> Gpu | None:
    """Return the GPU in NVML at this address, with the memory of the instance that CUDA shows in MIG mode."""
    if pci_bus_id is None:
        return None
    # CUDA shows one instance alone, and the GPU that it is a part of only then.
    return next((gpu for gpu in (*machine.shown, *machine.gpus) if _place(gpu.pci_bus_id) == _place(pci_bus_id)), None)


def _ordinals(created: Mapping[str, tuple[int, str]]) -> dict[str, int]:
    names = [_short(device.name) for device in tf.config.list_logical_devices("GPU")]
    if all(name in created for name in names):
        return {name: created[name][0] for name in names}
    opened, places = tf.config.get_visible_devices("GPU"), list[int]()
    for ordinal, gpu in enumerate(tf.config.list_physical_devices("GPU")):  # TensorFlow opens them in this order
        if gpu in opened:
            places += [ordinal] * len(tf.config.get_logical_device_configuration(gpu) or (None,))
    return dict(zip(names, places, strict=True)) if len(places) == len(names) else {}


def _short(name: str) -> str:
    # GPU:0 of /job:localhost/replica:0/task:0/device:GPU:0
    return name.rpartition("device:")[2]


def _place(pci_bus_id: str | None) -> tuple[int, str] | None:
    # NVML writes the domain with 8 digits, CUDA with 4.
    domain, _, rest = (pci_bus_id or "").lower().partition(":")
    try:
        return int(domain, 16), rest
    except ValueError:
        return None


class LibraryLog:
    """Reads the text that has been written to standard error since this object was created."""

    def __init__(self) -> None:
        self._from: int | None = None
        with contextlib.suppress(OSError):
            state = os.fstat(_STANDARD_ERROR)
            self._from = state.st_size if stat.S_ISREG(state.st_mode) else None

    def text(self) -> str:
        """Return the text, at most 1 MiB. Empty if standard error is not a file."""
        if self._from is None:
            return ""
        try:
            with open(f"/proc/self/fd/{_STANDARD_ERROR}", "rb") as log:
                log.seek(self._from)
                return log.read(_AT_MOST_BYTES).decode("utf-8", "replace")
        except OSError:
            return ""

    def created(self) -> dict[str, tuple[int, str]]:
        """Return the devices that TensorFlow has opened since, read from its messages, as `identify` takes them."""
        return {name: (int(ordinal), bus) for name, ordinal, bus in _CREATED.findall(self.text())}


def driver_pci_bus_id(ordinal: int) -> str | None:
    text = ctypes.create_string_buffer(32)
    return (
        text.value.decode("ascii", "replace") if _ask_driver("cuDeviceGetPCIBusId", ordinal, text, len(text)) else None
    )


def driver_memory_total_bytes(ordinal: int) -> int | None:
    """Return the bytes of the GPU, or of its instance in MIG mode. None if the driver gives no answer."""
    size = ctypes.c_size_t()
    return size.value if _ask_driver("cuDeviceTotalMem_v2", ordinal, ctypes.byref(size)) else None


def driver_multiprocessors(ordinal: int) -> int | None:
    count = ctypes.c_int()
    return count.value if _ask_driver("cuDeviceGetAttribute", ordinal, ctypes.byref(count), _MULTIPROCESSORS) else None


def _ask_driver(function: str, ordinal: int, into: Any, *more: int) -> bool:
    library, device = _driver(), ctypes.c_int()
    try:
        if library is None or library.cuDeviceGet(ctypes.byref(device), ordinal):
            return False
        return getattr(library, function)(into, *more, device) == 0
    except AttributeError:  # an older driver without this function
        return False


@functools.cache
def _driver() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL("libcuda.so.1")
    except OSError:
        return None


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
