"""The cache of XLA's compiled programs and autotuning results on disk, which makes later runs start sooner.

`compile.xla_cache` switches it. TensorFlow stores compiled programs by their text (device_executable_persistor.h), and
XLA its autotuning results by fusion. Neither checks which machine and flags a file was made with, so each combination
of TensorFlow, chip and flags has its own folder here. Both write a new file under another name and rename it, so that
runs can share a folder. A file that cannot be written or loaded makes TensorFlow fail the step. Therefore a run holds a
lock in the folder until its first step is done; where a run ended with that lock, the content is not trusted.

Imports no TensorFlow.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...files.places import home
from ...options import Options
from ...system import installed, locks
from ...telemetry import machine
from .flags import add, flag_name

EXECUTABLES = "--tf_xla_persistent_cache_directory"
AUTOTUNING = "--xla_gpu_per_fusion_autotune_cache_dir"
PARTS = ("executables", "autotuning")
LEAST_FREE_BYTES = 1 << 30
_CPU_INFO = Path("/proc/cpuinfo")
_DONE = "first-step-done"  # a training that used the folder got so far
_LOADS = "executables-load"  # beside the folders of a chip: one of its trainings has loaded what another had compiled


@dataclass
class XlaCache:
    """The folder of this run, None without a cache; `reason` says why there is none, as a warning if `warns`."""

    folder: Path | None = None
    reason: str = ""
    warns: bool = False
    executables: bool = False  # compiled programs are kept, too
    _lock: locks.Lock | None = field(default=None, repr=False)
    _before: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return self.reason or str(self.folder or "")

    @contextlib.contextmanager
    def guarded(self) -> Iterator[None]:
        """Around the training: what ends it before its first step is the cache's fault where TensorFlow says no more
        than that an operation failed.
        """
        if self.folder is not None:
            with contextlib.suppress(OSError, locks.Taken):
                self._lock, self._before = locks.take(self._mark), self._compiled()
        try:
            yield
        except BaseException as fault:
            kinds = [kind.__name__ for kind in type(fault).__mro__]
            if "OpError" not in kinds or "ResourceExhaustedError" in kinds:
                self.leave()
            raise
        self.leave()

    def first_step_done(self) -> None:
        if self.folder is not None and self._lock is not None:
            with contextlib.suppress(OSError):
                (self.folder / _DONE).touch()
                if self._before and self._compiled() == self._before:
                    (self.folder.parent / _LOADS).touch()
        self.leave()

    def _compiled(self) -> frozenset[str]:
        assert self.folder is not None
        return frozenset(os.listdir(self.folder / "executables"))

    @property
    def _mark(self) -> Path:
        assert self.folder is not None
        return self.folder / f"first-step-of-{os.getpid()}"

    def leave(self) -> None:
        """Release the lock: if the training ends now, for example because it is stopped, the cache is not the cause."""
        if self._lock is not None:
            with contextlib.suppress(OSError):
                self._mark.unlink()
            self._lock.release()
            self._lock = None


def keep(options: Options) -> XlaCache:
    """Set the flags for the folder of this training, as far as the caller has not chosen folders."""
    wanted = options.compile
    if wanted.xla_cache is False:
        return XlaCache(reason="compile.xla_cache is false")
    if wanted.xla is False:
        return XlaCache(reason="compile.xla is false")
    chip, on_gpu = _chip(options)
    if not chip:
        return XlaCache(reason="the GPU's name is not known without NVML")
    if not on_gpu and wanted.xla == "auto" and options.workload.entry is None:
        return XlaCache(reason="compile.xla is auto, which compiles nothing on a CPU")
    of_chip = home() / "cache" / "xla" / _of_chip(chip, on_gpu)
    flags = (os.environ.get("XLA_FLAGS"), os.environ.get("TF_XLA_FLAGS"), options.precision.tf32)
    folder = of_chip / _digest(repr(flags))
    if refused := _refused(folder):
        return XlaCache(reason=refused, warns=True)
    executables = wanted.xla_cache is True or not on_gpu or (of_chip / _LOADS).exists()
    if executables and not _has("TF_XLA_FLAGS", EXECUTABLES):
        add("TF_XLA_FLAGS", [f"{EXECUTABLES}={folder / 'executables'}"])
    if on_gpu and not _has("XLA_FLAGS", AUTOTUNING):
        add("XLA_FLAGS", [f"{AUTOTUNING}={folder / 'autotuning'}"])
    return XlaCache(folder, executables=executables)


def _has(variable: str, name: str) -> bool:
    return any(flag_name(flag) == name for flag in os.environ.get(variable, "").split())


def _chip(options: Options) -> tuple[str, bool]:
    """The name of the chips that may train, and whether they are GPUs; an empty name where it is not known."""
    if options.device.visible != "none":
        here = machine.read()
        if here.shown:
            return "+".join(sorted({gpu.name or "" for gpu in here.shown})), True
        if here.missing:
            return "", True
    return _cpu(), False


def _cpu() -> str:
    """The CPU with its features, for which XLA compiles."""
    try:
        lines = _CPU_INFO.read_text(encoding="ascii", errors="replace").splitlines()
    except OSError:
        return platform.machine()
    told = {name.strip(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    return f"{told.get('model name', platform.machine())} {_digest(told.get('flags', '') + told.get('Features', ''))}"


def _of_chip(chip: str, on_gpu: bool) -> str:
    """The name of the folder for a TensorFlow on a chip, with the library that a compiled program calls."""
    libraries = f" cuDNN {'.'.join(map(str, installed.cudnn_version() or ('of the system',)))}" if on_gpu else ""
    text = f"tensorflow {installed.tensorflow_version() or 'unknown'} {chip}{libraries}"
    return re.sub(r"[^A-Za-z0-9.]+", "-", text).strip("-")[:150]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:8]


def _refused(folder: Path) -> str:
    """Why the folder cannot be used; empty after it has been made and what cannot be trusted is removed from it."""
    try:
        for part in PARTS:
            (folder / part).mkdir(parents=True, exist_ok=True)
            probe = folder / part / f".{os.getpid()}"
            probe.write_bytes(b"1")
            probe.unlink()
        if shutil.disk_usage(folder).free < LEAST_FREE_BYTES:
            return f"the disk of {folder} has less than 1 GiB free"
        marks = [path for path in folder.glob("first-step-of-*") if locks.held(path) is False]
        if marks and not (folder / _DONE).exists():
            return f"an earlier run with it failed before the first step; to try again: rm -r {folder}"
        if marks:
            _empty(folder, marks)
    except OSError as fault:
        return f"{folder} cannot be written ({fault.strerror})"
    return ""


def _empty(folder: Path, marks: list[Path]) -> None:
    """After a training that ended before its first step; the next one has to show again that programs load."""
    (folder.parent / _LOADS).unlink(missing_ok=True)
    for path in [*marks, *(path for part in PARTS for path in (folder / part).iterdir())]:
        path.unlink(missing_ok=True)
