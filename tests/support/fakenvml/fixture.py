"""Compiles the stand-in with the system's compiler; without one the tests that need it are skipped."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.fakenvml import FakeNvml

SOURCE = Path(__file__).with_name("nvml.c")


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        pytest.skip("no C compiler on this machine to build the stand-in for NVML with")
    folder = tmp_path_factory.mktemp("nvml")
    libraries = {"current": [], "old": ["-DOLD"]}
    for name, more in libraries.items():
        (folder / name).mkdir()
        target = folder / name / "libnvidia-ml.so.1"
        command = [compiler, *more, "-O1", "-shared", "-fPIC", "-pthread", "-o", str(target), str(SOURCE)]
        subprocess.run(command, check=True)
    return FakeNvml(folder / "current", folder / "old")
