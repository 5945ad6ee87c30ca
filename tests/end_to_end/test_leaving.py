"""How a trainer ends: as Python does, within a time limit, and with nothing of it left behind."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

from tests.doors.engine import launch, presets, runs
from tests.doors.tui import exit_code
from tests.support.front_door import COMMAND, detached, ended, gputui, happened, until
from tests.support.needs import require

pytestmark = pytest.mark.usefixtures("nothing_left_running")

PRESET = """\
workload: {entry: 'train.py:build'}
input: {batch_size: 20}
train: {epochs: 1, validation_split: 0}
"""
HEAD = """\
import atexit, multiprocessing, os, signal, subprocess, sys, tempfile, time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
import keras
import numpy as np
import tensorflow as tf

def note(name, value):
    with open(name, "w") as file:
        file.write(str(value))

def training(**more):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    x = np.ones((100, 4), "float32")
    data = tf.data.Dataset.from_tensor_slices((x, x[:, :1]))
    return {"model": made, "train": data, "map": converted} | more

def converted(x, y):
    if tf.reduce_sum(x) > 0:  # AutoGraph writes a file for it
        x = x / 2
    return x, y
"""
LEAVES_MUCH = """
STUBBORN = "import os, signal, time; signal.signal(15, signal.SIG_IGN); print(os.getpid(), flush=True); time.sleep(600)"

def square(number):
    return number * number

