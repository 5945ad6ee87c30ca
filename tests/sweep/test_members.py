"""The members of a shared sweep: when one is silent or has vanished, what each has in common, and what others read."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine.proof.request import Request
from gputui.engine.sweep import shared_study
from gputui.engine.sweep.shared_study import SharedStudy
from gputui.engine.trials import sweep_sentences
from gputui.engine.trials.sweep_record import SweepTrial
from gputui.engine.tune.wide import storage

from tests.support.swept import Simulated, request_of, swept
from tests.sweep.test_sweep import loss

RATE = "train.learning_rate"
RATES = "learning_rate=1e-3,2e-3"


class Clock:
    """The steady clock of the members, which only the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now

    def __getattr__(self, name: str) -> Any:
        return getattr(time, name)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(shared_study, "time", made)
    return made


def member(folder: Path, name: str, **more: Any) -> SharedStudy:
    """The member `name`, which has joined the study in the folder."""
    joined = SharedStudy(request_of([RATES], study=str(folder / "s.journal"), member=name, **more))
    joined.join()
    return joined


def trials_of(name: str) -> list[SweepTrial]:
    """The trials of the search in the record of the member `name`, before they begin."""
    return [
        SweepTrial(run=f"{name}-{place:03d}", changes={RATE: rate}, seed=1)
        for place, rate in enumerate((0.001, 0.002), 1)
    ]


@pytest.mark.needs("optuna")
def test_a_silent_member_is_seen_as_such_and_loses_its_trial_after_ten_minutes(tmp_path: Path, clock: Clock) -> None:
    host = socket.gethostname()
    first, second = (member(tmp_path, name) for name in "ab")
    ours, theirs = trials_of("a"), trials_of("b")
    assert first.claim(ours[0])
    assert not second.claim(theirs[0])
    first.sync(ours, "a", now=True)
    second.sync(theirs, "b", now=True)
    assert [(trial.run, trial.on, trial.state) for trial in theirs] == [
        ("a-001", host, "waiting"), ("b-002", "", "planned")]  # fmt: skip
    for seconds, words in ((149.0, host), (150.0, f"{host}, last seen 2 min ago")):
        clock.now = 1000 + seconds
        second.sync(theirs, "b", now=True)
        assert theirs[0].on == words
    first.sync(ours, "a", now=True)  # it was asleep, and shows that it is alive
    second.sync(theirs, "b", now=True)
    assert theirs[0].on == host
    clock.now += 599
    second.sync(theirs, "b", now=True)
    assert theirs[0].on == f"{host}, last seen 10 min ago"
    clock.now += 1
    second.sync(theirs, "b", now=True)
    assert theirs == trials_of("b"), "the trial is as it was, and anybody's"
    ours[0].state = "running"
    assert [trial.run for trial in first.sync(ours, "a", now=True)] == ["a-001"], "it still trains, for nothing"
    assert second.claim(theirs[0])
    first.sync(ours, "a", now=True)
    assert (ours[0].run, ours[0].on, ours[0].state) == ("b-001", host, "waiting")


@pytest.mark.needs("optuna")
def test_a_member_that_was_asleep_keeps_a_trial_that_nobody_has_taken_over(tmp_path: Path, clock: Clock) -> None:
    first, ours = member(tmp_path, "a"), trials_of("a")
    assert first.claim(ours[0])
    ours[0].state = "running"
    first.sync(ours, "a", now=True)
    clock.now += 700
    assert first.sync(ours, "a", now=True) == []
    assert (ours[0].run, ours[0].on, ours[0].state) == ("a-001", "", "running")
    theirs = trials_of("b")
    assert not member(tmp_path, "b").claim(theirs[0])


@pytest.mark.needs("optuna")
def test_a_member_shows_every_twenty_seconds_that_it_is_alive(tmp_path: Path, clock: Clock) -> None:
    import optuna

    first = member(tmp_path, "a")

    def shown() -> float:
        study = optuna.load_study(study_name="sweep small", storage=storage.opened(str(tmp_path / "s.journal")))
        sign: Mapping[str, Any] = study.user_attrs["member a"]
        assert sign["host"] == socket.gethostname()
        return float(sign["beat_t"])

    first.sync([], "a", now=True)
    begun = shown()
    clock.now += 19
    first.sync([], "a", now=True)
    assert shown() == begun
    clock.now += 1
    first.sync([], "a", now=True)
    assert shown() > begun


