"""The time of a sweep: what it keeps for the proof, which trials it stops, and what more minutes are used for."""

from __future__ import annotations

from pathlib import Path

from gputui.engine.trials.sweep_record import PROOF

from tests.support.swept import Timed, request_of, swept
from tests.sweep.test_sweep import loss

FOUR = "learning_rate=1e-3,2e-3,3e-3,4e-3"


def test_more_minutes_go_on_with_the_search_and_keep_the_proof(tmp_path: Path) -> None:
    """Each training takes 1 min. After 2 of 4 settings only the time of the proof, 6 min, is left."""
    trainings = Timed(loss)
    first = swept(request_of([FOUR], proof_seeds=3, minutes=8.5), trainings, tmp_path).sweep
    assert first is not None
    assert [trial.state for trial in first.trials] == ["done", "done", "not trained", "not trained", *["done"] * 6]
    assert first.winner == {"train.learning_rate": 0.002}
    more = request_of([FOUR], proof_seeds=3, minutes=20)
    second = swept(more, trainings, tmp_path).sweep
    assert second is not None
    assert second.settings.minutes == 20, "the record shows the new time"
    assert second.best == second.winner == {"train.learning_rate": 0.004}
    assert [trial.state for trial in second.trials[:4]] == ["done"] * 4
    assert not trainings.trained_twice(second)
    assert second.trials[:10] == [*first.trials[:2], *second.trials[2:4], *first.trials[4:]], "the proof is kept"
    assert len({trial.seed for trial in second.trials if trial.part == PROOF}) == 3, "all on the same fresh seeds"
    assert len(second.rivals) == 3, "the finalist 0.003, and both of the first proof"
    assert all(len(rival.differences) == 3 for rival in second.rivals)
