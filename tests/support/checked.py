"""Machines that the checks are given: by name, with what a launcher has set, and with the software of a trainer."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from tests.doors.engine import (
    Finding,
    Gpu,
    GpuProcess,
    Interpreter,
    Machine,
    MigInstance,
    interpreter,
    supported_versions,
)

GB = 1024**3
MEMORY_BYTES = 128 * GB
LOST = {"*": "lost"}
PYTHON = (GpuProcess(77, name="python"),)
FOUR = tuple(GpuProcess(pid, name=name) for pid, name in enumerate("abcd", 1))


def gpu(index: int, capability: tuple[int, int] | None = (9, 0), memory: int | None = 80 * GB) -> Gpu:
    return Gpu(index, f"GPU-{index}", "A GPU", capability, memory)


def machine(*gpus: Gpu) -> Machine:
    return Machine(gpus, "" if gpus else "no NVIDIA driver", 16, MEMORY_BYTES)


NONE, ONE, TWO = machine(), machine(gpu(0)), machine(gpu(0), gpu(1))
FULL = replace(gpu(0), memory_used_bytes=9 * GB, processes=FOUR)
STOPPED = replace(
    NONE, fault=Finding("error", "driver", "the driver is not loaded", "modprobe nvidia (as root) loads it")
)
MACHINES: Mapping[str, Machine] = {
    "none": NONE, "one": ONE, "two": TWO, "eight": machine(*map(gpu, range(8))),
    "pascal": machine(gpu(0, (6, 1), 8 * GB)), "p100": machine(gpu(0, (6, 0), 16 * GB)),
    "jetson": machine(gpu(0, (6, 2))), "volta": machine(gpu(0, (7, 0), 16 * GB)), "turing": machine(gpu(0, (7, 5))),
    "ampere": machine(gpu(0, (8, 0))), "hopper-and-pascal": machine(gpu(0), gpu(1, (6, 1))),
    "ampere-and-ada": machine(gpu(0, (8, 0)), gpu(1, (8, 9))), "hopper-and-blackwell": machine(gpu(0), gpu(1, (12, 0))),
    "blackwell": machine(gpu(0, (12, 0), 32 * GB)), "maxwell": machine(gpu(0, (5, 2), 24 * GB)),
    "hopper-and-maxwell": machine(gpu(0), gpu(1, (5, 2))), "unknown": machine(gpu(0, None, None)),
    "silent": replace(NONE, missing="no NVML here"),  # GPUs may be there
    "stopped": STOPPED, "stopped-and-silent": replace(STOPPED, missing="no NVML here"),
    "p400-and-4090": machine(
        replace(gpu(0, (6, 1), 2 * GB), multiprocessors=2), replace(gpu(1, (8, 9), 24 * GB), multiprocessors=128)
    ),
    "two-models": machine(replace(gpu(0), name="RTX 3090"), replace(gpu(1), name="RTX 4090")),
    "mig": machine(replace(gpu(0), mig=(MigInstance("MIG-a", 20 * GB), MigInstance("MIG-b", 40 * GB)))),
    "mig-used": machine(replace(gpu(0), mig=(MigInstance("MIG-a", 80 * GB, 70 * GB),))),
    "mig-empty": machine(replace(gpu(0), mig=())),
    "used-and-free": machine(replace(gpu(0), memory_used_bytes=70 * GB, processes=PYTHON), gpu(1)),
    "used-a-little": machine(replace(gpu(0), memory_used_bytes=GB // 2)), "used-by-four": machine(FULL),
    "used-by-unknown": machine(replace(FULL, processes=())),
    "held": machine(replace(gpu(1), exclusive=True, processes=PYTHON)),
    "free-and-held": machine(gpu(0), replace(gpu(1), exclusive=True, processes=PYTHON)),
    "held-by-four": machine(replace(FULL, exclusive=True)), "prohibited": machine(replace(FULL, prohibited=True)),
    "lost": machine(replace(FULL, missing="the GPU is lost", reasons=LOST, prohibited=True)),
}  # fmt: skip
# Of a driver, by the word with which a question names it.
DRIVERS: Mapping[str, Mapping[str, object]] = {
    "R470": {"driver": "470", "cuda": (11, 4)}, "R535": {"driver": "535", "cuda": (12, 2)},
    "R555": {"driver": "555", "cuda": (12, 5)},
}  # fmt: skip


def named(words: str, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """The machine of a question: `two R535 CUDA_VISIBLE_DEVICES=1`: its name, its driver, and what a launcher sets."""
    name, *more = words.split()
    found, driver = MACHINES[name], dict[str, object]()
    for word in more:
        variable, equals, value = word.partition("=")
        if equals and variable.isupper():
            monkeypatch.setenv(variable, value)
        elif not equals:
            driver |= DRIVERS[word]
    facts = {key: getattr(found, key) for key in ("missing", "fault")} | driver
    here = Machine.here(found.gpus, found.no_gpu_reason, **facts)
    return replace(here, cpus=16, memory_bytes=MEMORY_BYTES)


# ---- software ------------------------------------------------------------------------------------

PYTHON_THAT_TRAINS = "/opt/gputui/bin/python"
USUAL = {"tensorflow": "2.21.0", "keras": "3.12.0", "nvidia-cudnn-cu12": "9.24.0.43", "pip": "25.0"}
CUDA = "('is_cuda_build', True), ('cuda_version', '12.5.1'), ('cudnn_version', '9')"
BUILDS = {"cuda": CUDA, "cpu": "('is_cuda_build', False)", "rocm": "('is_cuda_build', False), ('is_rocm_build', True)"}
CHIPS = "['sm_60', 'sm_70', 'sm_80', 'sm_89', 'compute_90']"


def sites(folder: Path) -> None:
    """A folder of packages for each of BUILDS, with how its TensorFlow was built."""
    for build, facts in BUILDS.items():
        told = folder / build / "tensorflow/python/platform/build_info.py"
        told.parent.mkdir(parents=True)
        told.write_text(f"build_info = OrderedDict([{facts}, ('cuda_compute_capabilities', {CHIPS})])")
        compiler = folder / build / "nvidia/cuda_nvcc"
        for name in ("bin/ptxas", "nvvm/libdevice/libdevice.10.bc"):
            (compiler / name).parent.mkdir(parents=True)
            (compiler / name).touch()


def install(words: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The packages that a question names (`cudnn=9.5 build=cpu`), others as usual, for gputui's own Python."""
    names = ("tensorflow", "keras", "cudnn", "build", "processor", "tensorflow-cpu", "numpy")
    words_of = (word.split("=", 1) for word in words.split() if re.match("[a-z-]+=", word))
    given = {name: version for name, version in words_of if name in names}
    monkeypatch.setattr(supported_versions, "HAS_CUDA", given.pop("processor", "") != "arm")
    site = str((folder / given.pop("build", "cuda")).absolute())
    given = {name.replace("cudnn", "nvidia-cudnn-cu12"): version for name, version in given.items()}
    packages = {name: version for name, version in (USUAL | given).items() if version != "none"}
    places = dict.fromkeys([*packages, "numpy"], site)
    monkeypatch.setattr(sys, "executable", PYTHON_THAT_TRAINS)
    own = Interpreter(PYTHON_THAT_TRAINS, (3, 12, 1), packages, places, ())
    monkeypatch.setattr(interpreter, "own", lambda: own)