@pytest.mark.needs("optuna")
def test_a_member_reads_the_study_every_two_seconds_and_waits_for_news_of_others(tmp_path: Path, clock: Clock) -> None:
    first, second = (member(tmp_path, name) for name in "ab")
    ours, theirs = trials_of("a"), trials_of("b")
    second.sync(theirs, "b", now=True)
    assert first.claim(ours[0])
    first.sync(ours, "a", now=True)
    clock.now += 1.9
    second.sync(theirs, "b")
    assert theirs[0].state == "planned"
    clock.now += 0.1
    second.sync(theirs, "b")
    assert theirs[0].state == "waiting"
    assert not second.is_over(theirs, "search", has_time=True), "the other one trains"
    ours[0].state, ours[0].value, ours[0].error, ours[0].seconds = "done", 0.25, "", 7.0
    first.sync(ours, "a", now=True)
    second.sync(theirs, "b", now=True)
    assert theirs[0] == replace(ours[0], on=socket.gethostname(), run="a-001")
    for seconds, over in ((14.9, False), (0.1, True)):
        clock.now += seconds
        assert second.is_over(theirs, "search", has_time=True) is over, "another one may be about to begin"
    theirs[1].on, theirs[1].state = "h", "stopped"
    assert not second.is_over(theirs, "search", has_time=True), "it is resumed or taken over"
    assert second.is_over(theirs, "search", has_time=False)
    assert second.is_over(theirs, "proof", has_time=True)


@pytest.mark.needs("optuna")
@pytest.mark.parametrize(("metric", "best"), [("val_loss", 0.25), ("accuracy", 0.75)])
def test_other_programs_read_the_results_and_the_best_of_them(tmp_path: Path, metric: str, best: float) -> None:
    import optuna

    request = request_of([RATES], study=str(tmp_path / "s.journal"), member="a")
    object.__setattr__(request.sweep, "metric", metric)
    object.__setattr__(request.sweep, "higher", metric == "accuracy")
    joined = SharedStudy(request)
    joined.join()
    trials = trials_of("a")
    for trial, value in zip(trials, (0.25, 0.75), strict=True):
        assert joined.claim(trial)
        trial.state, trial.value = "done", value
    joined.sync(trials, "a", now=True)
    study = optuna.load_study(study_name="sweep small", storage=storage.opened(str(tmp_path / "s.journal")))
    states = [trial.state.name for trial in study.trials]
    assert (states.count("COMPLETE"), states.count("FAIL")) == (2, 3), "the beginning and two claims are no results"
    assert study.best_value == best


@pytest.mark.needs("optuna")
def test_a_trial_that_another_member_takes_over_begins_anew_in_the_records_of_all(tmp_path: Path, clock: Clock) -> None:
    first, second, third = (member(tmp_path, name) for name in "abc")
    ours, theirs, seen = trials_of("a"), trials_of("b"), trials_of("c")
    assert first.claim(ours[0])
    ours[0].state, ours[0].rungs, ours[0].error, ours[0].cause, ours[0].ended_t = "stopped", [0.5], "late", "x", 5.0
    first.sync(ours, "a", now=True)
    third.sync(seen, "c", now=True)
    told = (seen[0].state, seen[0].rungs, seen[0].error, seen[0].cause, seen[0].ended_t)
    assert told == ("stopped", [0.5], "late", "x", 5.0)
    second.sync(theirs, "b", now=True)
    clock.now += 600
    second.sync(theirs, "b", now=True)
    assert second.claim(theirs[0])
    third.sync(seen, "c", now=True)
    assert (seen[0].run, seen[0].state, seen[0].rungs, seen[0].value) == ("b-001", "waiting", [], None)
    assert (seen[0].error, seen[0].cause, seen[0].ended_t) == ("", "", None)
    assert sweep_sentences.outcome(seen[0]) == f"waiting on {socket.gethostname()}"


@pytest.mark.needs("optuna")
def test_a_study_has_sweeps_of_several_names(tmp_path: Path) -> None:
    import optuna

    trial = trials_of("a")[0]
    assert all(member(tmp_path, name, study_name=name).claim(trial) for name in ("one", "two"))
    assert not member(tmp_path, "three", study_name="two").claim(trials_of("c")[0])
    assert sorted(optuna.get_all_study_names(storage.opened(str(tmp_path / "s.journal")))) == ["sweep one", "sweep two"]


@pytest.mark.needs("optuna")
def test_a_member_that_fails_gives_back_what_another_machine_may_train(tmp_path: Path) -> None:
    first, second = (member(tmp_path, name) for name in "ab")
    ours, theirs = trials_of("a"), trials_of("b")
    for trial, cause in zip(ours, ("nan", "no such file"), strict=True):
        assert first.claim(trial)
        trial.state, trial.cause, trial.error = "failed", cause, cause
    first.leave(ours, "a", ("failed",))
    second.sync(theirs, "b", now=True)
    assert [(trial.state, trial.cause, trial.run) for trial in theirs] == [
        ("failed", "nan", "a-001"), ("planned", "", "b-002")]  # fmt: skip
    assert not second.claim(theirs[0])
    assert second.claim(theirs[1])


