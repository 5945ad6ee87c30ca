"""The stand-in for libnvidia-ml.so.1 (nvml.c), compiled by the fixture `nvml`, and programs run against it.

The library is loaded by the real `pynvml`, which opens it by name: only the search path of a new process can choose it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.support.needs import lacks

FOLDER = Path(__file__).parent
SOURCES: dict[str, list[str | Path]] = {
    "current/libnvidia-ml.so.1": [FOLDER / "nvml.c"],
    "old/libnvidia-ml.so.1": ["-DOLD", FOLDER / "nvml.c"],
    "cuda/libcuda.so.1": [FOLDER / "cuda.c"],
}


def compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


def compiled(folder: Path) -> FakeNvml:
    """The libraries, compiled into an empty folder. There must be a compiler."""
    for name, words in SOURCES.items():
        (folder / name).parent.mkdir()
        subprocess.run(
            [str(compiler()), "-O1", "-shared", "-fPIC", "-pthread", "-o", folder / name, *words], check=True
        )
    return FakeNvml(folder / "current", folder / "old", folder / "cuda")


@dataclass(frozen=True)
class FakeNvml:
    """Folders with the library as of today, as it was in older drivers, and with one for libcuda.so.1 (cuda.c)."""

    current: Path
    old: Path
    cuda: Path = Path("/nowhere")

    def environment(self, words: str, old: bool = False) -> dict[str, str]:
        """What makes a new process see the stand-in; the words are explained in nvml.c."""
        return {"LD_LIBRARY_PATH": str(self.old if old else self.current), "FAKE_NVML": words}

    def run(self, program: str, words: str = "", *arguments: str, old: bool = False, timeout: float = 180) -> Any:
        """What a Python program prints, as JSON."""
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, *arguments],
            capture_output=True,
            text=True,
            timeout=timeout,
            env=os.environ | self.environment(words, old),
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="session")
def nvml(tmp_path_factory: pytest.TempPathFactory) -> FakeNvml:
    if compiler() is None:
        lacks("cc")
    return compiled(tmp_path_factory.mktemp("nvml"))
