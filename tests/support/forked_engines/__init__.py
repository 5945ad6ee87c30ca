"""Runs of the installed command whose engines get a forked trainer: TensorFlow is imported once for many runs.

Command, engine, and what they say to each other are those of every run; the import of TensorFlow before the training is
not tested. site/sitecustomize.py is in the command: where it would start an engine, it asks the server for one. The
server (server.py) forks it as the trials of a proof are forked (gputui.engine.trainer.fork_server). Where the
environment or a limit differs from those of the server, and where none can be forked, the command starts the engine
itself, as always. A second server has imported TensorFlow with stand-ins for GPUs (support/fakegpu).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.support import shared

if TYPE_CHECKING:
    from tests.support.fakegpu import FakeGpu

HERE = Path(__file__).parent
ADDRESS = "GPUTUI_TEST_ENGINES"  # environment variable of the command: the server's socket
ROOM = "x" * 400  # in the command line of the server, where the trainers show the folders of their runs


def served(folder: Path, **environment: str) -> Iterator[Path]:
    """The socket of a server, which runs until the tests are over."""
    address = folder / "socket"
    words = [str(HERE / "server.py"), str(address), "-m", "gputui.engine.trainer", ROOM, "--forks-for-tests"]
    environment["PYTHONPATH"] = str(HERE.parents[2])
    with shared.server(folder, [sys.executable, "-P", *words], environment):
        yield address


@pytest.fixture(scope="session")
def engines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of the server."""
    yield from served(shared.folder(tmp_path_factory, "engines"))


@pytest.fixture(scope="session")
def gpu_engines(fakegpu: FakeGpu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The socket of the server for commands with the environment of `fakegpu`, of whatever GPUs and settings."""
    folder = shared.folder(tmp_path_factory, "gpu-engines")
    yield from served(folder, **fakegpu.environment(folder / "gpus"))


@pytest.fixture
def forked_trainers(engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run that a command of this test starts has a trainer that is forked."""
    monkeypatch.setenv("PYTHONPATH", str(HERE / "site"))
    monkeypatch.setenv(ADDRESS, str(engines))


@pytest.fixture
def forked_gpu_trainers(gpu_engines: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each run that a command of this test starts on stand-ins for GPUs has a trainer that is forked."""
    monkeypatch.setenv("PYTHONPATH", str(HERE / "site"))
    monkeypatch.setenv(ADDRESS, str(gpu_engines))
