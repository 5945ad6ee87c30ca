"""Sets what TensorFlow reads before it touches a device: environment variables, and the trainer's CPUs. Imports no
TensorFlow. A variable that has an option is set from it, with a warning if the caller's value differs. The others
stay, and the run records them.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from ...files.places import home
from ...job import environment_variables
from ...job.environment_variables import is_true
from ...job.machine_gpus import training_gpus
from ...options import OPTIONS, Options, by_key
from ...runs.events import ActualSettings
from ...telemetry import resource_limits
from ..common.training_errors import TrainerError
from . import machine_query, xla_cache
from .xla_cache import XlaCache, add, drop, flag_name

if TYPE_CHECKING:
    from ..measure.run_report import RunReport

_BACKEND = "KERAS_BACKEND"
_BY_TENSORFLOW = ("TF2_BEHAVIOR", "1")  # set when it is imported, which may have happened before
_AUTO_JIT = "--tf_xla_auto_jit"


def choose_backend() -> str:
    """TensorFlow, before Keras is imported. Returns another one of the caller's environment."""
    asked = os.environ.get(_BACKEND, "")
    os.environ[_BACKEND] = "tensorflow"
    return "" if asked == "tensorflow" else asked


def restore_backend(asked: str) -> None:
    """Undo `choose_backend` after Keras was imported, for processes that call `choose_backend` again."""
    if asked:
        os.environ[_BACKEND] = asked


def warn_of_backend(asked: str, report: RunReport) -> None:
    if asked:
        report.warn("backend", f"{_BACKEND}={asked} does nothing here: gputui trains with TensorFlow", option=_BACKEND)


@dataclass(frozen=True)
class Prepared:
    """The state of the environment variables after `prepare`. `environment` has the caller's that have no option,
    and `overridden` an option and a message about each of the caller's values that does nothing.
    """

    environment: Mapping[str, str] = field(default_factory=dict)
    overridden: tuple[tuple[str, str], ...] = ()  # option and sentence
    numa: str = ""  # how `device.numa` was applied
    cache: XlaCache = field(default_factory=XlaCache)

    def actual(self) -> ActualSettings:
        return {"environment": dict(self.environment), "numa": self.numa, "xla_cache": str(self.cache)}

    def warn(self, report: RunReport, kind: str, devices: int) -> None:
        """Overridden variables, and those that slow down training on this kind and number of devices."""
        messages: dict[str, list[str]] = {}
        for key, message in self.overridden:
            if kind == "GPU" or not by_key(OPTIONS)[key].about.gpu_only:
                messages.setdefault(key, []).append(message)
        for key, texts in messages.items():
            report.warn("environment", "; ".join(texts), f"unset the variable, or set {key}", key)
        if self.cache.warns:
            key = "compile.xla_cache"
            report.warn("environment", f"{key} does nothing here: {self.cache.reason}", f"set {key}=false", key)
        warn_of_harmful(self.environment, report, kind, devices)


NOTHING = Prepared()


def warn_of_harmful(environment: Mapping[str, str], report: RunReport, kind: str, devices: int) -> None:
    for name, message, hint in environment_variables.harmful(environment, kind, devices):
        report.warn("environment", message, hint, name)


@dataclass(frozen=True)
class _Owned:
    """A variable whose value follows from the option `key`, None if it is to be unset, as the option calls TensorFlow's
    API. `contradicts` returns whether a value of the caller asks for another setting (None: any other value does).
    """

    name: str
    key: str
    value: Callable[[Options], str | None] = lambda _: None
    contradicts: Callable[[str, Options], bool] | None = None


def _other_than(value: str, default: str) -> str | None:
    return None if value == default else value


def _deterministic(given: str, options: Options) -> bool:
    return is_true(given) and not options.train.deterministic


_OWNED: tuple[_Owned, ...] = (
    # NVML numbers GPUs in PCI order: this makes an index mean the same GPU everywhere.
    _Owned("CUDA_DEVICE_ORDER", "device.visible", lambda _: "PCI_BUS_ID"),
    _Owned("TF_FORCE_GPU_ALLOW_GROWTH", "device.memory_growth",
           contradicts=lambda given, options: is_true(given) != options.device.grows),
    _Owned("TF_PER_DEVICE_MEMORY_LIMIT_MB", "device.memory_limit_mb", contradicts=lambda given, _: given != "0"),
    _Owned("TF_GPU_ALLOCATOR", "device.allocator", lambda options: _other_than(options.device.allocator, "default")),
    _Owned("TF_GPU_THREAD_MODE", "device.gpu_thread_mode", lambda options: options.device.gpu_thread_mode),
    _Owned("TF_GPU_THREAD_COUNT", "device.gpu_thread_count",
           lambda options: _other_than(str(options.device.gpu_thread_count), "auto")),
    _Owned("TF_NUM_INTEROP_THREADS", "device.inter_op_threads", contradicts=lambda given, options:
           given.strip() not in ("", "0", str(options.device.inter_op_threads))),
    _Owned("TF_NUM_INTRAOP_THREADS", "device.intra_op_threads", contradicts=lambda given, options:
           given.strip() not in ("", "0", str(options.device.intra_op_threads))),
    _Owned("NVIDIA_TF32_OVERRIDE", "precision.tf32",
           contradicts=lambda given, options: given.strip() == "0" and options.precision.tf32),
    _Owned("TF_DETERMINISTIC_OPS", "train.deterministic", contradicts=_deterministic),
    _Owned("TF_CUDNN_DETERMINISTIC", "train.deterministic", contradicts=_deterministic),
)  # fmt: skip


