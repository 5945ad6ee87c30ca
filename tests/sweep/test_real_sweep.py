"""Sweeps through the command: real trainings in the queue, and machines that share a sweep or its home."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.doors.engine import EVENTS_FILE, EpochEnd, Run, Started, folder, part_of_sweep, read_events, runs, titles
from tests.doors.engine import runs_runs_folder as runs_folder
from tests.support import standing_in
from tests.support.front_door import gputui, until

# Mixed precision, callbacks with a state, and epochs that are counted from the second one.
PROGRAM = """
import keras
import numpy as np

def build(context):
    draw = np.random.default_rng(1)
    x = draw.normal(size=(80, 6)).astype("float32")
    y = (x.sum(axis=1) + draw.normal(size=80)).astype("float32")
    layers = [keras.layers.Dense(16, "relu"), keras.layers.Dropout(0.2), keras.layers.Dense(1, dtype="float32")]
    callbacks = [
        keras.callbacks.ReduceLROnPlateau("loss", factor=0.5, min_delta=1e9, patience=1),
        keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate * 0.9),
    ]
    return {"model": keras.Sequential([keras.Input((6,)), *layers]), "loss": "mse", "initial_epoch": 1,
            "train": (x, y), "validation": (x[:40], y[:40]), "callbacks": callbacks}
"""
PRESET = """
schema_version: 1
workload: {entry: "train.py:build"}
input: {batch_size: 20}
precision: {policy: mixed_bfloat16}
train: {epochs: 4, early_stop: val_loss}
run: {keep_best: val_loss}
"""


def epochs_of(run: Run) -> list[tuple[int, dict[str, float | None]]]:
    """The figures of each epoch of a run."""
    return [(event.epoch, dict(event.metrics)) for event in read_events(run.path, [EVENTS_FILE]).of(EpochEnd)]


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_a_halved_trial_has_the_losses_of_an_undisturbed_training(home: Path, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "mine.yaml").write_text(PRESET)
    mine = ("--preset", str(tmp_path / "mine.yaml"))
    over = ("--over", "learning_rate=1e-4,1e-3,1e-2")
    how = ("--halving", "1", "--proof-seeds", "0", "--minutes", "20", "-o", str(tmp_path / "best.yaml"), "--json")
    done = gputui("sweep", *mine, *over, *how, timeout=500)
    assert done.returncode == 0, done.stderr
    sweep = json.loads(done.stdout)["sweep"]
    assert "learning_rate" in (tmp_path / "best.yaml").read_text()
    searched = [trial for trial in sweep["trials"] if trial["part"] == "search"]
    assert {trial["state"] for trial in searched} == {"done", "dropped"}
    paused = next(trial for trial in searched if trial["state"] == "done" and trial["rungs"])
    run = Run(runs_folder() / paused["run"])
    starts = read_events(run.path, [EVENTS_FILE]).of(Started)
    assert [start.resumed_at_step for start in starts] == [None, 8], "it paused after its first epoch, and went on"
    assert titles.read_notes(run).tags == (f"sweep-{run.id[:15]}",)
    assert part_of_sweep.read(run).changes == paused["changes"]
    assert part_of_sweep.read(run).sweep == folder.find("latest").id
    dropped = Run(runs_folder() / next(trial["run"] for trial in searched if trial["state"] == "dropped"))
    assert part_of_sweep.read(dropped).pause_after is None, "a person who resumes it trains it to its end"
    part_of_sweep.set_pause(dropped, 1)  # as if it had been killed after the checkpoint of its rung
    assert "stopped" in gputui("resume", dropped.id, timeout=200).stdout
    assert [epoch for epoch, _ in epochs_of(dropped)] == [2]
    rate = paused["changes"]["train.learning_rate"]
    alone = gputui(*mine, "--set", f"learning_rate={rate}", "--set", f"seed={paused['seed']}", "--json")
    assert alone.returncode == 0, alone.stderr
    undisturbed = runs.find("latest")
    assert epochs_of(run) == epochs_of(undisturbed)
    assert "which is no proof" in done.stderr + gputui("proof", "latest").stdout
    report = gputui("proof", "latest", "--markdown").stdout
    assert all(trial["run"] in report for trial in sweep["trials"])


SWEEP = "sweep --preset quickstart --over learning_rate=1e-4,1e-3,1e-2 --proof-seeds 0 --minutes 20 --json"
TRAINS = """
    while folder.endswith("-002") and not os.path.exists(f"{folder}/../../go"):
        time.sleep(0.1)
    tell(type="epoch", epoch=1, step=1, metrics={"val_loss": float(folder[-1])}, seconds=1.0)
    with open(f"{folder}/result.json", "w") as stream:
        json.dump({"outcome": "ok", "seconds": 1.0}, stream)
    os._exit(0)
"""


def command_on(host: str, words: str) -> list[str]:
    """The command on a machine of that name, with processes of its own, which all end with it."""
    script = f"hostname {host}; exec {Path(sys.executable).parent}/gputui {words}"
    return ["unshare", "--uts", "--pid", "--fork", "--mount-proc", "--kill-child=KILL", "sh", "-c", script]


@pytest.mark.slow
@pytest.mark.needs("root")  # for unshare
@pytest.mark.nightly
def test_another_machine_goes_on_with_the_sweep_of_one_that_is_switched_off(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "site").mkdir()
    begins = standing_in.TRAINER.partition("    if asked :=")[0]
    (tmp_path / "site" / "sitecustomize.py").write_text(begins + TRAINS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "site"))
    nothing = subprocess.DEVNULL
    first = subprocess.Popen(command_on("first", SWEEP), stdout=nothing, stderr=nothing, stdin=nothing)
    try:
        until(lambda: (home / "proofs").exists() and any((home / "proofs").glob("2*/proof.json")))
        sweep = folder.find("latest")
        begun = runs_folder() / f"{sweep.id}-002" / EVENTS_FILE
        until(begun.exists)
        assert sweep.record.host == "first"
        again = command_on("second", f"sweep --resume {sweep.id} --json")
        refused = subprocess.run(again, capture_output=True, text=True, check=False, stdin=nothing, timeout=60)
        assert refused.returncode == 2
        assert refused.stderr == f"{sweep.id} is running; gputui proof {sweep.id} shows it\n"
    finally:
        first.kill()
        first.wait()
    (home / "go").touch()
    done = subprocess.run(again, capture_output=True, text=True, check=False, stdin=nothing, timeout=200)
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert record["host"] == "second"
    trials = record["sweep"]["trials"]
    assert sorted(os.listdir(runs_folder())) == [trial["run"] for trial in trials]
    assert {trial["state"] for trial in trials} == {"done"}
    assert max(Counter(json.dumps(trial["changes"]) for trial in trials).values()) == 1
    ends = [len(read_events(Run(runs_folder() / trial["run"]).path, [EVENTS_FILE]).of(EpochEnd)) for trial in trials]
    assert ends == [1, 1, 1], "what was complete was not trained again"
