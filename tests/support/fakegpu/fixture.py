"""Compiles the stand-in for GPUs once for each version of its source and of TensorFlow; all later runs use it again."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from gputui.engine.system import installed

from tests.support.fakegpu import FakeGpu
from tests.support.fakenvml import FakeNvml

pytest_plugins = ("tests.support.fakenvml.fixture",)

VERSION = "2.21."
SOURCE = Path(__file__).with_name("src")
# TensorFlow's own libraries are in the process before this one: empty ones with their names satisfy the linker.
TENSORFLOW = ("libtensorflow_cc.so.2", "libtensorflow_framework.so.2")
C = ("-std=gnu11", "-O1", "-fPIC", "-pthread")
# As TensorFlow's wheels are built.
CXX = ("-std=c++17", "-O1", "-fPIC", "-D_GLIBCXX_USE_CXX11_ABI=1", "-DEIGEN_MAX_ALIGN_BYTES=64", "-DNDEBUG")
# GCC looks for garbage only beyond 2 GB: it takes 1.3 GB instead of 1.0, and a seventh less time.
NO_GARBAGE = ("--param", "ggc-min-heapsize=2000000")


@pytest.fixture(scope="session")
def fakegpu(nvml: FakeNvml, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> FakeGpu:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("the stand-in for GPUs is for TensorFlow on Linux with x86-64 only")
    if not (installed.tensorflow_version() or "").startswith(VERSION):
        pytest.skip(f"the stand-in for GPUs is for TensorFlow {VERSION}x: it uses C++ classes that differ in others")
    for compiler in ("cc", "c++"):
        if shutil.which(compiler) is None:
            pytest.skip(f"no {compiler} on this machine to build the stand-in for GPUs with")
    cache = getattr(request.config, "cache", None)  # pytest's .pytest_cache, which all workers of pytest-xdist share
    folder = cache.mkdir("fakegpu") if cache is not None else tmp_path_factory.mktemp("fakegpu")
    library = folder / f"libfakegpu-{_key()}.so"
    with open(folder / "lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not library.exists():
            _compile(library, tmp_path_factory.mktemp("build"))
    return FakeGpu(library, nvml)


def _key() -> str:
    files = [Path(__file__), *sorted(SOURCE.iterdir())]
    text = b"".join(path.read_bytes() for path in files if path.suffix in (".c", ".cc", ".h", ".py"))
    return f"{installed.tensorflow_version()}-{hashlib.sha256(text).hexdigest()[:12]}"


def _compile(library: Path, folder: Path) -> None:
    """About 9 seconds of processor time, nearly all of it for TensorFlow's headers."""
    found = importlib.util.find_spec("tensorflow")
    assert found is not None
    assert found.origin is not None
    headers = ("-isystem", str(Path(found.origin).with_name("include")))
    for name in TENSORFLOW:
        _run("cc", "-shared", "-fPIC", "-x", "c", os.devnull, f"-Wl,-soname,{name}", "-o", folder / name)
    for name in ("settings", "device", "driver"):
        _run("cc", *C, *headers, "-c", SOURCE / f"{name}.c", "-o", folder / f"{name}.o")
    _run("c++", *CXX, *NO_GARBAGE, *headers, "-c", SOURCE / "library.cc", "-o", folder / "library.o")
    stubs = [folder / name for name in TENSORFLOW]
    made = folder / library.name
    objects = sorted(folder.glob("*.o"))
    _run("c++", "-shared", "-pthread", "-o", made, *objects, "-Wl,--no-as-needed", *stubs)
    shutil.copy(made, library.with_suffix(".new"))
    library.with_suffix(".new").rename(library)


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