def prepare(options: Options) -> Prepared:
    """CUDA and TensorFlow read them once. TrainerError for a GPU that is not allocated to this job."""
    before = {name: value for name, value in os.environ.items() if (name, value) != _BY_TENSORFLOW}
    _show_gpus(options)
    overridden = [message for variable in _OWNED if (message := _follow(variable, options))]
    overridden += _xla_flags(options)
    # The package has no machine code for the newest chips: keep the kernels that are compiled at first use.
    os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 * 1024**3))
    # The kernels that the driver compiles for a new chip, if its own folder cannot be written.
    if "CUDA_CACHE_PATH" not in os.environ and not writable(Path(os.path.expanduser("~/.nv/ComputeCache"))):
        os.environ["CUDA_CACHE_PATH"] = str(home() / "cache" / "cuda")
    owned = {variable.name for variable in _OWNED}
    kept = {name: value for name, value in environment_variables.recorded(before).items() if name not in owned}
    return Prepared(kept, tuple(overridden), pin_to_numa_node(options), xla_cache.keep(options))


def _follow(variable: _Owned, options: Options) -> tuple[str, str] | None:
    """Set the variable from the options. Return the option and a message if the caller's value contradicts them."""
    given, value = os.environ.get(variable.name), variable.value(options)
    if value is None:
        os.environ.pop(variable.name, None)
    else:
        os.environ[variable.name] = value
    contradicts = variable.contradicts
    if given is None or not (given != value if contradicts is None else contradicts(given, options)):
        return None
    group, name = variable.key.split(".")
    chosen = getattr(getattr(options, group), name)
    instead = f"{variable.key} is {'not set' if chosen is None else str(chosen).lower()}"
    if variable.name == "CUDA_DEVICE_ORDER":
        instead = "device.visible counts GPUs in PCI order, as the driver does"
    return variable.key, f"{variable.name}={given} does nothing here: {instead}"


def _show_gpus(options: Options) -> None:
    visible = options.device.visible
    if visible == "none":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    elif isinstance(visible, list):
        here = machine_query.read()
        for name in visible:
            if here.allocation is not None and not here.allocation.allows(name, here.gpus):
                message = f"GPU {name} is not allocated to this job: {here.allocation}"
                raise TrainerError("device", message, "set device.visible to all, or to GPUs of the job")
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(str(name) for name in visible)


def _xla_flags(options: Options) -> list[tuple[str, str]]:
    """Set XLA's flags as compile.xla and compile.xla_flags say. Return a message for each flag without effect."""
    overridden, by_itself = [], []
    if options.compile.xla is not True:
        by_itself = drop("TF_XLA_FLAGS", lambda flag: flag.startswith(_AUTO_JIT))
    if any(not flag.endswith("=0") for flag in by_itself):
        message = f"{' '.join(by_itself)} in TF_XLA_FLAGS does nothing here: XLA compiles as compile.xla says"
        overridden.append(("compile.xla", message))
    flags = (options.compile.xla_flags or "").split()
    names = {flag_name(flag) for flag in flags}
    if dropped := [flag for flag in drop("XLA_FLAGS", lambda flag: flag_name(flag) in names) if flag not in flags]:
        message = f"{' '.join(dropped)} in XLA_FLAGS does nothing here: compile.xla_flags has the same flag"
        overridden.append(("compile.xla_flags", message))
    if not add("XLA_FLAGS", flags):
        message = "compile.xla_flags does nothing here: XLA_FLAGS names a file, from which alone XLA reads"
        overridden.append(("compile.xla_flags", message))
    return overridden


def writable(folder: Path) -> bool:
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    return folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)


def pin_to_numa_node(options: Options) -> str:
    """`device.numa`: before TensorFlow counts the CPUs. A text names them, or why all are used."""
    if options.device.numa == "off":
        return "device.numa is off"
    if options.device.visible == "none":
        return "no GPU trains"
    if resource_limits.numa_nodes() < 2:
        return "the machine has one NUMA node"
    gpus = training_gpus(options, machine_query.read())
    nodes = machine_query.numa_cpus([gpu.index for gpu in gpus])
    if not gpus or not all(nodes):
        return "the driver does not report which CPUs are close to the GPUs"
    if len(set(nodes)) > 1:
        return "the GPUs that train are on different NUMA nodes"
    return _pin_threads(nodes[0], ", ".join(str(gpu.index) for gpu in gpus))


def _pin_threads(beside: frozenset[int], gpus: str) -> str:
    allowed = os.sched_getaffinity(0)
    if not beside & allowed:
        return f"no usable CPU is on the NUMA node of GPU {gpus}"
    if allowed <= beside:
        return f"all usable CPUs are on the NUMA node of GPU {gpus}"
    near, usable = len(beside & allowed), resource_limits.usable_cpus()
    if 2 * near < usable:  # too few to prepare the input
        return f"only {near} of the {usable} usable CPUs are on the NUMA node of GPU {gpus}"
    for thread in os.listdir("/proc/self/task"):  # TensorFlow may have been imported already
        with contextlib.suppress(OSError):  # the thread has ended, or the container forbids it
            os.sched_setaffinity(int(thread), beside & allowed)
    return f"on CPUs {resource_limits.cpu_list(beside & allowed)}, the NUMA node of GPU {gpus}"
