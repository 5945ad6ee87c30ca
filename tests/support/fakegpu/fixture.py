"""The fixture `fakegpu`: the stand-in for GPUs, compiled if it has not been yet."""

from __future__ import annotations

import platform
import sys

import pytest

from tests.doors.engine import installed
from tests.support.fakegpu import FakeGpu, build
from tests.support.fakenvml import FakeNvml
from tests.support.needs import require

pytest_plugins = ("tests.support.fakenvml.fixture",)

VERSION = "2.21."


@pytest.fixture(scope="session")
def fakegpu(nvml: FakeNvml) -> FakeGpu:
    if sys.platform != "linux" or platform.machine() != "x86_64":
        pytest.skip("the stand-in for GPUs is for TensorFlow on Linux with x86-64 only")
    if not (installed.tensorflow_version() or "").startswith(VERSION):
        pytest.skip(f"the stand-in for GPUs is for TensorFlow {VERSION}x: it uses C++ classes that differ in others")
    require("c++")
    return FakeGpu(build.library(), nvml)
