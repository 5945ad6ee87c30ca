"""The combinations of a wide search: its axes, what becomes of each value, and which members may share a study."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from gputui.engine import presets
from gputui.engine.job.machine_gpus import Gpu
from gputui.engine.options import Options
from gputui.engine.proof.process import processor
from gputui.engine.trials.search_record import Candidate, Limits
from gputui.engine.trials.trial import Trial
from gputui.engine.tune.candidates.search_space import Space
from gputui.engine.tune.wide import members, search_axes, storage
from gputui.engine.tune.wide.search_axes import AS_IT_IS, Axis, Combinations, axes_of
from gputui.engine.tune.wide.study import SettingsResult, Study

from tests.support.proving import HERE, Planted, searching, started
from tests.tune.test_wide import asked, needs_optuna, only_xla, together, trials_in, wide

BATCH, STEPS, XLA = "input.batch_size", "compile.steps_per_execution", "compile.xla"
INTER, INTRA = "device.inter_op_threads", "device.intra_op_threads"


def space(samples: int | None = 1000, **limits: Any) -> Space:
    built = replace(started(presets.resolve("quickstart").options, 32), train_samples=samples)
    return Space(Limits(**limits), HERE, built)


def preset() -> Any:
    return presets.resolve("quickstart", ["batch_size=20", "xla=false", "steps_per_execution=1"])


def test_an_axis_is_an_option_or_options_that_change_together() -> None:
    only = ["batch_size", "steps_per_execution", "xla", "threads"]
    axes = axes_of(space(only=only), preset())
    assert axes == [
        Axis(BATCH, [1, 2, 3, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64, 96]),
        Axis(STEPS, [1, 2, 4, 8, 16, 32, 64]),
        Axis(XLA, choices={AS_IT_IS: {XLA: False}, "xla=true": {XLA: True}}),
        Axis("threads", choices={
            AS_IT_IS: {INTER: "auto", INTRA: "auto"},
            "inter_op_threads=1, intra_op_threads=2": {INTER: 1, INTRA: 2},
            "inter_op_threads=2, intra_op_threads=1": {INTER: 2, INTRA: 1},
        }),
    ]  # fmt: skip
    assert search_axes.from_plain(search_axes.as_plain(axes)) == axes
    assert [len(axis) for axis in axes] == [14, 7, 2, 3]
    assert len(Combinations(axes, space(), preset())) == 14 * 7 * 2 * 3
    assert axes_of(space(only=["xla"], leave=[XLA]), preset()) == []
    assert axes_of(space(only=["batch_size"], leave=[BATCH]), preset()) == []


def test_the_options_of_the_input_have_an_axis_each() -> None:
    axes = axes_of(
        space(only=["input"]), presets.resolve("quickstart", ["cache=off", "prefetch=off", "parallel_calls=off"])
    )
    assert [axis.name for axis in axes if axis.name.startswith("input.")] == [axis.name for axis in axes]
    calls = next(axis for axis in axes if axis.name == "input.parallel_calls")
    assert list(calls.choices) == [AS_IT_IS, "parallel_calls=auto", "parallel_calls=2"]
    assert calls.settings("parallel_calls=2") == {"input.parallel_calls": 2}
    assert calls.value({"input.parallel_calls": "off"}) == AS_IT_IS
    assert calls.value({"input.parallel_calls": 7}) is None


def test_a_number_is_the_nearest_of_its_axis_if_it_is_near() -> None:
    axis = Axis(BATCH, [16, 32, 64])
    values = {batch: axis.value({BATCH: batch}) for batch in (12, 13, 20, 21, 25, 26, 40, 41, 80, 81)}
    assert values == {12: None, 13: 0, 20: 0, 21: None, 25: None, 26: 1, 40: 1, 41: None, 80: 2, 81: None}
    assert axis.settings(2) == {BATCH: 64}
    assert axis.keys == [BATCH]


@pytest.mark.parametrize(
    ("samples", "params", "settings"),
    [
        (1000, {BATCH: 8, STEPS: 6}, {STEPS: 50}),  # as many steps as a pass of 20 has
        (1000, {BATCH: 13, STEPS: 6}, {BATCH: 96, STEPS: 10}),
        (None, {BATCH: 13, STEPS: 6}, {BATCH: 96, STEPS: 64}),
        (100, {BATCH: 13, STEPS: 3}, {BATCH: 10, STEPS: 8}),  # a pass keeps ten steps
        (1000, {BATCH: 8, STEPS: 0}, {}),
    ],
)
def test_a_combination_is_reduced_to_what_its_data_allows(
    samples: int | None, params: dict[str, int], settings: dict[str, int]
) -> None:
    axes = axes_of(space(only=["batch_size", "steps_per_execution"]), preset())
    assert Combinations(axes, space(samples), preset()).settings(params) == settings


def test_settings_have_a_place_on_the_axes_unless_an_option_has_none() -> None:
    combinations = Combinations(axes_of(space(only=["steps_per_execution", "xla"]), preset()), space(), preset())
    assert combinations.params({XLA: True}) == {STEPS: 0, XLA: "xla=true"}
    assert combinations.params({STEPS: 15}) == {STEPS: 4, XLA: AS_IT_IS}
    assert combinations.params({STEPS: 11}) is None, "it is near to neither 8 nor 16"
    assert combinations.params({"input.cache": "memory"}) is None
    assert combinations.params({XLA: "auto"}) is None


@pytest.mark.parametrize(
    ("outcomes", "speed", "result"),
    [
        (["ok"], 100.0, SettingsResult({XLA: True}, "ok", 100.0, 32, 7)),
        (["crashed", "ok"], 100.0, SettingsResult({XLA: True}, "ok", 100.0, 32, 7)),
        (["slower"], 50.0, SettingsResult({XLA: True}, "slower", 50.0, 32, 7)),
        (["crashed", "oom"], None, SettingsResult({XLA: True}, "oom", None, 32, 7)),
        ([], None, SettingsResult({XLA: True}, "left out", None, 32, 7)),
    ],
)
def test_the_result_of_a_candidate_for_the_others(
    outcomes: list[Any], speed: float | None, result: SettingsResult
) -> None:
    trials = [Trial(side="s", repeat=n, run=str(n), outcome=outcome) for n, outcome in enumerate(outcomes)]
    candidate = Candidate(
        stage="wide", settings={XLA: True}, tried={XLA: True}, trials=trials, samples_per_second=speed, peak_bytes=7
    )
    assert SettingsResult.of(candidate, 32) == result
    assert result.is_feasible is (result.outcome in ("ok", "slower"))


# ---- members --------------------------------------------------------------------------------------


def test_what_members_have_in_common() -> None:
    wanted = asked(leave=["input.shuffle", "compile.xla"], precisions=["mixed_float16", "float32"], memory_bytes=5)
    gpus = tuple(Gpu(number, f"GPU-{number}", "T4", (7, 5), 2**34) for number in range(2))
    common = members.common(wanted, replace(HERE, gpus=gpus), 2.0)
    digest = common.pop("preset")
    assert common.pop("tensorflow")
    assert common == {
        "gpus": ["T4", "T4"], "processor": processor(), "cpus": 2, "only": ["steps_per_execution", "xla"],
        "leave": ["compile.xla", "input.shuffle"], "memory_bytes": 5, "largest_batch": None,
        "precisions": ["float32", "mixed_float16"], "seconds": 2.0,
    }  # fmt: skip
    again = members.common(asked(minutes=99, precisions=["float32"]), HERE, 2.0)
    assert again["preset"] == digest, "the limits are no part of the preset"
    assert (again["gpus"], again["leave"], again["precisions"]) == ([], [], ["float32"])


@pytest.mark.parametrize(
    ("key", "there", "here", "words"),
    [
        ("gpus", ["T4", "T4", "A"], [], "other GPUs (there 2 x T4, A, here none)"),
        ("cpus", 2048, 2, "other CPUs (there 2,048, here 2)"),
        ("processor", None, "Xeon", "other processor (there none, here Xeon)"),
        ("preset", "a", "b", "another preset, or other settings of it"),
        ("only", ["xla"], ["xla", "input"], "other --only (there xla, here xla, input)"),
        ("memory_bytes", None, 5, "other --memory-gb (there none, here 5)"),
        ("precisions", ["float32"], None, "other --precision (there float32, here none)"),
        ("seconds", 5.0, 2.0, "other measured seconds of a trial (there 5.0, here 2.0)"),
    ],
)
def test_the_first_difference_of_two_members_in_words(key: str, there: Any, here: Any, words: str) -> None:
    alike = dict.fromkeys(members.NAMES)
    assert members.difference(alike, alike) == ""
    assert members.difference(alike | {key: there}, alike | {key: here}) == words


@pytest.mark.parametrize(("late", "ended"), [(119.0, False), (121.0, True)])
def test_a_member_elsewhere_has_two_minutes_more(monkeypatch: pytest.MonkeyPatch, late: float, ended: bool) -> None:
    monkeypatch.setattr(time, "time", lambda: 5000.0 + late)
    assert members.has_ended({"until_t": 5000.0, "host": "other", "boot_id": "b", "pid_namespace": "1"}) is ended
    assert not members.has_ended({"host": "other"}), "nothing is known of it"


@needs_optuna
def test_a_resumed_member_does_not_repeat_its_proposals(tmp_path: Path) -> None:
    axis = Axis(BATCH, range(1, 1001))
    numbers, drawn = [], []
    for _ in range(2):
        study = Study(str(tmp_path / "s.journal"), "quickstart", tmp_path)
        study.join(members.common(asked(), HERE, 2.0))
        made = [study.ask([axis], lambda params: axis.settings(params[BATCH]), 2.0) for _ in range(3)]
        numbers += [proposal.number for proposal in made]
        drawn.append([proposal.settings for proposal in made])
        for proposal in made:
            study.give_back(proposal)
    assert numbers == [0, 1, 2, 3, 4, 5]
    assert drawn[0] != drawn[1]


@needs_optuna
def test_the_best_of_others_was_trained_to_its_end(tmp_path: Path) -> None:
    axes = [Axis(XLA, choices={"off": {XLA: False}, "on": {XLA: True}}), Axis(BATCH, [16, 32, 64])]
    first, second = (Study(str(tmp_path / "s.journal"), "quickstart", tmp_path / name) for name in "ab")
    for study in (first, second):
        study.join(members.common(asked(), HERE, 2.0))
    assert second.best_of_others() is None
    results = [
        SettingsResult({XLA: True}, "slower", 5000.0, 32), SettingsResult({BATCH: 64}, "oom", None, 64, 9),
        SettingsResult({BATCH: 16}, "ok", 900.0, 16), SettingsResult({}, "ok", 1000.0, 32),
    ]  # fmt: skip
    for result in results:
        params = {XLA: "on" if result.settings.get(XLA) else "off", BATCH: [16, 32, 64].index(result.batch)}
        first.learn(params, result, axes)
    assert second.best_of_others() == results[3]
    assert first.best_of_others() is None
    assert second.settings_results() == [results[0], results[3], results[2], results[1]], "the fastest first"
    assert (len(first.of_this_search()), second.of_this_search(), second.members) == (4, [], 2)
    states = [trial.state.name for trial in trials_in(tmp_path / "s.journal")]
    assert states == ["PRUNED", "PRUNED", "COMPLETE", "COMPLETE"]


@needs_optuna
def test_every_combination_is_measured_once_and_slower_settings_of_others_are_left_to_them(tmp_path: Path) -> None:
    location = str(tmp_path / "s.journal")
    first, bench = searching(tmp_path / "a", asked(study=location, only=["xla"], wide="instead"), only_xla)
    first.run()
    assert first.record.ended_because == "every combination was measured"
    assert len(bench.asked) == 1 + 1 + 6, "the preset, the other combination, the pairs"

    def faster(options: Options, before: int) -> Planted:
        return Planted(samples_per_second=3000.0, loss=2.0)

    second, bench = searching(tmp_path / "b", asked(study=location, only=["xla"], wide="instead"), faster)
    second.run()
    assert second.record.ended_because == "every combination was measured"
    assert (len(bench.asked), wide(second)) == (1, []), "the preset is faster here than all that others have measured"
    assert second.search.study is not None
    assert second.search.study.members == 2
    assert second.search.study.of_others == second.search.study.trials - 1


@needs_optuna
def test_settings_of_another_member_that_are_slower_here_are_tried_once(tmp_path: Path) -> None:
    location, wanted = str(tmp_path / "s.journal"), asked(study=str(tmp_path / "s.journal"), wide="instead")
    other = Study(location, "quickstart", tmp_path / "a")
    other.join(members.common(wanted, HERE, 2.0))
    axes = other.agree(axes_of(space(only=["xla", "steps_per_execution"]), wanted.baseline()))
    theirs = SettingsResult({XLA: True}, "ok", 2000.0, 8)
    params = Combinations(axes, space(), wanted.baseline()).params(theirs.settings)
    assert params is not None
    other.learn(params, theirs, axes)

    def slower_here(options: Options, before: int) -> Planted:
        return Planted(samples_per_second=900.0 if options.compile.xla is True else 1000.0, loss=2.0)

    searcher, _ = searching(tmp_path / "b", wanted, slower_here)
    searcher.run()
    reasons = [candidate.reason for candidate in wide(searcher)]
    assert reasons[0] == "the fastest of another member of the study"
    assert len(reasons) > 3
    assert reasons.count(reasons[0]) == 1
    assert searcher.record.ended_because in ("every combination was measured", "no new combination was found")


# ---- the file ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "located"),
    [
        ("~/s.journal", "{home}/s.journal"), ("s.journal", "{here}/s.journal"), ("/a/s.journal", "/a/s.journal"),
        ("sqlite:///s.db", "sqlite:///{here}/s.db"), ("sqlite:////a/s.db", "sqlite:////a/s.db"),
        ("postgresql://me@host/db", "postgresql://me@host/db"),
    ],
)  # fmt: skip
def test_a_study_is_located_from_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, located: str
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    assert storage.located(given) == located.format(home=tmp_path / "home", here=tmp_path)


@pytest.mark.parametrize(
    ("location", "fault", "why"),
    [
        ("/s.journal", PermissionError(13, "Permission denied"), "Permission denied; every member must be allowed to "
         "write to it and to its folder"),
        ("/s.journal", OSError("odd"), "odd; every member must be allowed to write to it and to its folder"),
        ("mysql://me:secret@h/d", ImportError("no mysql"), "no mysql; install the database's driver, or give --study a "
         "file"),
        ("/s.journal", KeyError("op_code"), "it is not a journal of Optuna, or it is damaged; give --study another "
         "file"),
        ("mysql://me:secret@h/d", ValueError("one\ntwo"), "one"),
        ("mysql://me:secret@h/d", RuntimeError(), "RuntimeError"),
        ("/s.journal", RuntimeError("locked"), "locked"),
    ],
)  # fmt: skip
def test_why_a_study_cannot_be_used_in_a_line(location: str, fault: Exception, why: str) -> None:
    with pytest.raises(storage.StudyError) as refused, storage.faults_of(location):
        raise fault
    assert str(refused.value) == f"the study in {location.replace(':secret', '')} cannot be used: {why}"
    with pytest.raises(storage.StudyError) as refused, storage.faults_of(location):
        raise RuntimeError("wrapped") from fault
    assert str(refused.value).endswith(why), "Optuna wraps the error of a database"
    with pytest.raises(storage.StudyError, match="as it is"), storage.faults_of(location):
        raise storage.StudyError("as it is")


def test_combinations_are_drawn_once_each_if_they_are_few() -> None:
    few = Combinations([Axis(BATCH, [8, 16, 32]), Axis(XLA, choices={"a": {XLA: False}, "b": {XLA: True}})], space(),
                       preset())  # fmt: skip
    drawn = [few.in_random_order(seed) for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert sorted((params[BATCH], params[XLA]) for params in drawn[2]) == [
        (0, "a"), (0, "b"), (1, "a"), (1, "b"), (2, "a"), (2, "b")
    ]  # fmt: skip
    many = Combinations([Axis(BATCH, range(1, 51)), Axis(STEPS, range(1, 51))], space(), preset())
    assert len(many) == 2500
    at_random = many.in_random_order(1)
    assert len(at_random) == 1000
    assert {(params[BATCH], params[STEPS]) for params in at_random} < {(a, b) for a in range(50) for b in range(50)}
    assert len({params[STEPS] for params in at_random}) == 50, "of the whole axis"


@pytest.fixture
def stubborn_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model of Optuna always proposes the first value of each axis."""
    import optuna

    def first(self: Any, study: Any, trial: Any, name: str, distribution: Any) -> Any:
        return distribution.to_external_repr(0)

    monkeypatch.setattr(optuna.samplers.RandomSampler, "sample_independent", first)
    monkeypatch.setattr(optuna.samplers, "TPESampler", optuna.samplers.RandomSampler)


