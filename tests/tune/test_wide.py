"""Wide searches through Optuna and trials side by side: members, studies, and GPUs."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.doors.engine import (
    LEAST_REPORTS,
    Candidate,
    Combinations,
    Gpu,
    Limits,
    Machine,
    Measurement,
    Options,
    ProofError,
    Proposal,
    Searcher,
    SettingsResult,
    Space,
    Study,
    axes_of,
    presets,
    storage,
    tune_request,
)
from tests.doors.engine import folder as folder_of_proof
from tests.doors.engine import proof_request as request
from tests.doors.engine import proof_request_Request as Request
from tests.doors.engine import search_axes_Axis as Axis
from tests.doors.engine import study as members
from tests.doors.tui import tui_cli as cli
from tests.support.proving import HERE, Planted, PlantedBench, searching, started

needs_optuna = pytest.mark.needs("optuna")
MIB = 2**20
# A member of a study in a process of its own.
# Of two members none measures more than two trials more than the other has by then, however busy the machine is.
MEMBER = """\
import json, sys, time
from pathlib import Path
from tests.tune.test_wide import asked, together, wide
from tests.support.proving import searching
mine, theirs = (Path(f"{folder}.measured") for folder in (sys.argv[1], sys.argv[3]))
until = time.monotonic() + 90

def measured(path):
    return path.stat().st_size if path.exists() else 0

def in_step(options, before):
    with mine.open("a") as count:
        count.write("x")
    while measured(mine) > measured(theirs) + 2 and time.monotonic() < until:
        time.sleep(0.005)
    return together(options, before)