@pytest.mark.needs("optuna")
def test_a_paused_trial_of_another_member_has_ended_once_the_search_has(tmp_path: Path) -> None:
    first, second = (member(tmp_path, name) for name in "ab")
    ours, theirs = trials_of("a"), trials_of("b")
    assert first.claim(ours[0])
    ours[0].state, ours[0].rungs = "paused", [0.5]
    first.sync(ours, "a", now=True)
    second.sync(theirs, "b", now=True)
    assert (theirs[0].state, theirs[0].rungs) == ("paused", [0.5])
    chosen = {"finalists": [{RATE: 0.002}], "searched": 0.1, "compared": 1}
    assert second.choose(chosen) == chosen
    assert second.choose({"finalists": []}) == chosen, "the first choice counts"
    second.sync(theirs, "b", now=True)
    assert theirs[0].state == "dropped"


@pytest.mark.needs("optuna")
def test_a_member_that_has_ended_has_reported_all_that_it_has_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its last trainings take less than the time between two readings of the study."""
    monkeypatch.setattr(shared_study, "SYNC_SECONDS", 0.5)
    request = request_of([RATES], study=str(tmp_path / "s.journal"), member="a", proof_seeds=3)
    sweep = swept(request, Simulated(loss), tmp_path, study=SharedStudy(request)).sweep
    assert sweep is not None
    read = [SweepTrial(run="b", changes=each.changes, seed=each.seed, part=each.part) for each in sweep.trials]
    member(tmp_path, "b", proof_seeds=3).sync(read, "b", now=True)
    assert len(read) == 2 + 2 * 3
    assert [(trial.run, trial.state, trial.value) for trial in read] == [
        (trial.run, "done", trial.value) for trial in sweep.trials]  # fmt: skip


@pytest.mark.needs("optuna")
def test_all_members_train_with_the_seeds_of_the_first_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_study, "QUIET_SECONDS", 0.0)
    monkeypatch.setattr(shared_study, "SYNC_SECONDS", 0.0)
    common: dict[str, Any] = {"seeds": 2, "proof_seeds": 3}
    first, alone = (request_of([RATES], study=study, member="a", **common) for study in (f"{tmp_path}/s.journal", None))
    SharedStudy(replace(first, seed=7)).join()
    second = replace(request_of([RATES], study=f"{tmp_path}/s.journal", member="b", **common), seed=99)
    seeds = []
    for request, study in ((second, SharedStudy(second)), (replace(alone, seed=7), None)):
        folder = tmp_path / str(request.seed)
        folder.mkdir()
        sweep = swept(request, Simulated(loss), folder, study=study).sweep
        assert sweep is not None
        seeds.append([trial.seed for trial in sweep.trials])
    assert seeds[0] == seeds[1]
    assert seeds[0][:4] == [7, 7, 8, 8]


# ---- what members have in common -----------------------------------------------------------------


def changed(preset: str, **sweep: Any) -> Request:
    made = request_of([RATES], study="s", member="a", **sweep)
    return replace(made, preset=f"{made.preset}{preset}")


@pytest.mark.parametrize(
    ("preset", "sweep", "words"),
    [
        ("", {}, ""),
        ("", {"minutes": 7.0, "parallel": 3, "ahead": 0, "one_gpu_each": True}, ""),
        ("run: {checkpoint: 'off', keep: 9}\n", {}, ""),
        ("device: {visible: none}\n", {}, ""),
        ("notify: {command: echo, when: end}\n", {}, ""),
        ("input: {cache: memory}\n", {}, ""),
        ("input: {batch_size: 16}\n", {}, "input.batch_size (there 16, here 64)"),
        ("compile: {xla: true}\n", {}, "compile.xla (there true, here auto)"),
        ("", {"seeds": 2}, "--seeds"),
        ("", {"proof_seeds": 3}, "--proof-seeds"),
        ("", {"finalists": 3}, "--finalists"),
        ("", {"higher": True}, "--metric"),
        ("", {"most_trials": 3}, "--trials"),
        ("", {"rungs": [1]}, "--halving"),
        ("", {"factor": 2}, "--factor"),
        ("", {"sampler": "random"}, "--sampler"),
    ],
)
def test_members_differ_in_what_is_learnt_and_not_in_their_machines(
    preset: str, sweep: dict[str, Any], words: str
) -> None:
    there, here = (shared_study.definition_of(each) for each in (changed(preset, **sweep), changed("")))
    assert shared_study.difference(there, here) == words


def test_data_and_code_of_members_may_be_in_other_folders() -> None:
    def definition(folder: str, name: str = "cats") -> Mapping[str, Any]:
        made = request_of([RATES], study="s", member="a")
        preset = f"schema_version: 1\nworkload: {{data: 'images:{folder}/{name}', model: cnn}}\n"
        return shared_study.definition_of(replace(made, preset=preset))

    assert shared_study.difference(definition("/data"), definition("/mnt/data/")) == ""
    other = shared_study.difference(definition("/data", "dogs"), definition("/mnt"))
    assert other == "workload.data (there dogs, here cats)"
    versions = definition("/data")["versions"]
    assert shared_study.difference({**definition("/data"), "versions": {"keras": "1"}}, definition("/data")) == (
        f"tensorflow (there null, here {versions['tensorflow']})"
    )
