"""Sets what TensorFlow reads before it touches a device: environment variables, and the trainer's CPUs. Imports no
TensorFlow. A variable that has an option is set from it, with a warning if the caller's value differs. The others
stay, and the run records them.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...files.places import home
from ...interpreter import installed
from ...job import environment_variables
from ...job.environment_variables import is_true
from ...job.machine_gpus import Machine, answers_from_json, training_gpus
from ...options import BY_KEY, Options
from ...runs.events import ActualSettings
from ...system import child_process, locks
from ...system.identity import Place, Process
from ...telemetry import chips, resource_limits
from ..common.training_errors import TrainerError

if TYPE_CHECKING:
    from ..measure.run_report import RunReport

_LIBRARY = "libnvidia-ml.so.1"
_MODULE = "job.this_machine"
ANSWER_SECONDS = 20.0  # more than NVML is waited for by the process that is asked


class NoAnswer(Exception):
    """Raised if there is no answer. The text says why."""


def ask(module: str, *words: str, given: str = "") -> Any:
    """The JSON of `python -m gputui.engine.MODULE WORDS`, with `given` as input. Raises NoAnswer. It runs in gputui's
    own interpreter: that of a trainer may have no module for NVML.
    """
    command = [child_process.own_python(), "-P", "-m", f"gputui.engine.{module}", *words]
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, errors="replace", timeout=ANSWER_SECONDS, check=False
        )
        return json.loads(done.stdout)
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"no answer within {ANSWER_SECONDS:g} s") from None
    except OSError as fault:
        raise NoAnswer(f"{command[0]} cannot be run: {fault.strerror}") from None
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"return code {done.returncode}"])[-1]
        raise NoAnswer(last) from None


def machine() -> Machine:
    """Return the machine with its GPUs as of the first call, and the environment variables of this one."""
    return Machine.here(**_answers())


def memory_free_bytes(index: int) -> int | None:
    """Return the free bytes of the GPU with this index in NVML now. None if the driver does not report them."""
    try:
        free: int | None = ask(_MODULE, "free", str(index))
    except NoAnswer:
        return None
    return free


def numa_cpus(gpus: Sequence[int]) -> list[frozenset[int]]:
    """Return the CPUs of the NUMA node of each GPU (indexes in NVML). Empty if the driver does not report them."""
    try:
        return [frozenset(cpus) for cpus in ask(_MODULE, "cpus", *map(str, gpus))]
    except NoAnswer:
        return [frozenset()] * len(gpus)


@functools.cache
def _answers() -> dict[str, Any]:
    try:
        ctypes.CDLL(_LIBRARY)
    except OSError:
        reason = f"the NVIDIA driver's {_LIBRARY} is missing"
        return {"no_gpu_reason": reason, "missing": reason if chips.has_device_nodes() else ""}
    try:
        return answers_from_json(ask(_MODULE, "gpus"))
    except NoAnswer as why:
        reason = f"the NVIDIA driver cannot be asked: {why}"
        return {"no_gpu_reason": reason, "missing": reason}


EXECUTABLES = "--tf_xla_persistent_cache_directory"
AUTOTUNING = "--xla_gpu_per_fusion_autotune_cache_dir"
PARTS = ("executables", "autotuning")
LOADS = "executables-load"  # next to the folders of a chip: a training has loaded programs that another had compiled
LEAST_FREE_BYTES = 1 << 30
_CPU_INFO = Path("/proc/cpuinfo")


@dataclass
class XlaCache:
    """`folder` is None without one: `reason` says why, and `warns` whether the user is to be warned."""

    folder: Path | None = None
    reason: str = ""
    warns: bool = False
    executables: bool = False  # compiled programs are kept, too
    _lock: locks.Lock | None = field(default=None, repr=False)
    _mark: Path = Path()
    _before: frozenset[str] = frozenset()  # the programs at the begin

    def __str__(self) -> str:
        return self.reason or str(self.folder or "")

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """A context around the training, with its mark in the folder, a locked file, if programs are kept. The mark
        stays if an error before the first step may come from the cache: the next training then empties the folder.
        """
        if self.executables and self.folder is not None:
            me = Process.current()  # with the start time, as many processes in containers have the same process id
            self._mark = self.folder / f"{_of_this_machine()}{me.pid}-{me.start_ticks}"
            with contextlib.suppress(OSError, locks.Taken):
                self._before, self._lock = _compiled(self.folder), locks.take(self._mark)
        try:
            yield
        except BaseException as fault:
            # A fault of a user's code has the original exception as its cause.
            if not any(map(may_be_damage, (fault, fault.__cause__))):
                self.leave()
            raise
        self.leave()

    def first_step_done(self) -> None:
        if self.folder is not None and self._lock is not None:
            with contextlib.suppress(OSError):
                if self._before and _compiled(self.folder) == self._before:
                    (self.folder.parent / LOADS).touch()
        self.leave()

    def leave(self) -> None:
        """Remove the mark and release its lock: if the training ends after this call, the cache is not the cause."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._mark.unlink()
            self._lock.release()
            self._lock = None


