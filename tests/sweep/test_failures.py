"""Failures of trials: which end a sweep, what becomes of its other trials, and what a resumed sweep tries again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.sweep.trainings import Look
from gputui.engine.trials.comparing import BaselineFailed
from gputui.engine.trials.sweep_record import SweepTrial

from tests.support.swept import Simulated, read_back, request_of, swept
from tests.sweep.test_sweep import loss

SIX = "learning_rate=1e-3,2e-3,3e-3,4e-3,5e-3,6e-3"
BROKEN = ("001", "002", "003")


def held(trainings: Simulated, path: Path, **more: Any) -> str:
    """The error with which a sweep over six rates ends."""
    with pytest.raises(BaselineFailed) as fault:
        swept(request_of([SIX], **more), trainings, path)
    return str(fault.value)


def test_three_failures_with_one_cause_hold_the_sweep_and_a_repaired_one_goes_on(tmp_path: Path) -> None:
    broken = Simulated(loss, failing=dict.fromkeys(("002", "003", "004", "005", "006"), "no such file"))
    assert "3 trials in a row failed with one cause: no such file; gputui sweep --resume" in held(broken, tmp_path)
    assert len(broken.trained) <= 5
    broken.failing.clear()
    data = swept(request_of([SIX]), broken, tmp_path)
    assert data.sweep is not None
    assert data.sweep.winner == {"train.learning_rate": 0.006}


def test_a_trial_that_a_person_stops_is_not_out_of_time(tmp_path: Path) -> None:
    class Stopped(Simulated):
        def look(self, trial: SweepTrial) -> Look:
            look = super().look(trial)
            return replace(look, state="stopped") if trial.run.endswith("002") and look.state == "done" else look

    data = swept(request_of([SIX]), Stopped(loss), tmp_path)
    assert data.ended_because == "1 of 6 trials stopped, or taken out of the queue"


def test_a_held_sweep_leaves_no_trial_in_the_queue_or_training(tmp_path: Path) -> None:
    class Lasting(Simulated):
        def look(self, trial: SweepTrial) -> Look:
            is_short = trial.run[-3:] in BROKEN
            return super().look(trial) if is_short or trial.run not in self.flying else Look("running")

    trainings = Lasting(loss, failing=dict.fromkeys(BROKEN, "no such file"))
    assert "no such file" in held(trainings, tmp_path, parallel=5)
    assert len(trainings.trained) > 3
    assert not trainings.flying
    sweep = read_back(tmp_path).sweep
    assert sweep is not None
    assert {trial.state for trial in sweep.trials[3:]} <= {"stopped", "planned"}


def test_a_resumed_sweep_first_trains_the_trials_that_have_not_failed(tmp_path: Path) -> None:
    """Else three settings that cannot be trained would hold it again and again."""
    begun: list[tuple[str, str, str, str, float | None]] = []

    class Noted(Simulated):
        def start(self, trial: SweepTrial) -> None:
            begun.append((trial.run[-3:], trial.state, trial.error, trial.cause, trial.ended_t))
            super().start(trial)

    trainings = Noted(loss, failing=dict.fromkeys(BROKEN, "no such file"))
    held(trainings, tmp_path)
    begun.clear()
    sweep = swept(request_of([SIX]), trainings, tmp_path).sweep
    assert sweep is not None
    again = [each for each in begun if each[0] in BROKEN]
    assert again == [(run, "planned", "", "", None) for run in BROKEN], "nothing is said of the earlier failure"
    assert [(trial.state, trial.failures) for trial in sweep.trials[:6]] == [("failed", 1)] * 3 + [("done", 0)] * 3
    assert min(trial.ended_t or 0 for trial in sweep.trials[:3]) > max(
        trial.ended_t or 0 for trial in sweep.trials[3:6]
    )
    assert sweep.best == {"train.learning_rate": 0.006}


@pytest.mark.parametrize("cause", ["oom", "timeout"])
def test_settings_that_need_too_much_hold_the_sweep_only_if_all_do(tmp_path: Path, cause: str) -> None:
    some = Simulated(loss, failing=dict.fromkeys(("002", "003", "004", "005"), cause))
    (tmp_path / "some").mkdir()
    data = swept(request_of([SIX]), some, tmp_path / "some")
    assert data.sweep is not None
    assert data.sweep.best == {"train.learning_rate": 0.006}
    assert cause in held(Simulated(loss, failing=dict.fromkeys((*BROKEN, "004"), cause)), tmp_path)
