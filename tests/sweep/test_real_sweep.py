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

SMALL = ("--set", "train.epochs=3", "--set", "train.steps_per_epoch=4")


def epochs_of(run: Run) -> list[tuple[int, dict[str, float | None]]]:
    """The figures of each epoch of a run."""
    return [(event.epoch, dict(event.metrics)) for event in read_events(run.path, [EVENTS_FILE]).of(EpochEnd)]


@pytest.mark.slow
@pytest.mark.usefixtures("forked_trainers")
def test_a_halved_trial_has_the_losses_of_an_undisturbed_training(home: Path, tmp_path: Path) -> None:
    over = ("--over", "learning_rate=1e-4,1e-3,1e-2")
    how = ("--halving", "1", "--proof-seeds", "0", "--minutes", "20", "-o", str(tmp_path / "best.yaml"), "--json")
    done = gputui("sweep", "--preset", "quickstart", *SMALL, *over, *how, timeout=500)
    assert done.returncode == 0, done.stderr
    sweep = json.loads(done.stdout)["sweep"]
    assert "learning_rate" in (tmp_path / "best.yaml").read_text()
    searched = [trial for trial in sweep["trials"] if trial["part"] == "search"]
    assert {trial["state"] for trial in searched} == {"done", "dropped"}
    paused = next(trial for trial in searched if trial["state"] == "done" and trial["rungs"])
    run = Run(runs_folder() / paused["run"])
    starts = read_events(run.path, [EVENTS_FILE]).of(Started)
    assert [start.resumed_at_step for start in starts] == [None, 4], "it paused after its first epoch, and went on"
    assert titles.read_notes(run).tags == (f"sweep-{run.id[:15]}",)
    assert part_of_sweep.changes(run) == paused["changes"]
    assert part_of_sweep.sweep_of(run) == folder.find("latest").id
    dropped = Run(runs_folder() / next(trial["run"] for trial in searched if trial["state"] == "dropped"))
    assert part_of_sweep.pause_after(dropped) is None, "a person who resumes it trains it to its end"
    part_of_sweep.set_pause(dropped, 1)  # as if it had been killed after the checkpoint of its rung
    assert "stopped" in gputui("resume", dropped.id, timeout=200).stdout
    assert [epoch for epoch, _ in epochs_of(dropped)] == [1]
    rate = paused["changes"]["train.learning_rate"]
    alone = gputui(
        "--preset", "quickstart", *SMALL, "--set", f"learning_rate={rate}", "--set", f"seed={paused['seed']}", "--json"
    )
    assert alone.returncode == 0, alone.stderr
    undisturbed = runs.find("latest")
    assert epochs_of(run) == epochs_of(undisturbed)
    assert "which is no proof" in done.stderr + gputui("proof", "latest").stdout
    report = gputui("proof", "latest", "--markdown").stdout
    assert all(trial["run"] in report for trial in sweep["trials"])
