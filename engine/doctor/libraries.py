"""Findings about the installed TensorFlow and its CUDA libraries, whose files are examined without importing them."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..finding import Finding, errors
from ..gpu import VISIBLE, Gpu
from ..interpreter import compatibility, installed, interpreter, supported_versions
from ..job.machine_gpus import hides_all
from ..system.child_process import BackgroundCall
from ..telemetry import chips, resource_limits

# The libraries that TensorFlow 2.21 opens by name when it first looks for GPUs or first needs one.
LIBRARIES = {
    "libcudart.so.12": "nvidia-cuda-runtime-cu12",
    "libcublas.so.12": "nvidia-cublas-cu12",
    "libcublasLt.so.12": "nvidia-cublas-cu12",
    installed.LIBCUDNN: installed.CUDNN,
    "libcufft.so.11": "nvidia-cufft-cu12",
    "libcusolver.so.11": "nvidia-cusolver-cu12",
    "libcusparse.so.12": "nvidia-cusparse-cu12",
    "libnccl.so.2": "nvidia-nccl-cu12",
    "libcupti.so.12": "nvidia-cuda-cupti-cu12",
    "libnvJitLink.so.12": "nvidia-nvjitlink-cu12",
}
LIBCUDA = "libcuda.so.1"
CUPTI = "libcupti.so.12"  # only a profile opens it (xprof's profiler for GPUs)
MOST_PACKAGES = 2  # missing packages are named one by one up to this number


def tensorflow(has_driver: bool) -> Iterator[Finding]:
    """Versions of TensorFlow, Keras and CUDA. With a driver, a TensorFlow without CUDA is an error."""
    meant = installed.intended()
    try:
        interpreter.require(meant.python)
    except interpreter.Unusable as fault:
        yield Finding("error", "TensorFlow", str(fault), fault.change)
        return
    if meant.place is None:
        remedy = meant.install(supported_versions.TENSORFLOW)
        yield Finding("error", "TensorFlow", "TensorFlow is not installed", remedy)
        return
    tensorflow, keras = meant.tensorflow, meant.keras
    yield from supported_versions.findings(tensorflow, keras, meant.install)
    if several := meant.overwritten:
        message = f"{' and '.join(several)} are installed together: each has overwritten files of the other"
        yield Finding("warning", "TensorFlow", message, meant.install(supported_versions.TENSORFLOW))
    built = installed.build_info()
    what = f"TensorFlow {tensorflow or 'of unknown version'}, Keras {keras or 'of unknown version'}"
    what += f", Python {meant.python_version} ({meant.python})"
    if built.get("is_cuda_build"):
        what += f", built for CUDA {built.get('cuda_version')} and cuDNN {built.get('cudnn_version')}"
        yield Finding("ok", "TensorFlow", what)
    elif not built and not interpreter.is_own(meant.python):
        message = f"{what}; whether it is built with CUDA is not known"
        yield Finding("note", "TensorFlow", message, "gputui doctor --deep imports it and shows this")
    else:
        level = "error" if has_driver else "note"
        yield Finding(level, "TensorFlow", f"{what}, built without CUDA: it cannot use a GPU", installed.with_cuda())


def missing() -> dict[str, str]:
    """The CUDA libraries that TensorFlow would not find: the pip package of each by its file name."""
    return {name: package for name, package in LIBRARIES.items() if not _is_there(name)}


def cuda(missing: dict[str, str], has_driver: bool) -> Iterator[Finding]:
    """The missing libraries (by `missing`). Without a driver they are only a note."""
    if not _has_cuda():
        return
    needed = {name: package for name, package in missing.items() if name != CUPTI}
    packages = sorted(set(needed.values()))
    if packages:
        verb, remedy = "is" if len(needed) == 1 else "are", "; ".join(map(installed.install, packages))
        what = f"{', '.join(needed)} {verb} missing"
        if len(packages) > MOST_PACKAGES:
            what, remedy = f"CUDA's libraries are missing ({', '.join(list(needed)[:3])} ...)", installed.with_cuda()
        yield Finding("error" if has_driver else "note", "CUDA", f"{what}: TensorFlow cannot use a GPU", remedy)
    elif CUPTI in missing:
        what = f"{CUPTI} is missing: profiles have no GPU; all else works"
        yield Finding("warning" if has_driver else "note", "CUDA", what, installed.install(missing[CUPTI]))
    else:
        yield Finding("ok", "CUDA", f"all {len(LIBRARIES)} libraries that TensorFlow loads are installed")


def xla(gpus: Iterable[Gpu], missing: dict[str, str], has_driver: bool) -> Iterator[Finding]:
    """Report a cuDNN that does not fit TensorFlow, or these GPUs with XLA (without code for them: gpu_findings.py); and
    missing ptxas and libdevice, which XLA needs, unless packages are missing that bring them (`missing`).
    """
    if not _has_cuda():
        return
    chips = [gpu.compute_capability for gpu in gpus]
    path = None if installed.cudnn() else _loader_cache().get(installed.LIBCUDNN)
    version = installed.version_of_cudnn(Path(path)) if path else None
    without_xla = chips and all(map(compatibility.xla_aborts, chips))
    misfit = compatibility.old_cudnn(chips, version) or (not without_xla and compatibility.xla_fails(chips, version))
    if misfit:
        yield misfit if has_driver else replace(misfit, level="note")
    if len(set(missing.values())) > MOST_PACKAGES:
        return
    lacking = []
    if installed.site("nvidia/cuda_nvcc/bin/ptxas") is None and not shutil.which("ptxas"):
        lacking.append("ptxas")
    # XLA does not read CUDA_DIR and CUDA_HOME, even if its messages advise to set them.
    named = re.findall(r"--xla_gpu_cuda_data_dir=(\S+)", os.environ.get("XLA_FLAGS", ""))
    toolkit = Path(named[-1]) if named else resource_limits.ROOT / "usr/local/cuda"
    data = "nvvm/libdevice/libdevice.10.bc"
    if installed.site(f"nvidia/cuda_nvcc/{data}") is None and not (toolkit / data).exists():
        lacking.append("libdevice.10.bc")
    if lacking:
        what = f"{' and '.join(lacking)} missing: compile.xla=true fails on a GPU"
        yield Finding("warning" if has_driver else "note", "XLA", what, installed.install("nvidia-cuda-nvcc-cu12"))
    else:
        yield Finding("ok", "XLA", "ptxas and libdevice are installed")


def libcuda(driver: str, confined: bool) -> Iterator[Finding]:
    """The driver's libcuda.so.1 may be missing even if NVML works. `driver` is its version, `confined` a container."""
    root = resource_limits.ROOT
    folders = [root / name for name in ("usr/lib", "usr/lib64", "usr/lib/wsl/lib", "run/opengl-driver/lib")]
    folders += (root / "usr/lib").glob("*-linux-gnu")
    if _is_there(LIBCUDA) or any((folder / LIBCUDA).exists() for folder in folders):
        return
    package = f" {driver} (Ubuntu: libnvidia-compute-{driver.split('.')[0]})" if driver else ""
    remedy = f"install the compute part of the driver{package}"
    if confined:
        remedy = "start the container with --gpus all (NVIDIA_DRIVER_CAPABILITIES must contain compute,utility)"
    yield Finding("error", "CUDA", f"{LIBCUDA} is missing: TensorFlow cannot use a GPU", remedy)


