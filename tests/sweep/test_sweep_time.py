"""What a sweep makes of its time and of the states of its trainings."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    BaselineFailed,
    ProofError,
    QueuedTrainings,
    Record,
    Run,
    Stop,
    SweepTrial,
    adding,
    entries,
    folder,
    part_of_sweep,
    presets,
    proof_start,
    runs,
    titles,
)
from tests.doors.engine import runs_runs_folder as runs_folder
from tests.support import recorded
from tests.support.queued import no_runner
from tests.support.swept import Timed, request_of, swept
from tests.sweep.test_sweep import loss

FOUR = "learning_rate=1e-3,2e-3,3e-3,4e-3"


def test_only_the_second_request_ends_trials_that_are_being_stopped_at_once(tmp_path: Path) -> None:
    """They are stopped as the time is over, and go on for a while."""
    asked: list[int] = []
    stop = Stop()

    class Slow(Timed):
        def stop(self, trial: SweepTrial) -> bool:
            asked.append(stop.count)
            return True

        def pass_time(self, record: Record) -> None:
            super().pass_time(record)
            if asked:
                for _ in range(2):
                    stop.ask()  # a scheduler's requests count once
                stop.ask_by_person()
            if stop.count == 4:
                self._queue.clear()

    with pytest.raises(BaselineFailed):
        swept(request_of([FOUR], epochs=99, proof_seeds=0, minutes=2, ahead=0), Slow(loss, epochs=99), tmp_path, stop)
    assert asked == [0, 2, 3], "the first request of a person asks no more than the end of the time"


RATE = "train.learning_rate"
RATES = "learning_rate=1e-3,2e-3,3e-3"
ONE = {RATE: 0.001}


def result(run: Run, **fields: Any) -> None:
    run.file("result.json").write_text(json.dumps(dict(run.result or {}) | fields))


@pytest.mark.parametrize(
    ("fields", "state", "error", "cause"),
    [
        ({"outcome": "ok"}, "done", "", ""),
        ({"outcome": "stopped"}, "stopped", "", ""),
        ({"outcome": "error", "error": {"kind": "nan", "message": "a\nb"}}, "failed", "a", "nan"),
        ({"outcome": "timeout", "error": {"kind": "time", "message": "m"}}, "failed", "m", "timeout"),
    ],
)
def test_a_trial_that_has_ended_has_the_figures_of_its_epochs(
    home: Path, fields: dict[str, Any], state: str, error: str, cause: str
) -> None:
    run = recorded.write(home, name="20261126-120000-s-001", seconds=100, gpus=0, epoch_seconds=20)
    result(run, seconds=77.0, **fields)
    look = QueuedTrainings(request_of([RATES]), "s").look(SweepTrial(run=run.id, changes={}, seed=1))
    assert (look.state, look.error, look.cause, look.seconds) == (state, error, cause, 77.0)
    assert (len(look.epochs), "val_loss" in look.epochs[-1]) == (4, True)
    assert look.epoch_seconds == (20.0 if state in ("done", "stopped") else None)


def test_a_trial_that_waits_leaves_the_queue_and_one_that_trains_is_asked_to_stop(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_runner(monkeypatch)
    asked: list[str] = []
    monkeypatch.setattr(runs, "request_stop", lambda run: asked.append(run.id))
    of_queue = QueuedTrainings(request_of([RATES]), "s")
    run = runs.create("swept", "schema_version: 1\n", more={"options.json": "{}"})
    entries.add_entry(entries.entry_of(run))
    trial = SweepTrial(run=run.id, changes={}, seed=1)
    assert of_queue.stop(trial)
    assert (entries.read(run.id), asked) == (None, [])
    entries.write(replace(entries.add_entry(entries.entry_of(run)), state="running"))
    assert of_queue.stop(trial)
    assert asked == [run.id]

    def refuse(run: Run) -> None:
        raise runs.RunError("its process id is not known yet")

    monkeypatch.setattr(runs, "request_stop", refuse)
    assert not of_queue.stop(trial), "it is asked again"


@pytest.mark.usefixtures("home")
def test_a_trial_is_made_once_with_its_pause_which_moves_on(monkeypatch: pytest.MonkeyPatch) -> None:
    queued: list[str] = []
    no_runner(monkeypatch)
    monkeypatch.setattr(adding, "queue_trial", lambda run, _anyway: queued.append(run.id))
    of_queue = QueuedTrainings(request_of([RATES], 9, rungs=[1, 3]), "20261127-101112-s")
    trial = SweepTrial(run="20261127-101112-s-001", changes=ONE, seed=7, until=1)
    of_queue.start(trial)
    run = Run(runs_folder() / trial.run)
    whole = {"sweep": "20261127-101112-s", "pause_after": 1, "changes": ONE, "seed": 7}
    assert json.loads(run.file(part_of_sweep.FILE).read_text()) == whole
    assert json.loads(run.file(titles.NOTES_FILE).read_text()) == {"tags": ["sweep-20261127-101112"]}
    options = presets.resolve(str(run.file("preset.yaml"))).options
    assert (options.train.seed, options.train.learning_rate, options.run.checkpoint) == (7, 0.001, "epoch")
    assert of_queue.look(trial).state == "planned", "it was not queued before the process was killed"
    made = run.file("preset.yaml").stat().st_mtime_ns
    for until in (3, None):
        trial.until = until
        of_queue.start(trial)
        assert json.loads(run.file(part_of_sweep.FILE).read_text()) == whole | {"pause_after": until}
    assert run.file("preset.yaml").stat().st_mtime_ns == made
    assert queued == [trial.run] * 3
    trial.until = 3
    entries.add_entry(entries.entry_of(run))
    of_queue.start(trial)
    assert part_of_sweep.read(run).pause_after is None, "it may have begun"
    assert len(queued) == 3, "it is in the queue"
    of_queue.let_go(trial)
    assert queued == [trial.run] * 3


def test_a_resumed_sweep_has_its_minutes_and_those_that_are_added(home: Path) -> None:
    made = folder.create(request_of([RATES], minutes=10.0))
    record = folder.empty_record(made.path, made.request)
    record.state = "stopped"
    record.put("ended")
    asked = proof_start.resumed(made, "sweep", 2.5)
    assert asked.sweep is not None
    assert (asked.sweep.minutes, asked.limit_seconds) == (12.5, 750.0)
    assert proof_start.resumed(made, "sweep") == made.request
    record.state = "done"
    record.put("ended")
    with pytest.raises(ProofError, match="gputui sweep --resume ID --minutes N goes on with it"):
        proof_start.resumed(made, "sweep")
    assert runs_folder().parent == home
