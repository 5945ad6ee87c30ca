"""Halving: which settings go on after a rung, and what of them is trained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gputui.engine.sweep import halving
from gputui.engine.trials import sweep_sentences
from gputui.engine.trials.record import Record
from gputui.engine.trials.sweep_record import SEARCH, SweepTrial

from tests.support.swept import Simulated, Timed, request_of, swept
from tests.sweep.test_sweep import loss


def test_halving_trains_no_epoch_twice_and_ends_the_bad_trials_early(tmp_path: Path) -> None:
    rates = "learning_rate=" + ",".join(f"{number}e-4" for number in range(1, 10))
    trainings = Simulated(loss, epochs=9)
    data = swept(request_of([rates], epochs=9, rungs=[1, 3], proof_seeds=2), trainings, tmp_path)
    sweep = data.sweep
    assert sweep is not None
    assert sweep.winner == {"train.learning_rate": 0.0009}
    assert not trainings.trained_twice(sweep)
    searched = [trial for trial in sweep.trials if trial.part == SEARCH]
    assert sum(len(trainings.trained[trial.run]) for trial in searched) < 9 * 9 / 2
    assert {trial.state for trial in searched} == {"done", "dropped"}
    assert sweep.seconds_saved == 10.0 * (9 * 9 - sum(len(trainings.trained[trial.run]) for trial in searched))
    assert sorted(trainings.given_up) == [trial.run for trial in searched if trial.state == "dropped"]
    assert "goes on, the others end" in sweep_sentences.saved(sweep)


def test_each_pause_and_the_end_of_a_trial_are_a_line_of_the_news(tmp_path: Path) -> None:
    told: dict[str, str] = {}

    class Told(Timed):
        def pass_time(self, record: Record) -> None:
            assert record.sweep is not None
            told.update(sweep_sentences.news(record.sweep))
            super().pass_time(record)

    request = request_of(["learning_rate=1e-3,2e-3,3e-3"], epochs=9, rungs=[1, 3], proof_seeds=0, finalists=1)
    sweep = swept(request, Told(loss, epochs=9, seconds=1.0), tmp_path).sweep
    assert sweep is not None
    told.update(sweep_sentences.news(sweep))
    best = next(trial.run for trial in sweep.trials if trial.state == "done")
    lines = [line.split("  ") for key, line in told.items() if key.startswith(f"{best} ")]
    assert len({line[3] for line in lines}) == 3, "each with the metric of its time"
    assert lines[2][2] == "done"


def test_a_setting_is_halved_by_the_mean_of_its_seeds_not_by_a_lucky_one(tmp_path: Path) -> None:
    """The setting with the best single trial is second by its mean."""
    losses = {0.001: (0.9, 0.9, 0.9), 0.002: (0.1, 0.8, 0.8), 0.003: (0.5, 0.5, 0.5)}

    def lucky(changes: Mapping[str, Any], seed: int, epoch: int) -> float:
        return losses[changes["train.learning_rate"]][seed - 1]

    request = request_of(["learning_rate=1e-3,2e-3,3e-3"], 3, rungs=[1], seeds=3, finalists=1, proof_seeds=0)
    sweep = swept(request, Simulated(lucky, epochs=3), tmp_path).sweep
    assert sweep is not None
    states = {trial.changes["train.learning_rate"]: set[str]() for trial in sweep.trials}
    for trial in sweep.trials:
        states[trial.changes["train.learning_rate"]].add(trial.state)
    assert states == {0.001: {"dropped"}, 0.002: {"dropped"}, 0.003: {"done"}}


def going_on(*settings: Sequence[tuple[str, Sequence[float | None]]]) -> str:
    """The run that goes on next: the letter of its setting and the number of its seed. Empty if none does.

    Each setting has the state of the trial with each seed, and its metrics after the rungs.
    """
    trials = [
        SweepTrial(run=f"{letter}{seed}", changes={"train.name": letter}, seed=seed, state=state, rungs=list(rungs))
        for letter, setting in zip("abcdef", settings, strict=False)
        for seed, (state, rungs) in enumerate(setting)
    ]
    trial = halving.to_go_on(trials, [1, 3], 2, higher=False)
    return trial.run if trial else ""


def test_the_trials_of_a_setting_go_on_together_once_all_have_reached_the_rung() -> None:
    bad, unfinished = [("paused", [0.9]), ("paused", [0.9])], [("paused", [0.1]), ("running", [])]
    assert going_on(bad, unfinished) == "", "only one of two settings has reached the rung"
    assert going_on(bad, [("paused", [0.1]), ("paused", [0.2])]) == "b0"
    assert going_on(bad, [("running", [0.1]), ("paused", [0.2])]) == "b1"
    better = [("paused", [0.0]), ("paused", [0.0])]
    assert going_on(bad, [("running", [0.5]), ("paused", [0.5])], better) == "b1", "it has gone on, and goes on whole"
    assert going_on(bad, [("done", [0.5, 0.4]), ("done", [0.5, 0.4])], better) == "c0"
    assert going_on(bad, [("failed", [0.1]), ("paused", [0.1])]) == "", "a setting that fails with a seed does not"
    assert going_on(bad, [("paused", [None]), ("paused", [0.1])]) == "a0", "not known is worst"
    assert going_on([("paused", [0.9, 0.9])], [("paused", [0.1, 0.8])], better) == "b0", "the highest rung first"


def test_settings_that_become_better_in_their_order_end_early_as_well(tmp_path: Path) -> None:
    """In the order of the grid, each would be better than all before, and nearly all would go on."""
    rates = [number / 1000 for number in range(1, 28)]
    over = "learning_rate=" + ",".join(map(str, rates))
    trainings = Simulated(lambda changes, seed, epoch: 1 - changes["train.learning_rate"] + 0.5 / epoch, epochs=27)
    swept(request_of([over], epochs=27, rungs=[1, 3, 9], proof_seeds=0), trainings, tmp_path)
    assert sum(map(len, trainings.trained.values())) < 0.3 * 27 * 27


def test_finalists_that_no_rung_promotes_are_trained_at_the_same_time(tmp_path: Path) -> None:
    trainings = Timed(loss, epochs=9, devices=2)
    request = request_of(["learning_rate=1e-3,2e-3"], 9, rungs=[1], parallel=2, proof_seeds=0)
    data = swept(request, trainings, tmp_path)
    assert data.sweep is not None
    assert [trial.state for trial in data.sweep.trials] == ["done", "done"]
    assert data.seconds < 9.1 * 60