def _has_cuda() -> bool:
    return installed.tensorflow_version() is not None and bool(installed.build_info().get("is_cuda_build"))


# ---- files ------------------------------------------------------------------------------------


def _is_there(library: str) -> bool:
    nvidia = installed.site("nvidia")
    if nvidia and any(nvidia.glob(f"*/lib/{library}")):
        return True
    folders = [Path(folder) for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":") if folder]
    return any((folder / library).exists() for folder in folders) or library in _loader_cache()


@functools.cache
def _loader_cache() -> Mapping[str, str]:
    """The paths of the libraries in the cache of the system's loader, by name."""
    for command in ("ldconfig", "/sbin/ldconfig"):
        try:
            listed = subprocess.run([command, "-p"], capture_output=True, text=True, timeout=1, check=False).stdout
        except (OSError, subprocess.TimeoutExpired):
            continue
        entries = [line.partition("=>") for line in reversed(listed.splitlines()) if "=>" in line]  # the first decides
        return {name.split()[0]: path.strip() for name, _, path in entries}
    return {}


class Child:
    """A Python process that runs `program` from the creation on, for `seconds`. Any thread may call `end`."""

    def __init__(self, program: str, environment: Mapping[str, str], *flags: str, python: str = sys.executable) -> None:
        self._began, self.seconds = time.monotonic(), 0.0
        self._command, pipe = [python, "-P", *flags, "-c", program], subprocess.PIPE
        how: dict[str, Any] = {"stdin": subprocess.DEVNULL, "text": True, "errors": "replace"}
        self._process: subprocess.Popen[str] | None = None
        self._fault = ""
        try:
            variables = os.environ | environment
            self._process = subprocess.Popen(self._command, stdout=pipe, stderr=pipe, env=variables, **how)
        except OSError as fault:
            self._fault = str(fault)
        self._output = BackgroundCall(self._listen)

    def _listen(self) -> subprocess.CompletedProcess[str]:
        code, output, log = -1, "", self._fault
        if self._process is not None:
            output, log = self._process.communicate()
            code = self._process.returncode
        self.seconds = time.monotonic() - self._began
        return subprocess.CompletedProcess(self._command, code, output, log)

    def output(self, deadline: float) -> subprocess.CompletedProcess[str] | None:
        """None at the deadline (time.monotonic): it is then ended. stderr says why it could not be started."""
        try:
            return self._output.result(max(0.1, deadline - time.monotonic()))
        except TimeoutError:
            self.seconds = time.monotonic() - self._began
            self.end()
            return None

    def end(self) -> None:
        """Waits at most 1 s: a process in an uninterruptible call of the driver does not end."""
        if self._process is not None:
            with suppress(subprocess.TimeoutExpired):
                self._process.kill()
                self._process.wait(1)