def _compiled(folder: Path) -> frozenset[str]:
    return frozenset(os.listdir(folder / "executables"))


def xla_cache(options: Options) -> XlaCache:
    """The cache of compiled programs and autotuning results, with flags by which XLA uses it, unless there are others.
    TensorFlow stores programs by their text (device_executable_persistor.h), and XLA autotuning by fusion: neither
    checks machine and flags, so that each combination of TensorFlow, chip and flags has a folder of its own.
    """
    requested = options.compile
    if requested.xla_cache is False:
        return XlaCache(reason="compile.xla_cache is false")
    if requested.xla is False:
        return XlaCache(reason="compile.xla is false")
    chip, on_gpu = _chip(options)
    if not chip:
        return XlaCache(reason="the GPU's name is not known without NVML")
    if requested.xla == "auto" and options.workload.entry is None and (not on_gpu or options.strategy.kind != "single"):
        return XlaCache(reason="compile.xla is auto, which compiles nothing on a CPU or under a strategy")
    # TensorFlow, chip, and on a GPU cuDNN, which compiled programs call.
    libraries = f" cuDNN {'.'.join(map(str, installed.cudnn_version() or ('of the system',)))}" if on_gpu else ""
    combination = f"tensorflow {installed.tensorflow_version() or 'unknown'} {chip}{libraries}"
    of_chip = home() / "cache" / "xla" / re.sub(r"[^A-Za-z0-9.]+", "-", combination).strip("-")[:150]
    flags = (os.environ.get("XLA_FLAGS"), os.environ.get("TF_XLA_FLAGS"), options.precision.tf32)
    folder = of_chip / _digest(repr(flags))
    try:
        for part in PARTS:
            (folder / part).mkdir(parents=True, exist_ok=True)
            probe = folder / part / f".{os.getpid()}"
            probe.write_bytes(b"1")
            probe.unlink(missing_ok=True)
        if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
            return XlaCache(reason=f"the disk of {folder} has less than 1 GiB free", warns=True)
        programs = requested.xla_cache is True or not on_gpu or (of_chip / LOADS).exists()
        for variable, needed in (("TF_XLA_FLAGS", programs), ("XLA_FLAGS", on_gpu)):
            if needed and in_file(variable):
                reason = f"{variable} names a file, from which alone flags are read"
                return XlaCache(reason=reason, warns=requested.xla_cache is True)
        executables = programs and EXECUTABLES not in os.environ.get("TF_XLA_FLAGS", "")
        # It is emptied if a training of this machine has left its mark.
        marks = {path: locks.held(path) for path in folder.glob(f"{_of_this_machine()}*")} if executables else {}
        if False in marks.values():
            if True in marks.values():
                reason = f"{folder} has to be emptied, and another run is in its first step with it"
                return XlaCache(reason=reason, warns=True)
            (of_chip / LOADS).unlink(missing_ok=True)
            kept = [path for part in PARTS for path in (folder / part).rglob("*") if not path.is_dir()]
            for path in [*kept, *marks]:
                path.unlink(missing_ok=True)
    except OSError as fault:
        return XlaCache(reason=f"{folder} cannot be written ({fault.strerror})", warns=True)
    if executables:
        add("TF_XLA_FLAGS", [f"{EXECUTABLES}={folder / 'executables'}"])
    if on_gpu and AUTOTUNING not in os.environ.get("XLA_FLAGS", ""):
        add("XLA_FLAGS", [f"{AUTOTUNING}={folder / 'autotuning'}"])
    return XlaCache(folder, executables=executables)


def _chip(options: Options) -> tuple[str, bool]:
    if options.device.visible != "none":
        here = machine()
        if here.shown:
            return "+".join(sorted({gpu.name or "" for gpu in here.shown})), True
        if here.missing:
            return "", True
    try:
        lines = _CPU_INFO.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.machine(), False
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    features = fields.get("flags", "") + fields.get("Features", "")
    return f"{fields.get('model name', platform.machine())} {_digest(features)}", False


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def in_file(variable: str) -> bool:
    # The variable names a file of flags: none can be added to it.
    given = os.environ.get(variable, "").split()
    return bool(given) and not given[0].startswith("-")


def add(variable: str, flags: list[str]) -> bool:
    """Add flags to the environment variable. Returns False, and adds none, if it names a file of flags."""
    if flags and in_file(variable):
        return False
    if flags:
        os.environ[variable] = " ".join([*os.environ.get(variable, "").split(), *flags])
    return True


