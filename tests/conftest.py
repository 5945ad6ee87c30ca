"""Fixtures of all tests: an empty home for each, and one TensorFlow on two logical CPUs for those that train."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Timer
from typing import TYPE_CHECKING

import hypothesis
import pytest

from tests import measured
from tests.doors.engine import import_cost, interpreter, runs, stop_signals
from tests.support.fakegpu import fakegpu as fakegpu
from tests.support.fakenvml import nvml as nvml
from tests.support.forked_engines import engines as engines
from tests.support.forked_engines import forked_gpu_trainers as forked_gpu_trainers
from tests.support.forked_engines import forked_trainers as forked_trainers
from tests.support.forked_engines import gpu_engines as gpu_engines
from tests.support.forking import ENVIRONMENT
from tests.support.forking import forks as forks
from tests.support.needs import require
from tests.support.own import own as own
from tests.support.training import Build, options

if TYPE_CHECKING:
    from textual.app import App

    from tests.doors.trainer import Devices


# Threads of OpenBLAS, which hardly anything here uses, sleep at once: they would spin after each import of NumPy.
os.environ.setdefault("OPENBLAS_THREAD_TIMEOUT", "4")
# TensorFlow uses oneDNN by default only on some CPUs. With it, its allocator counts memory on all of them.
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")
os.environ.pop("PYTHONUNBUFFERED", None)  # users have it seldom, and what is not flushed may get lost
# Those of the terminal in which the tests are run.
for name in ("TERM", "COLORTERM", "NO_COLOR", "FORCE_COLOR", "COLUMNS", "LINES"):
    os.environ.pop(name, None)
gc.disable()  # while the tests are imported, and TensorFlow with them: a fifth of the time
_with_room: list[bool] = []
_seconds: dict[str, float] = defaultdict(float)
HERE = Path(__file__).parent


# 50 drawn inputs for each property, the same in every run; `make nightly` draws 1,000 new ones.
HEALTHY = [hypothesis.HealthCheck.function_scoped_fixture, hypothesis.HealthCheck.too_slow]
for profile, many, same in (("usual", 50, True), ("nightly", 1000, False)):
    hypothesis.settings.register_profile(
        profile, max_examples=many, derandomize=same, database=None, deadline=None, suppress_health_check=HEALTHY
    )
hypothesis.settings.load_profile("usual")


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> object:
    """All of it, also in a worker, runs with room for its frames, as a trainer does."""
    if _with_room:
        return None
    _with_room.append(True)
    return import_cost.with_room(lambda: config.hook.pytest_cmdline_main(config=config))


def pytest_configure(config: pytest.Config) -> None:
    """Nobody sees the summary of a worker, and to look for snapshots that no test uses would take it ten seconds."""
    if hasattr(config, "workerinput"):
        config.option.no_summary = True


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Of the tests that run alone only the files are imported in which some are: to import all takes six seconds."""
    if config.option.markexpr.startswith("alone") and collection_path.match("test_*.py"):
        return "mark.alone" not in collection_path.read_text(encoding="utf-8") or None
    return None


