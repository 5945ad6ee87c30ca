"""Fixtures of all tests: an empty home for each, and one TensorFlow on two logical CPUs for those that train."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from gputui.engine.trainer.devices import Devices


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where gputui keeps its runs; made by whoever makes the first one."""
    folder = tmp_path / "home"
    monkeypatch.setenv("GPUTUI_HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return folder


@pytest.fixture(scope="session")
def xla_dump(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which XLA writes each module that it compiles in this process."""
    folder = tmp_path_factory.mktemp("xla")
    # Read once, at the first compilation of the process.
    os.environ["XLA_FLAGS"] = f"--xla_dump_to={folder} --xla_dump_hlo_as_text"
    return folder


@pytest.fixture(scope="session")
def cpus(xla_dump: Path) -> Devices:
    """TensorFlow of this process, with two logical CPUs and no GPU."""
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    from gputui.engine.trainer import devices

    from .training import options

    found = devices.configure(options("logical_devices=2"))
    # Both are meant for this process only.
    del os.environ["CUDA_VISIBLE_DEVICES"], os.environ["XLA_FLAGS"]
    return found


@pytest.fixture
def float32_afterwards() -> Iterator[None]:
    """Keras' precision policy is global: back to its default."""
    yield
    import keras

    keras.mixed_precision.set_global_policy("float32")
