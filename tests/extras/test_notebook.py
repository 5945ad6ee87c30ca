"""Notebooks: gputui in the cells of a real Jupyter kernel (docs/operations.md, "Notebooks")."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import Run, runs
from tests.support.cases import all_hold
from tests.support.front_door import until

pytestmark = pytest.mark.timeout(900)

WATCHED = """
import keras, numpy as np
from gputui.engine import Monitor
x = np.random.default_rng(0).normal(size=(1000, 8)).astype("float32")
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(1)])
model.compile("adam", "mse")
model.fit(x, x.sum(1), epochs={epochs}, verbose=0, callbacks=[Monitor("in a cell")])
print("fit has ended")
"""
LONG = "gputui --preset quickstart --set epochs=50000"


class Kernel:
    """A kernel of IPython as JupyterLab starts it, with gputui on its PATH and the home of the test."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.manager import start_new_kernel

        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        environment = os.environ | {"PATH": path, "CUDA_VISIBLE_DEVICES": "-1"}
        self.manager, self.client = start_new_kernel(kernel_name="python3", cwd=str(folder), env=environment)

    def interrupt(self) -> None:
        """Interrupt the kernel as soon as a run trains."""
        trains()
        self.manager.interrupt_kernel()

    def cell(self, code: str, during: Callable[[], None] = lambda: None) -> str:
        """Run a cell and return what it shows; `during` is called while it runs."""
        told: list[str] = []
        waits = self.client.execute(code)
        during()
        while True:
            message = self.client.get_iopub_msg(timeout=300)
            if message["parent_header"].get("msg_id") != waits:
                continue
            content: dict[str, Any] = message["content"]
            if message["msg_type"] == "stream":
                told.append(content["text"])
            elif message["msg_type"] == "error":
                told.append(content["ename"])
            elif message["msg_type"] == "status" and content["execution_state"] == "idle":
                return "".join(told)


@pytest.fixture
def kernel(tmp_path: Path) -> Iterator[Kernel]:
    made = Kernel(tmp_path)
    yield made
    made.client.stop_channels()
    made.manager.shutdown_kernel(now=True)


def newest() -> Run:
    return runs.all_runs()[0]


def trains() -> None:
    until(lambda: runs.all_runs() and newest().status.get("phase") == "training", 300)


def test_commands_in_cells(kernel: Kernel) -> None:
    with all_hold() as cases:
        with cases.case("a training in plain lines"):
            told = kernel.cell("!gputui --preset quickstart --set epochs=2")
            assert "epoch 2" in told
            assert "done; everything is in" in told
            assert not re.search(r"\x1b\[\?25l|\x1b\[2K", told), "a bar is drawn again"
        with cases.case("no screen"):
            for words in ("", " watch"):
                assert "the cell of a notebook shows no screen" in kernel.cell(f"!gputui{words}")
        with cases.case("no question"):
            assert "give --yes" in kernel.cell(f"!gputui runs rm {newest().id}")
        with cases.case("interrupting the kernel stops the training gracefully"):
            kernel.cell(f"!{LONG} --set checkpoint=epoch", kernel.interrupt)
            until(lambda: newest().state == "stopped", 120)
        with cases.case("a training in the background goes on after a restart of the kernel"):
            assert newest().id in kernel.cell("!gputui resume latest --detach")
            trains()
            kernel.manager.restart_kernel()
            kernel.client.wait_for_ready(timeout=120)
            assert "running" in kernel.cell("!gputui runs")
            assert "stopp" in kernel.cell("!gputui stop latest")
            until(lambda: newest().state == "stopped", 120)


def test_monitor_in_a_cell(kernel: Kernel) -> None:
    assert "fit has ended" in kernel.cell(WATCHED.format(epochs=2))
    assert newest().state == "ok"
    told = kernel.cell(WATCHED.format(epochs=100_000), kernel.interrupt)
    assert told.endswith("KeyboardInterrupt")
    until(lambda: newest().state == "error", 60)
    error = (newest().result or {})["error"]
    assert error["kind"] == "interrupted"

    def stop() -> None:
        trains()
        os.system(f"{Path(sys.executable).parent}/gputui stop latest")

    assert "fit has ended" in kernel.cell(WATCHED.format(epochs=100_000), stop)
    assert newest().state == "stopped"
