"""How a trainer ends: as Python does, within a time limit, and with nothing of it left behind."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import psutil
import pytest
from gputui.engine import runs

from .front_door import detached, ended, gputui, happened, until

pytestmark = pytest.mark.usefixtures("nothing_left_running")

PRESET = """\
workload: {entry: 'train.py:build'}
input: {batch_size: 20}
train: {epochs: 1, validation_split: 0}
"""
HEAD = """\
import atexit, multiprocessing, os, signal, subprocess, sys, tempfile, time
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
    global left_open
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


def test_what_the_code_ends_is_ended_and_what_it_leaves_is_cleaned_up(folder: Path) -> None:
    (folder / "train.py").write_text(HEAD + LEAVES_MUCH)
    done = gputui("--preset", "preset.yaml", timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (folder / "ended").read_text() == "[-15, -15, [4, 9]]"
    assert (folder / "left-open").read_text() == "all of it"
    assert (folder / "atexit").read_text() == "ran"
    daemon, stubborn, orphan = pids(folder)
    assert not any(psutil.pid_exists(pid) for pid in (daemon, stubborn, orphan))
    warnings = [event for event in happened(runs.find("latest"), "warning") if event["kind"] == "left_behind"]
    assert f"(pid {orphan})" in warnings[0]["message"]
    assert f"(pid {daemon})" not in warnings[0]["message"], "Python ends daemon processes by itself"
    assert warnings[0]["message"] in done.stdout
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


def test_a_trainer_that_is_killed_leaves_neither_processes_nor_files(folder: Path) -> None:
    (folder / "train.py").write_text(HEAD + KILLED)
    run = detached("--preset", "preset.yaml")
    left = pids(folder)
    scratch = [path for path in (folder / "tmp").iterdir() if list(path.glob("__autograph_generated_file*.py"))]
    assert [path.stat().st_mode & 0o777 for path in scratch] == [0o700]
    trainer = run.process("trainer")
    assert trainer is not None
    os.kill(trainer.pid, signal.SIGKILL)
    ended(run)
    assert run.state == "crashed"
    assert not any(psutil.pid_exists(pid) for pid in left)
    assert list((folder / "tmp").iterdir()) == []