searcher, bench = searching(Path(sys.argv[1]), asked(study=sys.argv[2]), in_step)
searcher.run()
mine.write_text("x" * 1000)
study = searcher.search.study
print(json.dumps({"kept": searcher.record.changes_kept, "study": vars(study), "wide": len(wide(searcher))}))
"""
# One that is killed while it measures.
KILLED = """\
import os, signal, sys
from pathlib import Path
from tests.tune.test_wide import asked
from tests.support.proving import HERE
from gputui.engine.tune.wide import study as members
from gputui.engine.tune.wide.study import Axis, Study
study = Study(sys.argv[1], "quickstart", Path(sys.argv[2]), members.common_properties(asked(), HERE, 2.0))
study.join()
study.ask([Axis("compile.steps_per_execution", (1, 2, 4))], lambda params: {})
os.kill(os.getpid(), signal.SIGKILL)
"""


def asked(**limits: Any) -> Request:
    """A search of fourteen combinations: XLA, and 1 to 64 steps together."""
    given = ("batch_size=8", "train.seed=1")
    wanted = Limits(**{"wide": "after", "only": ["xla", "steps_per_execution"]} | limits)
    return request.of_preset("tune", "quickstart", given, search=tune_request.checked(wanted))


def together(options: Options, before: int) -> Planted:
    """XLA makes it slower, but with several steps together faster: no option alone shows it."""
    steps, xla = options.compile.steps_per_execution, options.compile.xla is True
    gain = (2.0 if steps == 16 else 0.9) if xla else (0.95 if steps > 1 else 1.0)
    return Planted(samples_per_second=1000 * gain, loss=2.0)


def only_xla(options: Options, before: int) -> Planted:
    return Planted(samples_per_second=2000.0 if options.compile.xla is True else 1000.0, loss=2.0)


def wide(searcher: Searcher) -> list[Candidate]:
    return [one for one in searcher.search.candidates if one.stage == "wide"]


def trials_in(location: Path) -> list[Any]:
    """Of the only study, as Optuna reads it."""
    import optuna

    return list(optuna.load_study(study_name=None, storage=storage.opened(str(location))).trials)


@needs_optuna
def test_it_finds_a_combination_that_no_option_alone_shows_and_proves_it(tmp_path: Path) -> None:
    searcher, _ = searching(tmp_path / "p", asked(), together)
    searcher.run()
    best = {"compile.xla": True, "compile.steps_per_execution": 16}
    assert searcher.record.changes_kept == best
    assert searcher.record.gain_total == pytest.approx(2.0)
    assert searcher.record.comparisons[-1].decision == "kept"
    settings = [json.dumps(one.settings, sort_keys=True) for one in wide(searcher)]
    assert len(settings) == len(set(settings)), "nothing is measured twice"
    ordered = [one for one in searcher.search.candidates if one.stage not in ("wide", "ceiling")]
    trials = trials_in(tmp_path / "p" / "study.journal")
    states = [trial.state.name for trial in trials]
    assert states[: len(ordered)] == ["COMPLETE"] * len(ordered), "it starts from what the ordered search has measured"
    slower = [one for one in wide(searcher) if one.trials[-1].outcome == "slower"]
    later = wide(searcher)[[one.settings for one in wide(searcher)].index(best) + 1 :]
    assert slower == later, "all others are clearly slower than the best, and end early once it is known"
    pruned = {json.dumps(one.user_attrs["settings"]) for one in trials if one.state.name == "PRUNED"}
    assert pruned == {json.dumps(one.settings) for one in slower}
    assert all(one.value == 950 or one.value == 900 for one in trials if one.state.name == "PRUNED"), "by their speed"


@needs_optuna
def test_what_fails_or_cannot_fit_is_told_as_a_violated_constraint_and_ends_nothing(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        """Beyond 53 samples there is no room."""
        if options.compile.xla is True:
            return Planted(outcome="error")
        batch = options.input.batch_size
        taken = (100 + 10 * batch) * MIB
        return Planted(samples_per_second=1000 + 10 * batch, loss=2.0, peak_memory_bytes=taken)

    limits = {"only": ["batch_size", "xla"], "memory_bytes": 700 * MIB, "wide": "instead"}
    searcher, bench = searching(tmp_path / "p", asked(**limits), figures)
    searcher.run()
    told = {json.dumps(one.settings): (one.decision, one.why) for one in wide(searcher)}
    assert any(decision == "failed" and "error" in why for decision, why in told.values()), told
    assert any(decision == "left out" and "memory" in why for decision, why in told.values()), told
    plain = [options.input.batch_size for options in bench.asked if options.compile.xla is not True]
    assert max(plain) <= 53, "none is tried that cannot fit"
    assert max(options.input.batch_size for options in bench.asked) <= 2 * 53, "XLA could need half of it"
    assert searcher.record.changes_kept in ({"input.batch_size": 48}, {"input.batch_size": 32})
    trials = trials_in(tmp_path / "p" / "study.journal")
    violated = {name for trial in trials for name, value in trial.constraints.items() if value > 0}
    assert violated == {"memory", "trains"}
    assert all(trial.state.name == "PRUNED" for trial in trials if trial.constraints)


@needs_optuna
def test_a_resumed_search_loses_at_most_the_trial_in_flight(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    def figures(options: Options, before: int) -> Planted:
        if before == 9:
            raise Killed
        return together(options, before)

    wanted = asked()
    first, _ = searching(tmp_path / "p", wanted, figures)
    with pytest.raises(Killed):
        first.run()
    assert [one.state.name for one in trials_in(tmp_path / "p" / "study.journal")].count("RUNNING") == 1
    again, more = searching(tmp_path / "p", wanted, together, first.record.trials)
    again.run()
    before = {json.dumps(one.settings) for one in first.search.candidates if one.trials}
    assert {json.dumps(one.settings) for one in again.search.candidates} >= before, "all of them stand in the record"
    assert len(again.record.trials) == 9 + len(more.asked), "what was measured is not measured again"
    assert again.record.changes_kept == {"compile.xla": True, "compile.steps_per_execution": 16}


@needs_optuna
def test_members_at_the_same_time_share_one_study_and_one_that_comes_later_measures_only_what_it_needs(
    tmp_path: Path,
) -> None:
    location, root = tmp_path / "shared.journal", Path(__file__).parents[2]
    programs = [[sys.executable, "-c", MEMBER, str(tmp_path / one), str(location), str(tmp_path / other)]
                for one, other in ("ab", "ba")]  # fmt: skip
    both = [subprocess.Popen(program, cwd=root, stdout=subprocess.PIPE, text=True) for program in programs]
    found = [json.loads(member.communicate(timeout=120)[0]) for member in both]
    best = {"compile.xla": True, "compile.steps_per_execution": 16}
    assert [one["kept"] for one in found] == [best, best]
    assert all(one["study"]["members"] == 2 and one["study"]["of_others"] > 0 for one in found), found
    assert sum(one["wide"] for one in found) < 2 * 14, "they share the work"
    later, bench = searching(tmp_path / "c", tune_request.joined(asked(study=str(location))), together)
    later.run()
    assert [one.settings for one in wide(later)] == [best]
    assert "another member" in wide(later)[0].reason
    assert len(bench.asked) == 1 + 1 + 6, "the preset, the best of the others, the pairs"
    assert later.record.changes_kept == best


@needs_optuna
def test_a_member_that_was_killed_leaves_no_trial_running_once_it_is_resumed(tmp_path: Path) -> None:
    location, root = tmp_path / "shared.journal", Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", KILLED, str(location), str(tmp_path)], cwd=root, check=False)
    assert done.returncode == -signal.SIGKILL
    assert [one.state.name for one in trials_in(location)] == ["RUNNING"]
    Study.of(asked(study=str(location)), HERE, tmp_path).join()
    assert [one.state.name for one in trials_in(location)] == ["FAIL"]


@needs_optuna
def test_a_last_line_that_was_written_in_part_costs_nothing_but_itself(tmp_path: Path) -> None:
    location = tmp_path / "shared.journal"
    first, _ = searching(tmp_path / "a", asked(study=str(location)), together)
    first.run()
    whole = len(trials_in(location))
    with location.open("ab") as journal:
        journal.write(b'{"op_code":4,"worker_')
    later, _ = searching(tmp_path / "b", tune_request.joined(asked(study=str(location))), together)
    later.run()
    assert later.record.changes_kept == first.record.changes_kept
    assert len(trials_in(location)) >= whole


@needs_optuna
def test_a_storage_that_fails_meanwhile_ends_the_proposals_and_not_the_search(tmp_path: Path) -> None:
    location = tmp_path / "shared.journal"

    def figures(options: Options, before: int) -> Planted:
        if before == 3:
            location.write_text("no journal any more, and longer than before\n" * 10_000)
        return only_xla(options, before)

    searcher, _ = searching(tmp_path / "p", asked(study=str(location)), figures)
    searcher.run()
    assert "cannot be used" in searcher.record.ended_because
    assert searcher.record.changes_kept["compile.xla"] is True, "what was found by then is proved"


@needs_optuna
def test_a_study_that_cannot_be_used_is_refused_in_one_line_at_the_front_door(
    home: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged, folder = tmp_path / "damaged.journal", tmp_path / "folder"
    damaged.write_text("this is\nno journal\n")
    folder.mkdir()
    for study, told in (
        (damaged, "not a journal of Optuna, or it is damaged"),
        (folder, "is not a file"),
        (tmp_path / "none" / "x.journal", "there is no folder"),
        (f"sqlite:///{damaged}", "file is not a database"),
        ("nosuchbase://me:secret@there/x", "nosuchbase"),
    ):
        with pytest.raises(ProofError, match=told) as refused:
            tune_request.joined(asked(study=str(study)))
        assert "secret" not in str(refused.value), study
        assert "\n" not in str(refused.value), study
    assert damaged.read_text() == "this is\nno journal\n", "nothing is written to it"
    assert cli.run(["tune", "--preset", "quickstart", "--wide", "--study", str(damaged)]) == 2
    complaint = capsys.readouterr().err
    assert len(complaint.splitlines()) == 1, complaint
    assert "not a journal of Optuna, or it is damaged" in complaint


def test_without_optuna_a_wide_search_is_refused_with_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(storage, "is_installed", lambda: False)
    with pytest.raises(ProofError, match=r"pip install 'optuna>=5,<6'"):
        asked()


def gpus(count: int) -> Machine:
    one = Gpu(0, None, "NVIDIA H100 80GB HBM3", (9, 0), 80 * 2**30)
    return replace(HERE, gpus=tuple(replace(one, index=place, uuid=f"GPU-{place}") for place in range(count)))


def on_gpus(folder: Path, figures: Any, machine: Machine) -> tuple[Searcher, PlantedBench]:
    wanted = asked(wide="instead", leave=["strategy.kind"])
    folder.mkdir()
    bench = PlantedBench(folder / "trials", figures)
    return Searcher(Measurement(wanted, folder_of_proof.empty_record(folder, wanted), bench, machine)), bench


@needs_optuna
def test_proposals_are_measured_at_once_each_on_a_gpu_of_its_own_and_what_decides_alone(tmp_path: Path) -> None:
    both = threading.Barrier(2, timeout=120)

    def figures(options: Options, before: int) -> Planted:
        if options.device.visible != "all":
            both.wait()  # two are measured at the same time, or none
        return together(options, before)

    searcher, bench = on_gpus(tmp_path / "p", figures, gpus(2))
    searcher.run()
    assert searcher.search.study is not None
    assert searcher.search.study.at_once == 2
    pinned = [tuple(one.device.visible) for one in bench.asked if one.device.visible != "all"]
    assert pinned.count(("GPU-0",)) == pinned.count(("GPU-1",)) > 2
    assert all(one.device.visible == "all" for one in bench.asked[-6:]), "the pairs"
    assert searcher.record.changes_kept == {"compile.xla": True, "compile.steps_per_execution": 16}
    assert len({trial.run for trial in searcher.record.trials}) == len(bench.asked), "all of them stand in the record"


@needs_optuna
def test_trainings_that_disturb_each_other_are_measured_one_after_another(tmp_path: Path) -> None:
    def figures(options: Options, before: int) -> Planted:
        planted = together(options, before)
        return planted if options.device.visible == "all" else replace(planted, samples_per_second=900.0)

    searcher, bench = on_gpus(tmp_path / "p", figures, gpus(2))
    searcher.run()
    assert searcher.search.study is not None
    assert searcher.search.study.at_once == 1
    assert sum(one.device.visible != "all" for one in bench.asked) == 2, "only to find out"
    assert any("disturb each other" in one.why for one in wide(searcher))


@needs_optuna
def test_a_gpu_of_another_model_or_a_slow_one_measures_nothing_and_each_speed_is_relative_to_its_gpu(
    tmp_path: Path,
) -> None:
    shares = {"GPU-0": 1.0, "GPU-1": 0.65, "GPU-2": 0.96}

    def figures(options: Options, before: int) -> Planted:
        planted, visible = together(options, before), options.device.visible
        share = 1.0 if isinstance(visible, str) else shares[str(visible[0])]
        return replace(planted, samples_per_second=planted.samples_per_second * share)

    box = gpus(4)
    box = replace(box, gpus=(*box.gpus[:3], replace(box.gpus[3], name="NVIDIA A100-SXM4-80GB")))
    searcher, bench = on_gpus(tmp_path / "p", figures, box)
    searcher.run()
    assert searcher.search.study is not None
    assert searcher.search.study.at_once == 2
    (found,) = [one for one in wide(searcher) if "at the same time" in one.reason]
    assert (found.decision, found.why) == ("kept", "slower, and left out: GPU-1")
    pinned = [str(one.device.visible[0]) for one in bench.asked if not isinstance(one.device.visible, str)]
    assert (pinned.count("GPU-1"), pinned.count("GPU-3")) == (1, 0)
    assert pinned.count("GPU-0") == pinned.count("GPU-2") > 2
    speeds = {round(one.samples_per_second or 0.0, 3) for one in wide(searcher) if one is not found}
    assert speeds <= {900.0, 950.0, 1000.0, 2000.0}, speeds
    assert searcher.record.changes_kept == {"compile.xla": True, "compile.steps_per_execution": 16}


BATCH, STEPS, XLA = "input.batch_size", "compile.steps_per_execution", "compile.xla"


def space(samples: int | None = 1000, **limits: Any) -> Space:
    built = replace(started(presets.resolve("quickstart").options, 32), train_samples=samples)
    return Space(Limits(**limits), HERE, built)


def preset() -> Any:
    return presets.resolve("quickstart", ["batch_size=20", "xla=false", "steps_per_execution=1"])


@pytest.mark.parametrize(
    ("samples", "params", "settings"),
    [
        (1000, {BATCH: 8, STEPS: 6}, {STEPS: 50}),  # as many steps as a pass of 20 has
        (None, {BATCH: 13, STEPS: 6}, {BATCH: 96, STEPS: 64}),
        (100, {BATCH: 13, STEPS: 3}, {BATCH: 10, STEPS: 8}),  # a pass keeps ten steps
    ],
)
def test_a_combination_is_reduced_to_what_its_data_allows(
    samples: int | None, params: dict[str, int], settings: dict[str, int]
) -> None:
    axes = axes_of(space(only=["batch_size", "steps_per_execution"]), preset())
    assert Combinations(axes, space(samples), preset()).settings(params) == settings


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
def test_the_fastest_of_others_is_measured_with_the_input_if_it_was_tried_only_without(tmp_path: Path) -> None:
    location = str(tmp_path / "s.journal")
    searching(tmp_path / "a", asked(study=location, only=["xla"], wide="instead"), only_xla)[0].run()

    def held_back(options: Options, before: int) -> Planted:
        speed = 1500.0 if options.input.one_batch else 1000.0
        return Planted(samples_per_second=(0.8 if options.compile.xla is True else 1.0) * speed, loss=2.0)

    second, _ = searching(tmp_path / "b", asked(study=location, only=["xla"]), held_back)
    second.run()
    tried = [one for one in second.search.candidates if one.settings == {"compile.xla": True}]
    assert [one.without_input for one in tried] == [True, False]
    assert "another member" in tried[1].reason


AXES = [Axis(BATCH, [8, 16, 32, 64]), Axis(XLA, choices={"off": {XLA: False}, "on": {XLA: True}})]


def joined(folder: Path, name: str = "a", seconds: float = 2.0) -> Study:
    common = members.common_properties(asked(), HERE, seconds)
    study = Study(str(folder / "s.journal"), "quickstart", folder / name, common)
    study.join()
    return study


def settings_of(params: Any) -> dict[str, Any]:
    return {BATCH: AXES[0].numbers[params[BATCH]], **AXES[1].choices[params[XLA]]}


def ask(study: Study) -> Proposal:
    return study.ask(AXES, settings_of)


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
    open_ = ask(study)
    rows = [(trial.state.name, trial.value, trial.intermediate_values, trial.constraints or {})
            for trial in trials_in(tmp_path / "s.journal")]  # fmt: skip
    assert rows == [
        ("COMPLETE", 1000.0, {}, {}),
        ("PRUNED", 400.0, {LEAST_REPORTS: 400.0}, {}),
        ("PRUNED", None, {}, {"memory": 0.5}),
        ("PRUNED", None, {}, {"memory": 0.25}),
        ("PRUNED", None, {}, {"trains": 1.0}),
        ("PRUNED", None, {}, {"trains": 1.0}),
        ("FAIL", None, {}, {}),
        ("RUNNING", None, {}, {}),
    ]
    known = study.known()
    assert [each.found for each in known] == [
        *(each for each, _ in told), None, None]  # fmt: skip
    assert {each.member for each in known} == {study.member}
    assert known[-1].settings == open_.settings
    assert all(set(each.settings) == {BATCH, XLA} for each in known)
    assert [each.trial.number for each in (open_, ask(study))] == [7, 8]
    assert joined(tmp_path, "b").of_this_search() == []
    assert joined(tmp_path, "b").finished_trials() == 7
