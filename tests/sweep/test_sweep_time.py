"""The time of a sweep: what it keeps for the proof, which trials it stops, and what more minutes are used for."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import ClassVar

import pytest
from gputui.engine.proof.request import Request
from gputui.engine.trials import sweep_sentences
from gputui.engine.trials.comparing import BaselineFailed, Stopped
from gputui.engine.trials.record import Record
from gputui.engine.trials.sweep_record import PROOF, SEARCH, SweepTrial
from gputui.engine.trials.trial_runner import Stop

from tests.support.swept import Timed, read_back, request_of, swept
from tests.sweep.test_sweep import loss

FOUR = "learning_rate=1e-3,2e-3,3e-3,4e-3"


def test_more_minutes_go_on_with_the_search_and_keep_the_proof(tmp_path: Path) -> None:
    """Each training takes 1 min. After 2 of 4 settings only the time of the proof, 6 min, is left."""

    class Seen(Timed):
        seen: ClassVar[list[object]] = []

        def pass_time(self, record: Record) -> None:
            sweep = record.sweep
            assert sweep is not None
            self.seen.append((sweep.best, sweep.winner, sweep.searched, sweep.proved, sweep.rivals))
            super().pass_time(record)

    trainings = Seen(loss)
    first = swept(request_of([FOUR], proof_seeds=3, minutes=8.5), trainings, tmp_path).sweep
    assert first is not None
    assert [trial.state for trial in first.trials] == ["done", "done", "not trained", "not trained", *["done"] * 6]
    assert first.winner == {"train.learning_rate": 0.002}
    more = request_of([FOUR], proof_seeds=3, minutes=20)
    trainings.seen.clear()
    second = swept(more, trainings, tmp_path).sweep
    assert trainings.seen[0] == (None, None, None, None, []), "what was proved does not count while the search goes on"
    assert second is not None
    assert second.settings.minutes == 20, "the record shows the new time"
    assert second.best == second.winner == {"train.learning_rate": 0.004}
    assert [trial.state for trial in second.trials[:4]] == ["done"] * 4
    assert not trainings.trained_twice(second)
    assert second.trials[:10] == [*first.trials[:2], *second.trials[2:4], *first.trials[4:]], "the proof is kept"
    assert len({trial.seed for trial in second.trials if trial.part == PROOF}) == 3, "all on the same fresh seeds"
    assert len(second.rivals) == 3, "the finalist 0.003, and both of the first proof"
    assert all(len(rival.differences) == 3 for rival in second.rivals)


def test_a_trial_that_trains_at_the_end_of_the_time_is_stopped_and_goes_on_with_more(tmp_path: Path) -> None:
    trainings = Timed(loss, epochs=30)

    def request(minutes: float) -> Request:
        made = request_of([FOUR], epochs=30, proof_seeds=0, minutes=minutes)
        return replace(made, preset=f"{made.preset}run: {{checkpoint: epoch}}\n")

    with pytest.raises(
        BaselineFailed, match="the 10 min ended before a trial had trained to its end, which takes about 30 min; give"
    ):
        swept(request(10), trainings, tmp_path)
    record = read_back(tmp_path)
    assert record.sweep is not None
    assert record.seconds < 11.1 * 60, "at most an epoch more"
    assert not trainings.flying
    first = record.sweep.trials[0]
    assert sweep_sentences.outcome(first) == "stopped: the time for the search was used up"
    assert len(trainings.trained[first.run]) == 10
    more = swept(request(32), trainings, tmp_path).sweep
    assert more is not None
    assert more.trials[0].state == "done", "21 min are enough for the other 20 epochs"
    more = swept(request(200), trainings, tmp_path).sweep
    assert more is not None
    assert [trial.state for trial in more.trials] == ["done"] * 4
    assert not trainings.trained_twice(more), "it goes on where it was stopped"


def test_a_slow_trial_takes_no_time_from_the_proof_and_one_of_the_proof_none_from_its_end(tmp_path: Path) -> None:
    """A training takes 2 min. The proof with 5 seeds takes 10 min on two devices, and 6 min with 3."""
    trainings = Timed(loss, epochs=2, devices=2, waits=10)
    trainings.slow = {"003": 100, "007": 100}
    request = request_of([FOUR], epochs=2, parallel=2, minutes=20)
    data = swept(request, trainings, tmp_path)
    assert data.sweep is not None
    assert data.seconds < 20.2 * 60
    assert [trial.state for trial in data.sweep.trials[:4]] == ["done", "done", "stopped", "done"]
    proof = [trial for trial in data.sweep.trials if trial.part == PROOF]
    assert sum(trial.state == "done" for trial in proof) >= 3
    assert next(trial for trial in proof if trial.run.endswith("007")).state == "stopped"
    assert "stopped 1" in data.ended_because
    assert not trainings.flying


def test_time_for_the_proof_is_kept_before_any_halved_trial_is_complete(tmp_path: Path) -> None:
    """A training takes 9 min, so that the proof takes 18 min on five devices, and two complete settings 8 min more.

    All 60 first epochs would take 12 min.
    """
    rates = "learning_rate=" + ",".join(f"{number}e-5" for number in range(100, 160))
    trainings = Timed(loss, epochs=9, devices=5)
    request = request_of([rates], epochs=9, rungs=[1, 3], factor=100, parallel=5, minutes=36)
    data = swept(request, trainings, tmp_path)
    assert data.sweep is not None
    assert data.seconds < 36.1 * 60
    assert sum(trial.state == "not trained" for trial in data.sweep.trials) > 5
    proof = [trial.state for trial in data.sweep.trials if trial.part == PROOF]
    assert proof == ["done"] * 10


def test_without_time_for_a_proof_the_search_has_all_of_it(tmp_path: Path) -> None:
    """A training takes 20 min, and the shortest proof 2 h."""
    data = swept(request_of([FOUR], epochs=20, minutes=65), Timed(loss, epochs=20), tmp_path)
    assert data.sweep is not None
    assert [trial.state for trial in data.sweep.trials[:4]] == ["done", "done", "done", "not trained"]
    assert "which is no proof" in sweep_sentences.result(data.sweep)
    assert data.ended_because.startswith("the time budget of 65 min left 1 of 4 trials untrained; ")


def test_the_expected_time_of_a_sweep_is_that_of_its_ended_trials_and_at_most_its_minutes(tmp_path: Path) -> None:
    """Each of the 4 trainings of the search and the 6 of the proof takes 100 min."""
    expected: list[float | None] = []

    class Watched(Timed):
        def pass_time(self, record: Record) -> None:
            expected.append(record.budget_seconds)
            super().pass_time(record)

    swept(request_of([FOUR], proof_seeds=3, minutes=1000.5), Watched(loss, seconds=6000.0), tmp_path)
    assert expected[0] is None, "no trial has ended"
    assert expected[1:] == pytest.approx([60_000.0] * 9, rel=1e-3)
    (tmp_path / "short").mkdir()
    expected.clear()
    swept(request_of([FOUR], proof_seeds=3, minutes=700), Watched(loss, seconds=6000.0), tmp_path / "short")
    assert expected[1:] == [42_000.0] * (len(expected) - 1)


class Asking(Timed):
    """Trainings of a sweep that is asked to stop when its proof begins."""

    def __init__(self) -> None:
        super().__init__(loss)
        self.requests = Stop()

    def pass_time(self, record: Record) -> None:
        if record.doing.startswith("proof"):
            self.requests.ask()
        super().pass_time(record)


def stopped_before_its_proof(path: Path) -> Asking:
    """Of four settings, 0.001 and 0.002 are trained in the 8.5 min, and are the finalists."""
    trainings = Asking()
    with pytest.raises(Stopped):
        swept(request_of([FOUR], proof_seeds=3, minutes=8.5), trainings, path, trainings.requests)
    return trainings


def test_finalists_that_more_minutes_replace_are_not_called_untrained(tmp_path: Path) -> None:
    """Their trials of the proof are left out."""
    trainings = stopped_before_its_proof(tmp_path)
    data = swept(request_of([FOUR], proof_seeds=3, minutes=30), trainings, tmp_path)
    assert data.sweep is not None
    assert data.sweep.finalists == [{"train.learning_rate": 0.004}, {"train.learning_rate": 0.003}]
    assert [trial.state for trial in data.sweep.trials if trial.part == PROOF].count("not trained") == 5
    assert data.ended_because == ""


def test_a_sweep_that_is_resumed_in_its_proof_trains_no_more_settings(tmp_path: Path) -> None:
    trainings = stopped_before_its_proof(tmp_path)
    data = swept(request_of([FOUR], proof_seeds=3, minutes=8.5), trainings, tmp_path)
    assert data.sweep is not None
    searched, proved = ([trial.state for trial in data.sweep.trials if trial.part == part] for part in (SEARCH, PROOF))
    assert searched == ["done", "done", "not trained", "not trained"]
    assert len(proved) == 6
    assert data.sweep.winner == {"train.learning_rate": 0.002}
    assert data.ended_because.startswith("the time budget of 8.5 min left 2 of 4 trials untrained")


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
                stop.ask_by_person()
            if stop.count == 4:
                self._queue.clear()

    with pytest.raises(BaselineFailed):
        swept(request_of([FOUR], epochs=99, proof_seeds=0, minutes=2, ahead=0), Slow(loss, epochs=99), tmp_path, stop)
    assert asked == [0, 2, 3], "the first request of a person asks no more than the end of the time"


@pytest.mark.parametrize("ahead", [0, 1])
def test_the_queue_gets_as_many_trials_as_train_at_once_and_those_that_wait(tmp_path: Path, ahead: int) -> None:
    class Counted(Timed):
        most = 0

        def pass_time(self, record: Record) -> None:
            self.most = max(self.most, len(self.flying))
            super().pass_time(record)

    trainings = Counted(loss, devices=4)
    swept(request_of([FOUR], proof_seeds=0, parallel=2, ahead=ahead), trainings, tmp_path)
    assert trainings.most == 2 + ahead
