"""A user's own training through the front door: errors, their own modules, resuming, and the code of a run."""

from __future__ import annotations

import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.doors.engine import Run, runs
from tests.doors.tui import tui_cli as cli
from tests.support.forking import Forks, Program
from tests.support.front_door import detached, ended, events, gputui, happened, opened, step, until

pytestmark = pytest.mark.usefixtures("nothing_left_running")

PRESET = "workload: {entry: 'train.py:build'}\ninput: {batch_size: 20}\ntrain: {epochs: 2, validation_split: 0}\n"
MODEL = """
import keras
import numpy as np

def build(context):
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dropout(0.3), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(100, 4)).astype("float32")
    return made, (x, x.sum(axis=1))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine"
    path.mkdir()
    monkeypatch.chdir(path)
    (path / "preset.yaml").write_text(PRESET)
    return path


def ran(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of a command that launches nothing, in this process."""
    capsys.readouterr()
    code = cli.run(arguments)
    return code, *capsys.readouterr()


# ---- before anything is launched ------------------------------------------------------------------


def test_looking_at_the_code_does_not_run_it(folder: Path) -> None:
    (folder / "train.py").write_text("open('it_ran', 'w')\nfrom somewhere import build\n")
    assert gputui("--preset", "preset.yaml", "--dry-run").returncode == 0
    assert not (folder / "it_ran").exists()


def test_an_entry_wins_over_what_is_extended_and_is_refused_beside_a_model(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "train.py").write_text(MODEL)
    (folder / "preset.yaml").write_text("extends: quickstart\n" + PRESET)
    code, out, errors = ran(capsys, "--preset", "preset.yaml", "--dry-run")
    assert code == 0, errors
    assert f"entry: {folder}/train.py:build" in out
    assert f"folder: {folder}" in out
    assert "schedule: cosine" in out  # the rest of quickstart stays
    assert ran(capsys, "--preset", "quickstart", "--set", "entry=train.py:build", "--dry-run")[0] == 0
    for settings in (["--set", "model=mlp"], ["--set", "entry=train.py:build", "--set", "width=2"]):
        code, _, errors = ran(capsys, "--preset", "preset.yaml", *settings, "--dry-run")
        assert code == 2
        name = settings[-1].partition("=")[0]
        assert f"workload.{name}, workload.entry: your own code takes the place of gputui's model" in errors
    (folder / "preset.yaml").write_text("workload:\n  entry: train.py:build\n  data: synthetic\n")
    assert "preset.yaml:3: workload.data, workload.entry" in ran(capsys, "--preset", "preset.yaml")[2]


# ---- in the trainer -------------------------------------------------------------------------------


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.slow
def test_their_own_modules_and_files_are_theirs_and_an_error_is_told_with_its_line(folder: Path) -> None:
    # The modules are theirs, build reads a relative file, and the error is raised in a module of theirs.
    for name in ("engine", "tui", "utils", "presets"):
        text = f"NAME = 'my {name}'\n\ndef check(value):\n    assert value > 3, 'too small'\n"
        (folder / f"{name}.py").write_text(text)
    (folder / "json.py").write_text("raise SystemExit('not this json')\n")
    (folder / "data.txt").write_text("2")
    (folder / "train.py").write_text(
        "import engine, json, presets, sys, tui, utils\n"
        + MODEL
        + "    assert [m.NAME for m in (engine, tui, utils, presets)] == "
        "['my engine', 'my tui', 'my utils', 'my presets']\n"
    )
    source = (
        (folder / "train.py")
        .read_text()
        .replace(
            "    return made",
            "    print(json.dumps(sys.path[0]), __name__)\n"
            "    utils.check(int(open('data.txt').read()))\n    return made",
        )
    )
    (folder / "train.py").write_text(source + "\nif __name__ == '__main__':\n    raise SystemExit('main ran')\n")
    done = gputui("--preset", "preset.yaml")
    assert done.returncode == 1
    assert "utils.py:4 in check: AssertionError: too small\n    assert value > 3, 'too small'\n" in done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert "warning: json.py next to train.py is not used: another module json was imported before" in done.stdout
    run = runs.find("latest")
    log = run.file("engine.log").read_text()
    assert f'"{folder}" train' in log
    assert "Traceback" in log
    assert "main ran" not in log
    assert run.result is not None
    assert run.result["error"]["kind"] == "user_code"