def drop(variable: str, which: Callable[[str], bool]) -> list[str]:
    flags = os.environ.pop(variable, "").split()
    if kept := [flag for flag in flags if not which(flag)]:
        os.environ[variable] = " ".join(kept)
    return [flag for flag in flags if which(flag)]


# Errors of TensorFlow if a kept program is cut off, damaged, removed, or made for another machine or setting.
_KINDS = {
    "DataLossError", "FailedPreconditionError", "InternalError", "NotFoundError", "OutOfRangeError", "UnknownError"
}  # fmt: skip
_MISMATCH = re.compile(r"Serialized (cache key|HLO) does not match|No binary found in serialized entry")
_INPUT = re.compile(r"Iterator::|(\{\{node |Op:)\S*IteratorGetNext")


def may_be_damage(fault: BaseException | None) -> bool:
    """Return True if the error may be caused by a damaged program in the cache, not by the input pipeline."""
    kinds, text = {kind.__name__ for kind in type(fault).__mro__}, str(fault)
    if isinstance(fault, TrainerError) and fault.kind == "input":
        return True  # Keras takes the OutOfRangeError of a program that was cut off for the end of the data
    return "OpError" in kinds and bool(kinds & _KINDS or _MISMATCH.search(text)) and not _INPUT.search(text)


def _of_this_machine() -> str:
    here = Place.here()
    return f"first-step-of-{here.boot_id or here.host}-"


_BACKEND = "KERAS_BACKEND"
_BY_TENSORFLOW = ("TF2_BEHAVIOR", "1")  # set when it is imported, which may have happened before
_AUTO_JIT = "--tf_xla_auto_jit"


def choose_backend() -> str:
    """TensorFlow, before Keras is imported. Returns another one of the caller's environment."""
    asked = os.environ.get(_BACKEND, "")
    os.environ[_BACKEND] = "tensorflow"
    return "" if asked == "tensorflow" else asked


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
            if kind == "GPU" or not BY_KEY[key].about.gpu_only:
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
    overridden = []
    for variable in _OWNED:
        given, value, contradicts = os.environ.pop(variable.name, None), variable.value(options), variable.contradicts
        if value is not None:
            os.environ[variable.name] = value
        if given is None or not (given != value if contradicts is None else contradicts(given, options)):
            continue
        chosen = options.value(variable.key)
        instead = f"{variable.key} is {'not set' if chosen is None else str(chosen).lower()}"
        if variable.name == "CUDA_DEVICE_ORDER":
            instead = "device.visible counts GPUs in PCI order, as the driver does"
        overridden.append((variable.key, f"{variable.name}={given} does nothing here: {instead}"))
    overridden += _xla_flags(options)
    # The package has no machine code for the newest chips: keep the kernels that are compiled at first use.
    os.environ.setdefault("CUDA_CACHE_MAXSIZE", str(4 * 1024**3))
    # The kernels that the driver compiles for a new chip, if its own folder cannot be written.
    if "CUDA_CACHE_PATH" not in os.environ and not writable(Path(os.path.expanduser("~/.nv/ComputeCache"))):
        os.environ["CUDA_CACHE_PATH"] = str(home() / "cache" / "cuda")
    owned = {variable.name for variable in _OWNED}
    kept = {name: value for name, value in environment_variables.recorded(before).items() if name not in owned}
    return Prepared(kept, tuple(overridden), pin_to_numa_node(options), xla_cache(options))


def _show_gpus(options: Options) -> None:
    visible = options.device.visible
    if visible == "none":
        os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    elif isinstance(visible, list):
        here = machine()
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
    names = tuple(flag.partition("=")[0] for flag in flags)
    same = drop("XLA_FLAGS", lambda flag: flag.partition("=")[0] in names)
    if dropped := [flag for flag in same if flag not in flags]:
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
    gpus = training_gpus(options, machine())
    nodes = numa_cpus([gpu.index for gpu in gpus])
    if not gpus or not all(nodes):
        return "the driver does not report which CPUs are close to the GPUs"
    if len(set(nodes)) > 1:
        return "the GPUs that train are on different NUMA nodes"
    allowed, usable = os.sched_getaffinity(0), resource_limits.usable_cpus()
    near, of_gpus = nodes[0] & allowed, f"on the NUMA node of GPU {', '.join(str(gpu.index) for gpu in gpus)}"
    if not near:
        return f"no usable CPU is {of_gpus}"
    if near == allowed:
        return f"all usable CPUs are {of_gpus}"
    if 2 * len(near) < usable:  # too few to prepare the input
        return f"only {len(near)} of the {usable} usable CPUs are {of_gpus}"
    for thread in os.listdir("/proc/self/task"):  # TensorFlow may have been imported already
        with contextlib.suppress(OSError):  # the thread has ended, or the container forbids it
            os.sched_setaffinity(int(thread), near)
    return f"on CPUs {resource_limits.cpu_list(near)}, {of_gpus.removeprefix('on ')}"