@needs_optuna
def test_a_model_that_repeats_itself_leaves_no_combination_out(stubborn_model: None, tmp_path: Path) -> None:
    searcher, _ = searching(tmp_path / "p", asked(wide="instead"), together)
    searcher.run()
    assert searcher.record.ended_because == "every combination was measured"
    assert len(wide(searcher)) == 13, "all but the preset"
    assert searcher.record.changes_kept == {XLA: True, STEPS: 16}


@needs_optuna
def test_what_cannot_fit_is_not_drawn_and_the_search_ends(stubborn_model: None, tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        taken = (100 + 10 * options.input.batch_size) * 2**20
        return Planted(samples_per_second=1000.0, loss=2.0, peak_memory_bytes=taken)

    limits = {"only": ["batch_size", "xla"], "memory_bytes": 300 * 2**20, "wide": "instead"}
    searcher, bench = searching(tmp_path / "p", asked(**limits), figures)
    searcher.run()
    assert searcher.record.ended_because == "no new combination was found"
    measured = {(options.compile.xla is True, options.input.batch_size) for options in bench.asked}
    assert measured >= {(xla, batch) for xla in (False, True) for batch in (1, 2, 3, 4, 6, 8, 12, 16)}
    assert max(batch for _, batch in measured) <= 2 * 20, "XLA could need half of it"
    assert all(candidate.decision != "left out" for candidate in wide(searcher))
