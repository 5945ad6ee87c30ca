"""A stand-in for the GPUs of a machine, in TensorFlow itself and in NVML, compiled by the fixture `fakegpu`.

README.md says what it can show. TensorFlow loads the library when it is imported, so that only a new process sees it.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.doors.engine import installed
from tests.support.fakenvml import FakeNvml
from tests.support.needs import require

VERSION = "2.21."


@dataclass(frozen=True)
class FakeGpu:
    """The library that adds the devices to TensorFlow, and the one that tells of them as the driver would."""

    library: Path
    nvml: FakeNvml

    def environment(
        self,
        folder: Path,
        gpus: int = 1,
        memory_mb: int = 8192,
        settings: str = "",
        words: str = "",
        in_tensorflow: int | None = None,
        multiprocessors: Sequence[int] = (),
    ) -> dict[str, str]:
        """What gives a new process as many GPUs; processes that shall meet on them are given the same folder.

        `settings` are more of those that README.md lists (`kernel_us=300;lost_after=99`), `words` more of those in
        fakenvml/nvml.c. Where `in_tensorflow` is given, TensorFlow has only the first so many of the GPUs.
        `multiprocessors` are those of each GPU: TensorFlow leaves GPUs with few alone.
        """
        folder.mkdir(parents=True, exist_ok=True)
        use = folder / "use"
        seen = gpus if in_tensorflow is None else in_tensorflow
        told = f"gpus={gpus} mem_total={memory_mb} use={use} {words}"
        nvml = self.nvml.environment(told.strip())
        small = "".join(f";gpu{place}.sms={count}" for place, count in enumerate(multiprocessors))
        return nvml | {
            "LD_LIBRARY_PATH": f"{nvml['LD_LIBRARY_PATH']}:{self.nvml.cuda}",
            "FAKE_CUDA": str(gpus),
            "FAKE_CUDA_MIB": str(memory_mb),
            "FAKE_CUDA_SMS": ",".join(map(str, multiprocessors)),
            # Without the library TensorFlow asks the stand-in for CUDA, which starts for no TensorFlow.
            "TF_PLUGGABLE_DEVICE_LIBRARY_PATH": str(self.library) if seen else "",
            "FAKEGPU": f"gpus={seen};mem={memory_mb};nvml={use}{small};{settings}",
        }


@pytest.fixture(scope="session")
def fakegpu(nvml: FakeNvml) -> FakeGpu:
    from tests.support.fakegpu import build  # which is a program, too

    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("the stand-in for GPUs is for TensorFlow on Linux with x86-64 only")
    if not (installed.tensorflow_version() or "").startswith(VERSION):
        pytest.skip(f"the stand-in for GPUs is for TensorFlow {VERSION}x: it uses C++ classes that differ in others")
    require("c++")
    return FakeGpu(build.library(), nvml)
