"""Compiles the stand-in with the system's compiler; without one the tests that need it fail."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.fakenvml import FakeNvml
from tests.support.needs import lacks

SOURCE = Path(__file__).with_name("nvml.c")
CUDA_SOURCE = Path(__file__).with_name("cuda.c")


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        lacks("cc")
    folder = tmp_path_factory.mktemp("nvml")
    libraries: dict[str, list[str | Path]] = {
        "current/libnvidia-ml.so.1": [SOURCE],
        "old/libnvidia-ml.so.1": ["-DOLD", SOURCE],
        "cuda/libcuda.so.1": [CUDA_SOURCE],
    }
    for name, words in libraries.items():
        (folder / name).parent.mkdir()
        subprocess.run([compiler, "-O1", "-shared", "-fPIC", "-pthread", "-o", folder / name, *words], check=True)
    return FakeNvml(folder / "current", folder / "old", folder / "cuda")
