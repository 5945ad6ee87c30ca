"""Fixtures of all tests: an empty home for each, and one TensorFlow on two logical CPUs for those that train."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from gputui.engine import runs
from gputui.engine.system import stop_signals

from tests.support.forking import ENVIRONMENT
from tests.support.forking import forks as forks
from tests.support.own import own as own
from tests.support.training import Build, options

if TYPE_CHECKING:
    from gputui.engine.trainer.setup.devices import Devices


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with most slow tests first: among several workers a long file that begins last would run by itself."""
    slow = Counter(item.path for item in items if item.get_closest_marker("slow"))
    items.sort(key=lambda item: -slow[item.path])


def pytest_collection_finish() -> None:
    """Garbage is looked for seldom, and never in what has been imported: it took a third of the time of the screens."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where gputui keeps its runs; made by whoever makes the first one."""
    folder = tmp_path / "home"
    monkeypatch.setenv("GPUTUI_HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return folder


@pytest.fixture(autouse=True)
def handlers_put_back() -> Iterator[None]:
    """A command that follows a run keeps Ctrl-C and SIGTERM until its process ends; here they are put back."""
    before = {number: signal.getsignal(number) for number in stop_signals.NUMBERS}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def one_key_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pilot presses as one does who waits for the answer, and has read a question as soon as it is there.

    tests/support/bursts.py sends keys that come together.
    """
    if "textual" not in sys.modules:
        return
    from gputui.tui.base.services import Host
    from gputui.tui.screens.questions import Ask

    async def press(app: Host, keys: Iterable[str]) -> None:
        for key in keys:
            await at_once(app, [key])
            while app.typeahead.busy and app.is_running:
                await asyncio.sleep(0.01)

    at_once = Host._press_keys
    monkeypatch.setattr(Host, "_press_keys", press)
    monkeypatch.setattr(Ask, "seen_after_seconds", 0.0)


@pytest.fixture(scope="session")
def cpus() -> Devices:
    """TensorFlow of this process, with two logical CPUs and no GPU."""
    with pytest.MonkeyPatch.context() as meant_for_this_process_only:
        for name in ("CUDA_VISIBLE_DEVICES", "XLA_FLAGS"):
            meant_for_this_process_only.setenv(name, ENVIRONMENT[name])
        import tensorflow as tf
        from gputui.engine.trainer.setup import devices

        found = devices.configure(options("logical_devices=2"))
        tf.function(lambda: tf.constant(1) + 1, jit_compile=True)()  # XLA reads its flags when it first compiles
    gc.freeze()  # looking through all that the suite has imported takes half a second, in whose training ever it falls
    return found


@pytest.fixture
def build(tmp_path: Path, cpus: Devices) -> Iterator[Build]:
    """build("epochs=1", ...): a training in this process, each in a run folder of its own; nothing has run."""
    import keras

    from tests.support.training import Training, built

    made: list[Training] = []

    def make(*settings: str) -> Training:
        wanted = options(*settings)
        keras.utils.set_random_seed(wanted.train.seed)  # as configuring the devices does in a process of its own
        made.append(built(tmp_path / f"run{len(made)}", cpus, wanted))
        return made[-1]

    yield make
    for training in made:
        training.loop.built.report.writer.close()
    keras.mixed_precision.set_global_policy("float32")  # it is global
    # What is given up here stays until the process ends. TensorFlow's tuning thread of an iterator may sleep through
    # its cancellation, for as long as it would have slept anyway (up to a minute), and whoever collects waits for it.
    gc.freeze()


@pytest.fixture
def nothing_left_running(home: Path) -> Iterator[None]:
    """A test that fails must not leave its engines training."""
    yield
    for run in runs.all_runs():
        for role in ("engine", "trainer"):
            process = run.process(role)
            if process is not None and process.alive():
                os.kill(process.pid, signal.SIGKILL)
