"""The cache of XLA's compiled programs and autotuning results on disk, for sooner starts. Imports no TensorFlow.
TensorFlow stores programs by their text (device_executable_persistor.h), and XLA autotuning by fusion. Neither
checks machine and flags, so each combination of TensorFlow, chip and flags has its own folder. Both write a new file
under another name and rename it, so that runs can share a folder.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...files.places import home
from ...interpreter import installed
from ...options import Options
from ...system import locks
from ...system.identity import Place, Process
from ..common.training_errors import TrainerError
from . import machine_query

EXECUTABLES = "--tf_xla_persistent_cache_directory"
AUTOTUNING = "--xla_gpu_per_fusion_autotune_cache_dir"
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
        """A context around the training, with its mark in the folder if programs are kept. The mark stays if an
        error before the first step may come from the cache, so that the next training empties the folder.
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
                (self.folder / _EMPTIED).unlink(missing_ok=True)
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


def keep(options: Options) -> XlaCache:
    """Flags that make XLA use the folder, unless the caller has set them."""
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
    if refused := _refused(folder):
        return XlaCache(reason=refused, warns=True)
    programs = requested.xla_cache is True or not on_gpu or (of_chip / LOADS).exists()
    for variable, needed in (("TF_XLA_FLAGS", programs), ("XLA_FLAGS", on_gpu)):
        if needed and in_file(variable):
            reason = f"{variable} names a file, from which alone flags are read"
            return XlaCache(reason=reason, warns=requested.xla_cache is True)
    executables = programs and not _has("TF_XLA_FLAGS", EXECUTABLES)
    if executables:
        if reason := distrusted(folder):
            return XlaCache(reason=reason, warns=True)
        add("TF_XLA_FLAGS", [f"{EXECUTABLES}={folder / 'executables'}"])
    if on_gpu and not _has("XLA_FLAGS", AUTOTUNING):
        add("XLA_FLAGS", [f"{AUTOTUNING}={folder / 'autotuning'}"])
    return XlaCache(folder, executables=executables)


def _has(variable: str, name: str) -> bool:
    return any(flag_name(flag) == name for flag in os.environ.get(variable, "").split())


def _chip(options: Options) -> tuple[str, bool]:
    if options.device.visible != "none":
        here = machine_query.read()
        if here.shown:
            return "+".join(sorted({gpu.name or "" for gpu in here.shown})), True
        if here.missing:
            return "", True
    return _cpu(), False


def _cpu() -> str:
    try:
        lines = _CPU_INFO.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    fields = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    features = fields.get("flags", "") + fields.get("Features", "")
    return f"{fields.get('model name', platform.machine())} {_digest(features)}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _refused(folder: Path) -> str:
    """Make the folder. Return the reason if it cannot be used: not writable, or the disk nearly full."""
    try:
        for part in PARTS:
            (folder / part).mkdir(parents=True, exist_ok=True)
            probe = folder / part / f".{os.getpid()}"
            probe.write_bytes(b"1")
            probe.unlink(missing_ok=True)
        if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
            return f"the disk of {folder} has less than 1 GiB free"
    except OSError as fault:
        return f"{folder} cannot be written ({fault.strerror})"
    return ""


def flag_name(flag: str) -> str:
    return flag.partition("=")[0]


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
    """Remove the flags for which `which` returns True from the environment variable, and return them."""
    flags = os.environ.get(variable, "").split()
    dropped = [flag for flag in flags if which(flag)]
    if kept := [flag for flag in flags if flag not in dropped]:
        os.environ[variable] = " ".join(kept)
    else:
        os.environ.pop(variable, None)
    return dropped


# ---- which cache is trusted -----------------------------------------------------------------------


PARTS = ("executables", "autotuning")
LOADS = "executables-load"  # next to the folders of a chip: a training has loaded programs that another had compiled
_DAY_SECONDS = 86400.0
_MARK = "first-step-of-"
_EMPTIED = "emptied"  # has a byte for each time the folder was emptied since a training did its first step with it
_MOST_EMPTIED = 2
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
    return f"{_MARK}{here.boot_id or here.host}-"


def distrusted(folder: Path) -> str:
    """Return why the folder is not used. It is emptied if a training of this machine has left its mark."""
    try:
        counter, ours, left, others = folder / _EMPTIED, _of_this_machine(), dict[Path, bool](), 0
        emptied = counter.stat().st_size if counter.exists() else 0  # before the marks, which may just be removed
        for path in folder.glob(f"{_MARK}*"):
            with contextlib.suppress(FileNotFoundError):  # its training has just done its first step
                is_old = time.time() - path.stat().st_mtime > _DAY_SECONDS
                held = locks.held(path) if path.name.startswith(ours) else None  # None: it is not known
                if held is False:
                    left[path] = is_old
                others += held is True
                if held is None and is_old:
                    path.unlink()
        if left and others:
            return f"{folder} has to be emptied, and another run is in its first step with it"
        if emptied >= _MOST_EMPTIED and not all(left.values()):
            return f"{emptied + 1} runs in a row failed before the first step; to try again: rm -r {folder}"
        if left:
            (folder.parent / LOADS).unlink(missing_ok=True)
            kept = [path for part in PARTS for path in (folder / part).rglob("*") if not path.is_dir()]
            for path in [*kept, *left]:
                path.unlink(missing_ok=True)
            counter.write_bytes(b"x" * (emptied + 1))
    except OSError as fault:
        return f"{folder} cannot be written ({fault.strerror})"
    return ""