def pytest_collection(session: pytest.Session) -> None:
    """Each worker of the whole suite begins with other files, so that none is compiled in all of them.

    Pytest compiles a file of tests anew for its assertions, and a worker that comes later reads what another has kept.
    """
    worker, workers = (os.environ.get(f"PYTEST_XDIST_WORKER{name}") for name in ("", "_COUNT"))
    if worker is None or workers is None or [Path(given).resolve() for given in session.config.args] != [HERE]:
        return
    files = sorted(HERE.rglob("test_*.py"))
    first = int(worker.removeprefix("gw")) * len(files) // int(workers)
    for file in [*files[first:], *files[:first]]:
        name = ".".join(file.relative_to(HERE.parent).with_suffix("").parts)
        with contextlib.suppress(Exception, pytest.skip.Exception):  # the collection tells it
            importlib.import_module(name)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files that take longest first: among several workers a long file that begins last would run by itself."""
    seconds = json.loads(measured.FILE.read_text(encoding="utf-8"))["seconds"]
    items.sort(key=lambda item: -seconds.get(item.nodeid.partition("::")[0], 0))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """In the process that has the workers: how long each file takes."""
    _seconds[report.nodeid.partition("::")[0]] += report.duration


def pytest_sessionfinish() -> None:
    if (file := os.environ.get(measured.MEASURED)) and "PYTEST_XDIST_WORKER" not in os.environ:
        earlier = json.loads(Path(file).read_text(encoding="utf-8")) if Path(file).exists() else {}
        rounded = {name: round(seconds, 1) for name, seconds in _seconds.items() if seconds >= 1}
        Path(file).write_text(json.dumps(rounded | earlier), encoding="utf-8")


def pytest_collection_finish() -> None:
    """Garbage is looked for seldom, and never in what has been imported: it took a third of the time of the screens."""
    gc.collect()
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 20, 20)


@pytest.hookimpl(tryfirst=True)  # before the fixtures
def pytest_runtest_setup(item: pytest.Item) -> None:
    for marker in item.iter_markers("needs"):
        require(*marker.args)


def fsync(descriptor: int) -> None:
    """Instead of os.fsync."""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where gputui keeps its runs; made by whoever makes the first one. What this process writes is not forced to disk:
    that takes longer than the tests of proofs themselves if other programs write.
    """
    folder = tmp_path / "home"
    monkeypatch.setenv("GPUTUI_HOME", str(folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("GPUTUI_LEASES", str(tmp_path / "leases"))  # the machine's own are those of its users
    monkeypatch.setenv("GPUTUI_IDLE_SECONDS", "0")
    monkeypatch.setattr(os, "fsync", fsync)
    return folder


@pytest.fixture
def not_at_utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The local time is five and a half hours ahead of universal time."""
    with monkeypatch.context() as zone:
        zone.setenv("TZ", "IST-5:30")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(autouse=True)
def handlers_put_back() -> Iterator[None]:
    """A command that follows a run keeps Ctrl-C and SIGTERM until its process ends; here they are put back."""
    before = {number: signal.getsignal(number) for number in stop_signals.NUMBERS}
    yield
    for number, handler in before.items():
        if signal.getsignal(number) != handler:
            signal.signal(number, handler)


@pytest.fixture(autouse=True)
def no_timer_is_left() -> Iterator[None]:
    """It would ring in another test: that of a trainer which has ended ends the whole process half a minute later."""
    yield
    left = [thread for thread in threading.enumerate() if isinstance(thread, Timer)]
    for timer in left:
        timer.cancel()
    assert left == []


@pytest.fixture(autouse=True)
def other_pythons_are_asked_again() -> Iterator[None]:
    """An application that has ended asks none any more in its process; here others follow."""
    yield
    interpreter.ask_with(lambda python: None)


@pytest.fixture(autouse=True)
def one_key_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The pilot presses as one does who waits for the answer, and has read a question as soon as it is there.

    Keys are held back, presets are waited for and messages stay as long as it takes: a process may get no core for
    seconds. A message stays longer than a test waits: what it covers would else be seen once it is gone.
    tests/support/bursts.py sends keys that come together.
    """
    if "textual" not in sys.modules:
        return
    from textual._wait import wait_for_idle

    from tests.doors.tui import Ask, BaseApp, Faults, base_app, typeahead
    from tests.doors.tui import screens_presets as presets
    from tests.support.bursts import at_rest

    async def press(app: BaseApp, keys: Iterable[str]) -> None:
        for key in keys:
            await at_once(app, [key])
            await _taken(app)
            while app.typeahead.busy and app.is_running:
                await asyncio.sleep(0.005)
        await wait_for_idle(0)

    async def a_moment(*seconds: float) -> None:
        """Until the driver has handed the key over; Textual waits twice for each key until the process is idle."""
        for _ in range(4):
            await asyncio.sleep(0)

    at_once = BaseApp._press_keys
    monkeypatch.setattr("textual.app.wait_for_idle", a_moment)
    monkeypatch.setattr("textual.pilot.Pilot._wait_for_screen", at_rest)
    monkeypatch.setattr(BaseApp, "_press_keys", press)
    monkeypatch.setattr(Faults, "tolerated", False)
    monkeypatch.setattr(Ask, "seen_after_seconds", 0.0)
    monkeypatch.setattr(base_app, "SHOWN_SECONDS", dict.fromkeys(base_app.SHOWN_SECONDS, 600.0))
    monkeypatch.setattr(typeahead, "LIMIT_SECONDS", 90.0)
    monkeypatch.setattr(presets, "ARRIVE_SECONDS", 60.0)


async def _taken(app: App[None]) -> None:
    """Until the application has handled all that it had been sent before."""
    taken = asyncio.Event()
    if app.call_later(taken.set):
        while app.is_running and not taken.is_set():
            await asyncio.sleep(0.002)


@pytest.fixture(scope="session")
def cpus() -> Devices:
    """TensorFlow of this process, with two logical CPUs and no GPU."""
    with pytest.MonkeyPatch.context() as meant_for_this_process_only:
        for name in ("CUDA_VISIBLE_DEVICES", "XLA_FLAGS"):
            meant_for_this_process_only.setenv(name, ENVIRONMENT[name])
        import tensorflow as tf

        from tests.doors.trainer import actual_settings, devices
        from tests.support import steady_environment

        actual_settings.exclude_ours()
        steady_environment.install()
        found = devices.configure(options("logical_devices=2"))
        tf.function(lambda: tf.constant(1) + 1, jit_compile=True)()  # XLA reads its flags when it first compiles
    gc.freeze()  # looking through all that the suite has imported takes half a second, in whose training ever it falls
    return found


@pytest.fixture(autouse=True)
def tensorflow_of_this_process(request: pytest.FixtureRequest) -> None:
    """Configured before a test of a file that imports it: the first operation fixes the devices for all later tests."""
    if {"tf", "keras"} & vars(request.module).keys():
        request.getfixturevalue("cpus")


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
    """A test that fails must not leave its engines training, nor one that starts just then."""
    yield
    for run in runs.all_runs():
        deadline = time.monotonic() + 20
        while run.liveness.starting and time.monotonic() < deadline:
            time.sleep(0.1)
        for role in ("engine", "trainer"):
            process = run.process(role)
            if process is not None and process.alive():
                with contextlib.suppress(ProcessLookupError):  # it has ended by itself meanwhile
                    os.kill(process.pid, signal.SIGKILL)