def build(context):
    ended = multiprocessing.Process(target=time.sleep, args=(600,))
    ended.start()
    ended.terminate()
    ended.join()
    program = subprocess.Popen(["sleep", "600"])
    program.terminate()
    with multiprocessing.Pool(2) as pool:
        squares = pool.map(square, [2, 3])
    note("ended", [ended.exitcode, program.wait(), squares])
    daemon = multiprocessing.Process(target=time.sleep, args=(600,), daemon=True)
    daemon.start()
    detached = subprocess.Popen([sys.executable, "-c", STUBBORN], start_new_session=True, stdout=subprocess.PIPE)
    stubborn = int(detached.stdout.readline())
    orphan = subprocess.run("sleep 600 > /dev/null 2>&1 & echo $!", shell=True, capture_output=True, text=True).stdout
    global left_open, left_pools
    left_pools = multiprocessing.Pool(2), ProcessPoolExecutor(2), ThreadPoolExecutor(2)
    for pool in left_pools[1:]:
        pool.submit(square, 2).result()
    left_open = open("left-open", "w")
    left_open.write("all of it")
    atexit.register(note, "atexit", "ran")
    note("temporary", tempfile.mkstemp(prefix="theirs")[1])
    note("left", f"{daemon.pid} {stubborn} {orphan}")
    return training()
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a user works; temporary files go to `temporary` beside their code."""
    path = tmp_path / "mine"
    (path / "tmp").mkdir(parents=True)
    monkeypatch.chdir(path)
    monkeypatch.setenv("TMPDIR", str(path / "tmp"))
    (path / "preset.yaml").write_text(PRESET)
    return path


def pids(folder: Path) -> list[int]:
    """Those that the code has told, once it has."""
    until((folder / "left").exists)
    return [int(word) for word in until(lambda: (folder / "left").read_text().split())]


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.slow
def test_what_the_code_ends_is_ended_and_what_it_leaves_is_cleaned_up(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "train.py").write_text(HEAD + LEAVES_MUCH)
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    done = gputui("--preset", "preset.yaml")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "ended").read_text() == "[-15, -15, [4, 9]]"
    assert (folder / "left-open").read_text() == "all of it"
    assert (folder / "atexit").read_text() == "ran"
    daemon, stubborn, orphan = pids(folder)
    until(lambda: not any(psutil.pid_exists(pid) for pid in (daemon, stubborn, orphan)))
    warnings = [event for event in happened(runs.find("latest"), "warning") if event["kind"] == "left_behind"]
    assert f"(pid {orphan})" in warnings[0]["message"]
    assert f"(pid {daemon})" not in warnings[0]["message"], "Python ends daemon processes by itself"
    assert warnings[0]["message"] in done.stdout
    assert "KERAS_BACKEND=jax does nothing here" in done.stdout
    # Their own file stays; nothing of TensorFlow's does.
    assert [str(path) for path in (folder / "tmp").iterdir()] == [(folder / "temporary").read_text()]


KILLED = """
def build(context):
    orphan = subprocess.run("sleep 600 > /dev/null 2>&1 & echo $!", shell=True, capture_output=True, text=True).stdout
    daemon = multiprocessing.Process(target=time.sleep, args=(600,), daemon=True)
    daemon.start()
    class Sleeps(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            note("left", f"{daemon.pid} {orphan}")
            time.sleep(600)
    return training(callbacks=[Sleeps()])
"""


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.slow
def test_a_trainer_that_is_killed_leaves_neither_processes_nor_files(folder: Path) -> None:
    (folder / "train.py").write_text(HEAD + KILLED)
    run = detached("--preset", "preset.yaml")
    left = pids(folder)
    (generated,) = (folder / "tmp").glob("*/__autograph_generated_file*.py")
    assert "def tf__converted" in generated.read_text(), "only their functions are converted, none of gputui"
    scratch = [generated.parent]
    assert [path.stat().st_mode & 0o777 for path in scratch] == [0o700]
    trainer = run.process("trainer")
    assert trainer is not None
    os.kill(trainer.pid, signal.SIGKILL)
    ended(run)
    assert run.state == "crashed"
    assert run.result is not None
    assert run.result["error"]["hint"].startswith("no checkpoint was saved to continue from")
    until(lambda: not any(psutil.pid_exists(pid) for pid in left))
    assert list((folder / "tmp").iterdir()) == []


# Who is asked, by which signal, and how many seconds after the engine was started.
ASKED = [
    ("engine", signal.SIGTERM, 0.0), ("both", signal.SIGINT, 0.05), ("engine", signal.SIGINT, 0.03),
    ("trainer", signal.SIGINT, 0.0), ("trainer", signal.SIGINT, 0.6),
]  # fmt: skip


@pytest.mark.parametrize(
    ("who", "number", "seconds"),
    [*ASKED[:2], *(pytest.param(*asked, marks=pytest.mark.nightly) for asked in ASKED[2:])],
)
def test_a_stop_at_any_moment_of_the_start_is_a_stop(who: str, number: signal.Signals, seconds: float) -> None:
    run, engine = launch.start(presets.resolve("quickstart", ["epochs=100000"]))
    time.sleep(seconds)  # the moments of the test; none of them is waited for
    trainers = until(lambda: psutil.Process(engine.pid).children()) if who != "engine" else []
    for pid in ([] if who == "trainer" else [engine.pid]) + [trainer.pid for trainer in trainers]:
        os.kill(pid, number)
    engine.wait(120)
    assert run.result is not None
    assert (run.result["outcome"], run.result["error"]) == ("stopped", None)
    assert exit_code(run.result["outcome"]) == 130


def limited(what: int, most: int) -> Callable[[], None]:
    return lambda: resource.setrlimit(what, (most, most))


@pytest.mark.slow
@pytest.mark.nightly
def test_too_little_address_space_and_a_wrong_flag_of_the_environment_are_named() -> None:
    done = gputui("--preset", "quickstart", preexec_fn=limited(resource.RLIMIT_AS, 1024**3))
    assert done.returncode == 3
    assert "out of memory: the address space is limited to 1.0 GiB (ulimit -v)" in done.stdout
    assert "batch_size" not in done.stdout
    done = gputui("--preset", "quickstart", env=os.environ | {"TF_XLA_FLAGS": "--tf_no_such_flag=1"})
    assert done.returncode == 1
    assert "TF_XLA_FLAGS in the environment has flags that TensorFlow does not know: --tf_no_such_flag=1" in done.stdout
    assert "unset TF_XLA_FLAGS" in done.stderr


THEIR_HANDLERS = """
def build(context):
    signal.signal(signal.SIGTERM, lambda number, frame: note("handled", number))
    signal.signal(signal.SIGINT, signal.default_int_handler)
    class Waits(keras.callbacks.Callback):
        def on_epoch_end(self, epoch, logs=None):
            note("left", os.getpid())
            time.sleep(1)
    return training(callbacks=[Waits()])
"""
BUSY_IN_C = """
def build(context):
    note("left", os.getpid())
    tf.function(lambda: tf.while_loop(lambda i: i < 10**15, lambda i: i + 1, [tf.constant(0, tf.int64)]))()
"""


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "number"), [(THEIR_HANDLERS, signal.SIGTERM), (BUSY_IN_C, signal.SIGTERM)], ids=["their-handler", "in-c"]
)
def test_a_signal_to_the_trainer_is_heard_beside_handlers_of_theirs(
    source: str, number: signal.Signals, folder: Path
) -> None:
    (folder / "train.py").write_text(HEAD + source)
    run = detached("--preset", "preset.yaml", "--set", "epochs=2000")
    (trainer,) = pids(folder)
    os.kill(trainer, number)
    assert ended(run)["outcome"] == "stopped"  # a training that has not heard it goes on for half an hour
    assert (folder / "handled").exists() == (source == THEIR_HANDLERS and number == signal.SIGTERM)


LEAVE = """
import atexit, ctypes, sys, threading, time
from gputui.engine.trainer.common import stopping
from gputui.engine.trainer.common.stopping import StopSwitch
stopping.THREADS_SECONDS, stopping.LEAVING_SECONDS, stopping.LAST_SECONDS = {seconds}
left_open = open(sys.argv[1], "w")
left_open.write("all of it")
leaving = stopping.ProcessExit(StopSwitch())
{before}
leaving.at_the_end(7)
"""
# What it does, how long is waited for threads, for everything and after that, its exit code, and what is in its
# file. A limit that is not to be reached is far away: a process may get no core for seconds.
HANGS: dict[str, tuple[str, tuple[float, float, float], int, str]] = {
    "thread": ("threading.Thread(target=time.sleep, args=(600,)).start()", (0.5, 90, 1), 7, "all of it, atexit"),
    "atexit": ("atexit.register(time.sleep, 600)", (90, 1.5, 90), 7, ""),
    "python-itself": ("atexit.register(ctypes.PyDLL(None).sleep, 600)", (90, 1.5, 0.5), 1, ""),  # keeps Python's lock
}


@pytest.mark.parametrize("name", HANGS)
def test_whatever_hangs_at_the_end_is_left_in_time(name: str, tmp_path: Path) -> None:
    before, seconds, code, written = HANGS[name]
    file = tmp_path / "left-open"
    script = LEAVE.format(before='atexit.register(left_open.write, ", atexit")\n' + before, seconds=seconds)
    done = subprocess.run(
        [sys.executable, "-c", script, str(file)], timeout=120, capture_output=True, text=True, check=False
    )
    assert done.returncode == code, done.stderr
    assert file.read_text() == written


# The limit counts all processes and threads of a user; for the superuser there is none.
AS_NOBODY = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=+dac_override", "--ambient-caps=+dac_override"]


@pytest.mark.parametrize("most", [2, 4, *(pytest.param(most, marks=pytest.mark.nightly) for most in (1, 3, 6))])
def test_the_limit_of_processes_is_told_wherever_it_is_met(most: int) -> None:
    """By the viewer, the engine or the trainer: each starts processes or threads."""
    if os.geteuid() and most > 1:  # other processes of this user count, too
        require("root")
    if not os.geteuid():
        require("setpriv")
    command = [*([] if os.geteuid() else AS_NOBODY), *COMMAND, "--preset", "quickstart"]
    limit = limited(resource.RLIMIT_NPROC, most)
    done = subprocess.run(command, capture_output=True, text=True, timeout=180, preexec_fn=limit, check=False)
    assert done.returncode == (1 if runs.all_runs() else 2), done.stdout + done.stderr
    assert f"no more processes and threads can be started: the limit is {most}" in done.stdout + done.stderr
    assert "ulimit -u" in done.stdout + done.stderr
    assert not done.stderr.startswith("unexpected")