# ---- speeds -----------------------------------------------------------------------------------------

COUNTED = """
import itertools
import json

import keras
import numpy as np
import tensorflow as tf

ROWS = []

class Rows(keras.layers.Layer):
    def call(self, x, training=False):
        if training:
            with tf.control_dependencies([tf.py_function(lambda rows: ROWS.append(int(rows)), [tf.shape(x)[0]], [])]):
                return tf.identity(x)
        return x

class Writes(keras.callbacks.Callback):
    def on_train_end(self, logs=None):
        open(self.path, "w").write(json.dumps(ROWS))

def build(context):
    made = keras.Sequential([keras.Input((4,)), Rows(), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    x = np.random.default_rng(0).normal(size=(101, 4)).astype("float32")
    y = x.sum(axis=1, keepdims=True)

    def batches():
        for first in range(0, 101, 40):
            yield x[first : first + 40], y[first : first + 40]

    data = {"arrays": (x, y), "generator": batches}
    if context.args["data"] == "unknown":
        data["unknown"] = tf.data.Dataset.from_tensor_slices((x, y)).filter(lambda *_: True).batch(40)
    writes = Writes()
    writes.path = context.args["path"]
    return {"model": made, "train": data[context.args["data"]], "callbacks": [writes]}
"""


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.parametrize(
    ("rows", "settings"),
    [
        pytest.param([1] * 101, ["batch_size=1"], marks=pytest.mark.nightly),
        ([101], ["batch_size=5000"]),
        pytest.param(
            [40, 40, 21], ["batch_size=20", "strategy.kind=mirrored", "logical_devices=2"], marks=pytest.mark.nightly
        ),
        pytest.param([40, 40, 21], ["batch_size=40", "micro_batches=3"], marks=pytest.mark.nightly),
        pytest.param([40, 40, 21], ["batch_size=40", "steps_per_execution=2"], marks=pytest.mark.nightly),
        pytest.param([40, 40, 21], ["args.data=unknown"], marks=pytest.mark.nightly),
        ([40, 40, 21], ["args.data=generator"]),
    ],
)
def test_a_speed_is_that_of_the_samples_that_were_trained(folder: Path, rows: list[int], settings: list[str]) -> None:
    """`rows` are those of the steps of an epoch."""
    (folder / "train.py").write_text(COUNTED)
    epochs = max(2, 40 // len(rows))
    given = ["args.data=arrays", f"args.path={folder / 'rows.json'}", f"epochs={epochs}", *settings]
    done = gputui("--preset", "preset.yaml", "--json", *(word for setting in given for word in ("--set", setting)))
    assert done.returncode == 0, done.stderr
    told = events(done.stdout)
    summary, last = told[-1]["summary"], [event for event in told if event["type"] == "progress"][-1]
    assert last["samples"] == sum(json.loads((folder / "rows.json").read_text())) == sum(rows) * epochs
    measured = sum((rows * epochs)[-summary["measured_steps"] :])
    assert summary["samples_per_second"] == pytest.approx(measured / summary["measured_seconds"], rel=0.001)
    large = [event["hint"] for event in told if event["type"] == "warning" and event["kind"] == "large_batch"]
    assert large == (["set input.batch_size to a part of them, such as 25"] if "batch_size=5000" in settings else [])
    assert next(event for event in told if event["type"] == "started")["global_batch_size"] == max(rows)


# ---- gputui init ------------------------------------------------------------------------------------


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.slow
def test_what_init_writes_trains_as_it_is_and_by_itself(tmp_path: Path, forks: Forks) -> None:
    done = gputui("init", "new", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "gputui --preset preset.yaml" in done.stdout
    new = tmp_path / "new"
    with opened("--preset", "preset.yaml", "--json", cwd=new) as trained:
        forks.run(Program(str(new), str(tmp_path / "alone.out"), ["train.py"], [str(new)]))
        told = events(trained.communicate()[0])
    assert trained.returncode == 0
    assert told[-1]["summary"]["metrics"]["val_accuracy"] > 0.9
    assert not [event for event in told if event["type"] == "warning"]


def test_init_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("mine")
    done = gputui("init", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert "train.py is yours, and is not changed" in done.stdout
    (tmp_path / "preset.yaml").write_text("mine, too")
    done = gputui("init", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == "preset.yaml exists, and is not overwritten; name another folder: gputui init DIR\n"
    assert (tmp_path / "train.py").read_text() == "mine"
    assert (tmp_path / "preset.yaml").read_text() == "mine, too"


# ---- Monitor ----------------------------------------------------------------------------------------

WATCHED = """
import os, sys, time
import keras, numpy as np
from gputui.engine import Monitor

os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
print(os.getpid(), flush=True)
model = keras.Sequential([keras.Input((8,)), keras.layers.Dense(16), keras.layers.Dense(1)])
model.compile("adam", "mse", metrics=["mae"])
x = np.random.default_rng(0).random((2000, 8)).astype("float32")
class Slow(keras.callbacks.Callback):
    def on_epoch_end(self, epoch, logs=None):
        time.sleep(float(sys.argv[2]))
        while not os.path.exists("go on") and sys.argv[1] == "3":
            time.sleep(0.05)
monitor = Monitor(name="watched", sample_seconds=0.2)
model.fit(x, x.sum(axis=1), batch_size=32, epochs=int(sys.argv[1]), validation_split=0.1, verbose=0,
          callbacks=[monitor, Slow()])
print(monitor.run.state, flush=True)
"""


def watched(folder: Path, epochs: int, pause: float) -> Program:
    """What it prints goes to a file that the number of its epochs names; one of three waits in the first for a file."""
    (folder / "fit.py").write_text(WATCHED)
    output, environment = str(folder / f"{epochs}.out"), {"GPUTUI_HOME": os.environ["GPUTUI_HOME"]}
    return Program(str(folder), output, ["fit.py", str(epochs), str(pause)], environment=environment, of_gputui=True)


def printed(program: Program) -> list[str]:
    return Path(program.output).read_text().splitlines()


@pytest.mark.slow
def test_any_fit_with_a_monitor_is_a_run_and_a_stop_ends_it_while_the_script_goes_on(
    folder: Path, forks: Forks, capsys: pytest.CaptureFixture[str]
) -> None:
    script, other, endless = watched(folder, 3, 0.0), watched(folder, 1000, 0.3), watched(folder, 100_000, 0.3)
    with ThreadPoolExecutor() as pool:
        codes = pool.submit(forks.codes, script, other, endless)
        until(lambda: len(runs.all_runs()) == 3)
        until(lambda: all(run.process("trainer") for run in runs.all_runs()))
        by_pid = {run.status["trainer_pid"]: run for run in runs.all_runs()}
        pids = [int(printed(program)[0]) for program in (script, other, endless)]
        assert set(by_pid) == set(pids)
        run, killed, stopped = (by_pid[pid] for pid in pids)
        until(lambda: happened(run, "host") and happened(run, "gpu"))
        (folder / "go on").touch()
        until(lambda: happened(killed, "epoch"))
        assert killed.state == "running"
        assert killed.id in ran(capsys, "runs")[1]
        os.kill(pids[1], signal.SIGKILL)
        until(lambda: step(stopped) > 100)
        assert ran(capsys, "stop", stopped.id)[0] == 0
        assert codes.result(timeout=200) == [0, -signal.SIGKILL, 0]
    assert runs.Run(killed.path).state == "crashed"
    assert (printed(script)[1:], printed(endless)[1:]) == (["ok"], ["stopped"])
    assert stopped.result is not None
    assert stopped.result["outcome"] == "stopped"
    result = run.result
    assert result is not None
    assert (result["outcome"], result["steps"], result["epochs"]) == ("ok", 3 * 57, 3)
    assert set(result["metrics"]) == {"loss", "mae", "val_loss", "val_mae"}
    assert result["samples_per_second"] == pytest.approx(
        1800 / 57 * result["measured_steps"] / result["measured_seconds"], rel=0.03
    )
    kinds = {"started", "phase", "progress", "epoch", "finished", "host", "gpu"}
    assert {event["type"] for event in happened(run, *kinds)} == kinds
    started = happened(run, "started")[0]
    assert (started["global_batch_size"], started["steps_per_epoch"], started["epochs"]) == (32, 57, 3)
    assert json.loads(ran(capsys, "compare", run.id, killed.id, "--json")[1])


# ---- the code of a run ---------------------------------------------------------------------------


PRESET_OF_PACKAGE = """
workload: {entry: 'train.py:build'}
input: {batch_size: 20}
train: {epochs: 1, validation_split: 0, seed: 1}
run: {checkpoint: epoch}
"""
TRAIN = """
import pathlib
import keras, numpy as np
import parts.sizes

HERE = pathlib.Path(__file__).parent

def build(context):
    print("UNITS", parts.sizes.units, flush=True)
    x = np.loadtxt(HERE / "x.csv")
    assert open("x.csv").read()  # the current package is the user's
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return {"model": made, "train": (x, x.sum(axis=1))}
"""


@pytest.fixture
def package(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine"
    (path / "parts").mkdir(parents=True)
    (path / "preset.yaml").write_text(PRESET_OF_PACKAGE)
    (path / "train.py").write_text(TRAIN)
    (path / "parts" / "sizes.py").write_text("units = 1\n")
    (path / "x.csv").write_text("\n".join(f"{n / 40} 1 0 1" for n in range(40)))
    monkeypatch.chdir(path)
    return path


def units(run: Run) -> list[str]:
    return [line for line in run.file("engine.log").read_text().splitlines() if line.startswith("UNITS")]


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.slow
@pytest.mark.nightly
def test_a_run_of_the_copy_goes_on_with_it_or_with_the_new_code_as_its_user_says(package: Path) -> None:
    run = detached("--preset", "preset.yaml", "--set", "run.code=copy", "--set", "epochs=100000")
    (package / "parts" / "sizes.py").write_text("units = 2\nmore = 3\n")  # the trainer has not imported it yet
    until(lambda: happened(run, "epoch", "error"))
    assert gputui("stop", run.id).returncode == 0
    assert ended(run)["outcome"] == "stopped"
    assert units(run) == ["UNITS 1"]

    refused = gputui("resume", run.id)
    assert refused.returncode == 2
    assert refused.stderr.splitlines() == [
        f"parts/sizes.py (2 lines) has changed since {run.name} was trained",
        f"undo that, or go on with the new code: gputui resume {run.name} --code=new; "
        "with the code that it was trained with: --code=copy",
    ]
    for code in ("copy", "new"):
        assert gputui("resume", run.id, f"--code={code}", "--detach").returncode == 0
        until(lambda: not run.is_active or run.status.get("phase") == "training")
        assert gputui("stop", run.id).returncode == 0
        assert ended(run)["outcome"] == "stopped"
    assert units(run) == ["UNITS 1", "UNITS 1", "UNITS 2"]
    assert [change["files"] for change in (run.result or {})["code_changes"]] == [["parts/sizes.py"]]
    assert run.file("code/parts/sizes.py").read_text() == "units = 2\nmore = 3\n"
    assert run.file("code-1/parts/sizes.py").read_text() == "units = 1\n"


@pytest.mark.usefixtures("forked_trainers")
@pytest.mark.slow
def test_a_queued_run_trains_the_code_of_its_queueing_though_the_file_is_broken_or_gone(package: Path) -> None:
    assert gputui("queue", "pause").returncode == 0
    queued = [gputui("--preset", "preset.yaml", "--queue", "--set", f"seed={seed}").stdout.strip() for seed in (1, 2)]
    first, second = (runs.find(name) for name in queued)
    (package / "train.py").write_text("def build(:\n")
    (package / "parts" / "sizes.py").write_text("units = 2\n")
    assert gputui("queue", "start").returncode == 0
    until(lambda: first.state == "ok")
    (package / "train.py").unlink()
    until(lambda: second.state not in ("waiting", "starting", "running"))
    assert [ended(run)["outcome"] for run in (first, second)] == ["ok", "ok"]
    assert units(first) == units(second) == ["UNITS 1"]
