"""What a study of Optuna has of each proposal of a wide search: its state, value, constraint and result."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.trials.search_record import Candidate
from gputui.engine.trials.trial import Trial
from gputui.engine.trials.trial_runner import LEAST_REPORTS
from gputui.engine.tune.wide import members
from gputui.engine.tune.wide.search_axes import Axis
from gputui.engine.tune.wide.storage import StudyError
from gputui.engine.tune.wide.study import Proposal, SettingsResult, Study

from tests.support.proving import HERE
from tests.tune.test_wide import asked, needs_optuna, trials_in

BATCH, XLA = "input.batch_size", "compile.xla"
AXES = [Axis(BATCH, [8, 16, 32, 64]), Axis(XLA, choices={"off": {XLA: False}, "on": {XLA: True}})]


def joined(folder: Path, name: str = "a", seconds: float = 2.0) -> Study:
    study = Study(str(folder / "s.journal"), "quickstart", folder / name)
    study.join(members.common(asked(), HERE, seconds))
    return study


def settings_of(params: Any) -> dict[str, Any]:
    return {BATCH: AXES[0].numbers[params[BATCH]], **AXES[1].choices[params[XLA]]}


def ask(study: Study, seconds: float = 2.0) -> Proposal:
    return study.ask(AXES, settings_of, seconds)


def result(outcome: str, speed: float | None = None, peak: int | None = None) -> SettingsResult:
    return SettingsResult({BATCH: 16}, outcome, speed, 16, peak)


@needs_optuna
def test_each_result_of_a_proposal_is_told_as_optuna_understands_it(tmp_path: Path) -> None:
    study = joined(tmp_path)
    told: list[tuple[SettingsResult, float]] = [
        (result("ok", 1000.0, 5), 1.0), (result("slower", 400.0), 1.0), (result("oom"), 0.5), (result("memory"), 0.25),
        (result("error"), 1.0), (result("left out"), 1.0),
    ]  # fmt: skip
    for of_settings, excess in told:
        study.tell(ask(study), of_settings, excess)
    study.give_back(ask(study))
    study.tell_twin(ask(study), result("slower", 300.0))
    study.tell_twin(ask(study), result("ok", 900.0))
    open_ = ask(study)
    rows = [(trial.state.name, trial.value, trial.intermediate_values, trial.constraints or {})
            for trial in trials_in(tmp_path / "s.journal")]  # fmt: skip
    assert rows == [
        ("COMPLETE", 1000.0, {}, {}),
        ("PRUNED", None, {}, {}),
        ("PRUNED", None, {}, {"memory": 0.5}),
        ("PRUNED", None, {}, {"memory": 0.25}),
        ("PRUNED", None, {}, {"trains": 1.0}),
        ("PRUNED", None, {}, {"trains": 1.0}),
        ("FAIL", None, {}, {}),
        ("PRUNED", 300.0, {LEAST_REPORTS: 300.0}, {}),
        ("COMPLETE", 900.0, {}, {}),
        ("RUNNING", None, {}, {}),
    ]
    known = study.known()
    assert [each.found for each in known] == [
        *(each for each, _ in told), None, result("slower", 300.0), result("ok", 900.0), None]  # fmt: skip
    assert {each.member for each in known} == {members.name_of(tmp_path / "a")}
    assert known[-1].settings == open_.settings
    assert all(set(each.settings) == {BATCH, XLA} for each in known)
    assert [each.number for each in (open_, ask(study))] == [9, 10]
    assert joined(tmp_path, "b").of_this_search() == []
    assert study.finished_trials(members.common(asked(), HERE, 2.0)) == 9


@needs_optuna
def test_what_was_measured_without_a_proposal_is_added_with_its_place_on_the_axes(tmp_path: Path) -> None:
    study = joined(tmp_path)
    params = {BATCH: 1, XLA: "on"}
    for each in (result("ok", 1000.0, 7), result("slower", 400.0), result("oom"), result("timeout")):
        study.learn(params, each, AXES)
    trials = trials_in(tmp_path / "s.journal")
    assert [trial.params for trial in trials] == [params] * 4
    rows = [(trial.state.name, trial.value, trial.intermediate_values, trial.constraints or {}) for trial in trials]
    assert rows == [
        ("COMPLETE", 1000.0, {}, {}),
        ("PRUNED", None, {LEAST_REPORTS: 400.0}, {}),
        ("PRUNED", None, {}, {"memory": 1.0}),
        ("PRUNED", None, {}, {"trains": 1.0}),
    ]
    assert study.of_this_search()[0].found == result("ok", 1000.0, 7)


@needs_optuna
@pytest.mark.parametrize(("seconds", "patience"), [(10.0, 300.0), (30.0, 300.0), (31.0, 310.0)])
def test_others_see_until_when_a_trial_may_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float, patience: float
) -> None:
    study = joined(tmp_path)
    monkeypatch.setattr(time, "time", lambda: 5000.0)
    ask(study, seconds)
    monkeypatch.undo()
    (trial,) = trials_in(tmp_path / "s.journal")
    assert trial.user_attrs["member"]["until_t"] == 5000.0 + patience
    assert trial.user_attrs["member"]["search"] == members.name_of(tmp_path / "a")


@needs_optuna
def test_a_proposal_is_ended_if_it_is_below_a_share_of_the_best_after_three_reports(tmp_path: Path) -> None:
    study = joined(tmp_path)
    for speeds, ends in (([900.0, 700.0], [False, False]), ([700.0] * 4, [False, False, True, True]),
                         ([801.0] * 4, [False] * 4), ([700.0, 700.0, 900.0], [False] * 3)):  # fmt: skip
        judge = study.judge(ask(study), 1000.0)
        assert [judge(speeds[: count + 1]) for count in range(len(speeds))] == ends, speeds


@needs_optuna
def test_a_member_with_other_seconds_cannot_join(tmp_path: Path) -> None:
    joined(tmp_path)
    with pytest.raises(StudyError) as refused:
        joined(tmp_path, "b", 3.0)
    assert str(refused.value) == (
        f"the study 'quickstart' in {tmp_path / 's.journal'} was begun with other measured seconds of a trial (there "
        "2.0, here 3.0), so that speeds cannot be compared; give --name for a study of its own"
    )


@pytest.mark.parametrize(
    ("outcomes", "outcome"),
    [([], "left out"), (["ok"], "ok"), (["crashed", "ok"], "ok"), (["ok", "crashed"], "ok"),
     (["crashed", "oom"], "oom"), (["slower"], "slower")],
)  # fmt: skip
def test_the_result_of_a_candidate_is_a_success_or_its_last_outcome(outcomes: list[Any], outcome: str) -> None:
    trials = [Trial(side="s", repeat=1, run=str(n), outcome=each) for n, each in enumerate(outcomes)]
    candidate = Candidate(stage="wide", settings={XLA: True}, tried={}, trials=trials, samples_per_second=5.0,
                          peak_bytes=7)  # fmt: skip
    made = SettingsResult.of(candidate, 32)
    assert made == SettingsResult({XLA: True}, outcome, 5.0, 32, 7)
    assert made.is_feasible is (outcome in ("ok", "slower"))
