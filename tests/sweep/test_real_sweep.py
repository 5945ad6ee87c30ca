"""A sweep through the command, with real trainings in the queue."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from gputui.engine import runs
from gputui.engine.proof import folder
from gputui.engine.runs import Run, part_of_sweep, runs_folder, titles
from gputui.engine.runs.event_reading import read_events
from gputui.engine.runs.events import EVENTS_FILE, EpochEnd, Started

from tests.support.front_door import gputui

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
    assert part_of_sweep.changes(run) == paused["changes"]
    assert part_of_sweep.sweep_of(run) == folder.find("latest").id
    dropped = Run(runs_folder() / next(trial["run"] for trial in searched if trial["state"] == "dropped"))
    assert part_of_sweep.pause_after(dropped) is None, "a person who resumes it trains it to its end"
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
