"""Runs know the code that they train: a run of a copy, edited code, resuming, and the comparison, as a user does it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.runs import Run

from tests.support.front_door import detached, ended, gputui, happened, until

pytestmark = [pytest.mark.usefixtures("nothing_left_running", "forked_trainers"), pytest.mark.slow]

PRESET = """
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
    assert open("x.csv").read()  # the current folder is the user's
    made = keras.Sequential([keras.Input((4,)), keras.layers.Dense(1)])
    made.compile("sgd", "mse")
    return {"model": made, "train": (x, x.sum(axis=1))}
"""


@pytest.fixture
def folder(tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "mine"
    (path / "parts").mkdir(parents=True)
    (path / "preset.yaml").write_text(PRESET)
    (path / "train.py").write_text(TRAIN)
    (path / "parts" / "sizes.py").write_text("units = 1\n")
    (path / "x.csv").write_text("\n".join(f"{n / 40} 1 0 1" for n in range(40)))
    monkeypatch.chdir(path)
    return path


def printed(run: Run) -> list[str]:
    return [line for line in run.file("engine.log").read_text().splitlines() if line.startswith("UNITS")]


def test_a_run_of_the_copy_goes_on_with_it_or_with_the_new_code_as_its_user_says(folder: Path) -> None:
    run = detached("--preset", "preset.yaml", "--set", "run.code=copy", "--set", "epochs=100000")
    (folder / "parts" / "sizes.py").write_text("units = 2\nmore = 3\n")  # the trainer has not imported it yet
    until(lambda: happened(run, "epoch", "error"))
    assert gputui("stop", run.id).returncode == 0
    assert ended(run)["outcome"] == "stopped"
    assert printed(run) == ["UNITS 1"]

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
    assert printed(run) == ["UNITS 1", "UNITS 1", "UNITS 2"]
    assert [change["files"] for change in (run.result or {})["code_changes"]] == [["parts/sizes.py"]]
    assert run.file("code/parts/sizes.py").read_text() == "units = 2\nmore = 3\n"
    assert run.file("code-1/parts/sizes.py").read_text() == "units = 1\n"


@pytest.mark.needs("git")
def test_runs_of_the_same_and_of_other_code_are_compared_with_their_commits(folder: Path) -> None:
    for words in (["init", "-q"], ["add", "-A"], ["-c", "user.name=a", "-c", "user.email=a@b.c", "commit", "-qm", "x"]):
        subprocess.run(["git", *words], check=True)
    ids = []
    for text in ("units = 1\n", "units = 1\n", "units = 2\n"):
        (folder / "parts" / "sizes.py").write_text(text)
        done = gputui("--preset", "preset.yaml", "--detach")
        ids.append(done.stdout.strip())
        assert ended(runs.find(ids[-1]))["outcome"] == "ok", runs.find(ids[-1]).file("engine.log").read_text()
    commit = subprocess.run(["git", "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout[:7]
    compared = gputui("compare", *ids, "--json")
    assert compared.returncode == 0, compared.stderr
    told = json.loads(compared.stdout)
    assert told["code"]["differing"] == [[], [], ["parts/sizes.py"]]
    assert told["groups"] == [0, 0, 1], "a run of other code is no repeat"
    shown = gputui("compare", *ids, "--markdown").stdout
    (row,) = [line for line in shown.splitlines() if line.startswith("| code |")]
    cells = [commit, f"same ({commit})", f"differs: parts/sizes.py ({commit} with changes)"]
    assert [cell.strip() for cell in row.strip("|").split("|")][1:4] == cells


def test_a_queued_run_trains_the_code_of_its_queueing_though_the_file_is_broken_or_gone(folder: Path) -> None:
    assert gputui("queue", "pause").returncode == 0
    queued = [gputui("--preset", "preset.yaml", "--queue", "--set", f"seed={seed}").stdout.strip() for seed in (1, 2)]
    first, second = (runs.find(name) for name in queued)
    (folder / "train.py").write_text("def build(:\n")
    (folder / "parts" / "sizes.py").write_text("units = 2\n")
    assert gputui("queue", "start").returncode == 0
    until(lambda: first.state == "ok")
    (folder / "train.py").unlink()
    until(lambda: second.state not in ("waiting", "starting", "running"))
    assert [ended(run)["outcome"] for run in (first, second)] == ["ok", "ok"]
    assert printed(first) == printed(second) == ["UNITS 1"]