PROGRAM = """
import ctypes, json
cuda, count, name = ctypes.CDLL("libcuda.so.1"), ctypes.c_int(0), ctypes.c_char_p()
code = cuda.cuInit(0) or cuda.cuDeviceGetCount(ctypes.byref(count))
if code and not cuda.cuGetErrorName(code, ctypes.byref(name)) and name.value:
    code = name.value.decode("ascii", "replace")
print(json.dumps([code, count.value]))
"""
_NO_DEVICE, _MISMATCH = "CUDA_ERROR_NO_DEVICE", "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"


@dataclass(frozen=True)
class CudaAnswer:
    """Of the driver's CUDA library."""

    works: bool | None = None  # None: it is missing or has not answered in time
    error: str = ""  # its name
    count: int = 0  # of the visible GPUs


def started() -> Child:
    """A process that starts CUDA, for `answer`."""
    return Child(PROGRAM, {}, "-S", "-E")


def answer(child: Child, deadline: float) -> CudaAnswer:
    output = child.output(deadline)
    try:
        code, count = json.loads(output.stdout) if output else (None, 0)
    except (ValueError, TypeError):  # no library, or one that does not load
        code = None
    return CudaAnswer() if code is None else CudaAnswer(not code, str(code or ""), int(count))


def findings(answer: CudaAnswer, driver: str, before: Sequence[Finding] = ()) -> Iterator[Finding]:
    """CUDA does not work, unless all GPUs are hidden, or its vague error is explained by one `before`."""
    chosen = os.environ.get(VISIBLE)
    cause = cause_of(answer.error, driver)
    is_known = errors(before) and (cause.what in _VAGUE or answer.error == _MISMATCH)
    if not answer.error or is_known or (answer.error == _NO_DEVICE and hides_all(chosen)):
        return
    what, remedy = f"CUDA does not start ({answer.error}): {cause.what}", cause.remedy
    if answer.error == _NO_DEVICE and chosen is not None:
        what, remedy = f"CUDA sees no device with {VISIBLE}={chosen}", "correct it or unset it"
    yield Finding("error", "CUDA", what, remedy)


