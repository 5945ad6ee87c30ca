"""The command, the engine and the views in an environment without TensorFlow; the trainer in one without gputui."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from tests.doors.engine import Process, checkpoint_files, launch, runs
from tests.support.front_door import ended, happened, until

ROOT = Path(__file__).parents[2]
# What gputui needs and a trainer does not, by the names of modules and of their packages.
OF_GPUTUI = ("click", "nvidia_ml_py", "platformdirs", "psutil", "pydantic", "pynvml", "pyyaml", "yaml", "_yaml",
             "ruamel", "textual")  # fmt: skip
OF_TRAINING = ("tensorflow", "keras", "numpy")


def without(folder: Path, left_out: tuple[str, ...], gputui: bool) -> Path:
    """The Python of a new environment with the packages of the tests' but those whose names begin so; with gputui's
    source where it is wanted.
    """
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (site,) = folder.glob("lib/python3*/site-packages")
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if not path.name.lower().startswith((*left_out, "__editable__", "gputui")):
            (site / path.name).symlink_to(path)
    if gputui:
        (site / "gputui").mkdir()
        for name in ("engine", "presets", "tui"):
            (site / "gputui" / name).symlink_to(ROOT / name)
    return folder / "bin" / "python"


pytestmark = pytest.mark.usefixtures("nothing_left_running")

PROGRAM = """
import importlib.util
import json
import sys
import time

import keras
import numpy as np


class Waits(keras.callbacks.Callback):
    def on_train_batch_end(self, batch, logs=None):
        time.sleep(0.02)


def build(context):
    missing = [name for name in NAMES if importlib.util.find_spec(name) is None]
    loaded = [name for name in NAMES if name in sys.modules]
    with open("found.json", "w") as file:
        json.dump([sys.executable, missing, loaded], file)
    model = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse")
    x = np.zeros((40, 4), "float32")
    return {"model": model, "train": (x, x[:, :1]), "callbacks": [Waits()]}
"""
PRESET = """\
workload: {entry: 'train.py:build'}
input: {batch_size: 4}
train: {epochs: 100000, validation_split: 0}
run: {checkpoint: epoch}
"""
NAMES = ["psutil", "pydantic", "pynvml", "yaml", "ruamel", "textual", "click", "gputui.tui.cli"]
MAIN = "import sys; sys.argv[0] = 'gputui'; from gputui.tui import main; main()"


class Command:
    """`gputui` in an environment of its own."""

    def __init__(self, python: Path) -> None:
        self.python = python

    def __call__(self, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [self.python, "-P", "-c", MAIN, *words], env=os.environ | environment, capture_output=True, text=True,
            timeout=300, stdin=subprocess.DEVNULL, check=False,
        )  # fmt: skip


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with TensorFlow, in which nothing is installed that only gputui needs."""
    return without(tmp_path_factory.mktemp("theirs") / "env", OF_GPUTUI, gputui=False)


@pytest.fixture(scope="module")
def command(tmp_path_factory: pytest.TempPathFactory) -> Command:
    return Command(without(tmp_path_factory.mktemp("ours") / "env", OF_TRAINING, gputui=True))


def test_without_tensorflow_anywhere_the_doctor_works_and_nothing_starts(
    command: Command, theirs: Path, home: Path
) -> None:
    done = command("--preset", "quickstart")
    assert (done.returncode, done.stderr.count("\n")) == (2, 2), done.stderr
    assert "TensorFlow is not installed\nset run.python (or GPUTUI_PYTHON) to the Python of an" in done.stderr
    assert f"{command.python} -m pip install 'tensorflow[and-cuda]>=" in done.stderr, "no environment is active"
    done = command("doctor", "--json")
    (found,) = [one for one in json.loads(done.stdout)["findings"] if one["about"] == "TensorFlow"]
    assert (done.returncode, found["level"], found["what"]) == (1, "error", "TensorFlow is not installed")
    done = command("doctor", "--json", GPUTUI_PYTHON=str(theirs))
    told = [one["what"] for one in json.loads(done.stdout)["findings"] if one["about"] == "TensorFlow"]
    assert done.returncode == 0
    assert str(theirs) in told[0]
    assert "CUDA 12" in told[0]  # read from their TensorFlow's files
    done = command("--preset", "quickstart", "--set", f"run.python={command.python}", "--dry-run")
    assert (done.returncode, done.stderr.count("\n")) == (2, 2), done.stderr
    assert not (home / "runs").exists()


@pytest.mark.slow
def test_a_program_of_theirs_finds_their_packages_alone_is_stopped_resumed_and_diagnosed(
    command: Command, theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(PROGRAM.replace("NAMES", repr(NAMES)))
    (tmp_path / "preset.yaml").write_text(PRESET)
    done = command("--preset", "preset.yaml", "--detach", "--set", f"run.python={theirs.parents[1]}")
    assert done.returncode == 0, done.stderr
    assert f"note: run.python: trains in {theirs}: TensorFlow 2." in done.stderr
    run = runs.find(done.stdout.strip())
    until(lambda: checkpoint_files.whole_step(run.file("checkpoints")) or run.result)
    runs.request_stop(run)
    assert ended(run)["outcome"] == "stopped", run.log_tail()
    told = json.loads((tmp_path / "found.json").read_text())
    assert told == [str(theirs), [name for name in NAMES if not name.startswith("gputui")], []]
    reached = max(event["step"] for event in happened(run, "progress"))
    assert command("resume", run.id, "--detach", GPUTUI_PYTHON="/nowhere").returncode == 0  # it goes on where it was
    until(lambda: max(event["step"] for event in happened(run, "progress")) > reached + 20 or not run.is_active)
    runs.request_stop(run)
    assert ended(run)["outcome"] == "stopped", run.log_tail()
    first, second = happened(run, "started")
    assert (first["resumed_at_step"], second["resumed_at_step"]) == (None, reached)
    assert happened(run, "host"), "the engine reads the machine"
    done = command("diagnose", run.id, "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["verdict"]


def test_a_python_that_hangs_at_its_start_ends_with_its_engine(tmp_path: Path) -> None:
    python, told = tmp_path / "hangs", tmp_path / "pid"
    python.write_text(f"#!/bin/bash\necho $$ > {told}.new && mv {told}.new {told}\nexec sleep 600\n")
    python.chmod(0o755)
    warm = launch.Warm(str(python))
    until(told.exists)
    trainer = Process.of(int(told.read_text()))
    warm.process.kill()
    warm.process.wait(60)
    until(lambda: not trainer.alive())
    warm.close()