# ---- the causes of CUDA's errors -----------------------------------------------------------------


# `filled` replaces {driver} and {container} in the remedies.
_cause = functools.partial(Finding, "error", "CUDA")
FABRIC = _cause(
    "the fabric manager has not set up the NVLink switches of this board",
    "as root: systemctl start nvidia-fabricmanager; its version must be the driver's, {driver}",
)
_LOOK = "check the driver with nvidia-smi and ls -l /dev/nvidia*{container}"
_CONTAINER = "; start a container with --gpus all"
NO_DEVICE = _cause("CUDA sees no device", _LOOK)
_REFUSED = _cause("the operating system refuses access to the GPUs", _LOOK)
_OTHER = _cause("the driver gives no reason", _LOOK)
_VAGUE = (NO_DEVICE.what, _REFUSED.what, _OTHER.what)  # only say that CUDA does not start: the driver is more exact
_CAUSES = {
    "SYSTEM_NOT_READY": FABRIC,
    "NO_DEVICE": NO_DEVICE,
    "SYSTEM_DRIVER_MISMATCH": _cause(
        "the loaded NVIDIA driver and libcuda.so.1 are of different versions, as after an update",
        "restart the machine, or the container with the driver's own libraries",
    ),
    "COMPAT_NOT_SUPPORTED_ON_DEVICE": _cause(
        "the cuda-compat package is found first and works on data-centre GPUs only",
        "remove its folder (.../cuda/compat) from LD_LIBRARY_PATH, or update the driver",
    ),
    "NOT_FOUND": _cause(  # tensorflow 68710
        "CUDA's libraries in this container do not fit the driver",
        "in Docker with WSL: update the NVIDIA container toolkit (Docker Desktop brings it), then wsl --shutdown",
    ),
    "STUB_LIBRARY": _cause(
        "the stub of the CUDA toolkit is found before the driver's own libcuda.so.1",
        "remove its folder (.../lib64/stubs) from LD_LIBRARY_PATH",
    ),
    "OPERATING_SYSTEM": _REFUSED,
    "UNKNOWN": _cause(
        _OTHER.what, "restart the machine; if it was suspended, as root: rmmod nvidia_uvm; modprobe nvidia_uvm"
    ),
}
_NO_UNIFIED_MEMORY = _cause(
    "the driver's node /dev/nvidia-uvm is missing", "as root: modprobe nvidia_uvm; nvidia-modprobe -u -c=0"
)
_NO_UNIFIED_MEMORY_GIVEN = _cause(_NO_UNIFIED_MEMORY.what, "start the container with --gpus all, which adds the node")
_NAME = re.compile(r"CUDA_ERROR_(\w+)")


def cause_of(text: str, driver: str) -> Finding:
    """The cause that the text names, or a general one."""
    return filled(cause_named_in(text) or _OTHER, driver)


def filled(cause: Finding, driver: str) -> Finding:
    """Return the cause with the driver's version and, in a container, with advice for containers."""
    container = _CONTAINER if chips.confined() else ""
    remedy = cause.remedy.format(driver=driver or "of an unknown version", container=container)
    return replace(cause, remedy=remedy)


def cause_named_in(text: str) -> Finding | None:
    """Return the cause of the first known error in the text, such as CUDA_ERROR_NO_DEVICE."""
    if "system not yet initialized" in text:
        return FABRIC
    name = next((name for name in _NAME.findall(text) if name in _CAUSES), None)
    if name == "UNKNOWN" and chips.lacks_unified_memory():
        return _NO_UNIFIED_MEMORY_GIVEN if chips.confined() else _NO_UNIFIED_MEMORY
    return _CAUSES[name] if name else None
